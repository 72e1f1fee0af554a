//! Modules with CMIS 5: lower memory, pages 00h to 02h, and page 11h of each bank.

use std::sync::Arc;

use super::{BlockAddress, Eeprom, EepromPart, MODULE, amperes, degrees, limits_of, volts, watts};
use crate::model::module::{
    CableTechnology, ModuleForm, ModuleIdentity, ModuleLane, ModuleLimits, ModuleState, ModuleValues,
};
use crate::model::units::Celsius;

const STATE: BlockAddress = BlockAddress::new(0, 3, 1);
/// Temperature and voltage; the flags end before.
const MONITORS: BlockAddress = BlockAddress::new(0, 14, 4);
/// Firmware, and the first application with its lanes.
const FIRMWARE: BlockAddress = BlockAddress::new(0, 39, 51);
const IDENTITY: BlockAddress = BlockAddress::new(0, 128, 128);
const ADVERTISED: BlockAddress = BlockAddress::new(1, 128, 40);
const LIMITS: BlockAddress = BlockAddress::new(2, 128, 72);
/// Sent power, bias and received power of the eight lanes of a bank; the flags end before.
const LANES: BlockAddress = BlockAddress::new(0x11, 154, 48);

const FLAT: u8 = 1 << 7;

/// Most banks that are read: a pass has four blocks.
const MOST_BANKS: u8 = 2;

fn is_flat(eeprom: &Eeprom) -> bool {
    eeprom.byte(0, 2).is_none_or(|byte| byte & FLAT != 0)
}

fn banks(eeprom: &Eeprom) -> u8 {
    let advertised = eeprom.byte(1, 142).map_or(0, |byte| byte & 3);
    (1 << advertised.min(2)).min(MOST_BANKS)
}

pub(super) fn blocks(eeprom: &Eeprom, part: EepromPart) -> Vec<BlockAddress> {
    let flat = is_flat(eeprom);
    match part {
        EepromPart::Identity if flat => vec![FIRMWARE, IDENTITY],
        EepromPart::Identity => vec![FIRMWARE, IDENTITY, ADVERTISED],
        EepromPart::Limits if !flat => vec![LIMITS],
        EepromPart::Values if !flat => {
            let optical = technology(eeprom) == Some(CableTechnology::Optical);
            let lanes = (0..banks(eeprom)).filter(|_| optical).map(|bank| BlockAddress { bank, ..LANES });
            [STATE, MONITORS].into_iter().chain(lanes).collect()
        }
        EepromPart::Limits | EepromPart::Values => Vec::new(),
    }
}

fn technology(eeprom: &Eeprom) -> Option<CableTechnology> {
    Some(match eeprom.byte(0, 212)? {
        0..=9 => CableTechnology::Optical,
        10 | 11 => CableTechnology::PassiveCopper,
        _ => CableTechnology::ActiveCopper,
    })
}

/// A length in six bits, and its unit in the two above.
fn length(byte: u8, units: [f64; 4]) -> Option<f64> {
    let unit = units.get(usize::from(byte >> 6))?;
    Some(f64::from(byte & 0x3f) * unit).filter(|length| *length > 0.0)
}

pub(super) fn identity(eeprom: &Eeprom, form: ModuleForm) -> Option<ModuleIdentity> {
    let firmware = eeprom.byte(0, 39).zip(eeprom.byte(0, 40)).filter(|version| *version != (0, 0));
    let cable = eeprom.byte(0, 202).and_then(|byte| length(byte, [0.1, 1.0, 10.0, 100.0]));
    let fibre = eeprom.byte(1, 132).and_then(|byte| length(byte, [100.0, 1000.0, 0.0, 0.0]));
    Some(ModuleIdentity {
        form,
        technology: technology(eeprom)?,
        vendor: eeprom.text(0, 129, 16),
        part_number: eeprom.text(0, 148, 16),
        serial_number: eeprom.text(0, 166, 16),
        revision: eeprom.text(0, 164, 2),
        firmware_version: firmware.map(|(major, minor)| Arc::from(format!("{major}.{minor}"))),
        length: cable.or(fibre),
    })
}

pub(super) fn limits(eeprom: &Eeprom) -> ModuleLimits {
    let at = |offset| eeprom.bytes(2, offset, 8);
    let multiplier = bias_multiplier(eeprom);
    ModuleLimits {
        temperature: limits_of(at(128), degrees),
        voltage: limits_of(at(136), volts),
        transmit: limits_of(at(176), watts),
        bias: limits_of(at(184), |raw| amperes(raw) * multiplier),
        receive: limits_of(at(192), watts),
    }
}

fn bias_multiplier(eeprom: &Eeprom) -> f64 {
    match eeprom.byte(1, 160).map_or(0, |byte| byte >> 3 & 3) {
        1 => 2.0,
        2 => 4.0,
        _ => 1.0,
    }
}

/// Lanes of the fibre that the first application uses: a lane beyond has no light, and that is no fault.
fn lanes_in_use(eeprom: &Eeprom) -> Option<u8> {
    let [_, _, counts, assignments] = *eeprom.bytes(0, 86, 4)?.first_chunk()?;
    let each = counts & 0x0f;
    let instances = u8::try_from(assignments.count_ones()).ok()?;
    Some(each.saturating_mul(instances.max(1))).filter(|lanes| *lanes > 0)
}

pub(super) fn values(eeprom: &Eeprom) -> Option<ModuleValues> {
    let state = match eeprom.byte(0, 3)? >> 1 & 7 {
        1 => Some(ModuleState::LowPower),
        2 => Some(ModuleState::PoweringUp),
        3 => Some(ModuleState::Ready),
        4 => Some(ModuleState::PoweringDown),
        5 => Some(ModuleState::Fault),
        _ => None,
    };
    let monitors = eeprom.byte(1, 160).unwrap_or(0);
    let multiplier = bias_multiplier(eeprom);
    let most = banks(eeprom).saturating_mul(8);
    let lane = |lane: u8| {
        let word = |offset: u8| {
            let offset = offset + lane % 8 * 2;
            let bytes = eeprom.at(MODULE, lane / 8, 0x11, offset, 2)?.first_chunk()?;
            Some(u16::from_be_bytes(*bytes))
        };
        let monitored = |bit: u8, value: Option<u16>| value.filter(|_| monitors & 1 << bit != 0);
        ModuleLane {
            bias: monitored(0, word(170)).map(|raw| amperes(raw) * multiplier),
            transmit: monitored(1, word(154)).map(watts),
            receive: monitored(2, word(186)).map(watts),
        }
    };
    let has_lanes = eeprom.at(MODULE, 0, 0x11, 154, 48).is_some();
    let lanes = lanes_in_use(eeprom).unwrap_or(most).min(most);
    Some(ModuleValues {
        state,
        temperature: eeprom.word(0, 14).map(degrees).map(Celsius),
        voltage: eeprom.word(0, 16).map(volts),
        lanes: if has_lanes { (0..lanes).map(lane).collect() } else { Vec::new() },
    })
}
