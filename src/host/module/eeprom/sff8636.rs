//! QSFP modules (SFF-8636): lower memory, pages 00h and 03h, four lanes.

use super::{BlockAddress, Eeprom, EepromPart, amperes, degrees, limits_of, sum_is, volts, watts};
use crate::model::module::{CableTechnology, ModuleForm, ModuleIdentity, ModuleLane, ModuleLimits, ModuleValues};
use crate::model::units::Celsius;

const IDENTITY: BlockAddress = BlockAddress::new(0, 128, 128);
const LIMITS: BlockAddress = BlockAddress::new(3, 128, 72);
/// Temperature to sent power; flags end before.
const VALUES: BlockAddress = BlockAddress::new(0, 22, 36);

const FLAT: u8 = 1 << 2;

fn is_flat(eeprom: &Eeprom) -> bool {
    eeprom.byte(0, 2).is_none_or(|status| status & FLAT != 0)
}

pub(super) fn blocks(eeprom: &Eeprom, part: EepromPart) -> Vec<BlockAddress> {
    match part {
        EepromPart::Identity => vec![IDENTITY],
        // Without pages there is no diagnosis either: a passive cable.
        EepromPart::Limits if !is_flat(eeprom) => vec![LIMITS],
        EepromPart::Values if !is_flat(eeprom) => vec![VALUES],
        EepromPart::Limits | EepromPart::Values => Vec::new(),
    }
}

fn technology(eeprom: &Eeprom) -> Option<CableTechnology> {
    Some(match eeprom.byte(0, 147)? >> 4 {
        0..=9 => CableTechnology::Optical,
        10 | 11 => CableTechnology::PassiveCopper,
        _ => CableTechnology::ActiveCopper,
    })
}

pub(super) fn identity(eeprom: &Eeprom, form: ModuleForm) -> Option<ModuleIdentity> {
    if !sum_is(eeprom.bytes(0, 128, 63), eeprom.byte(0, 191)) {
        return None;
    }
    let technology = technology(eeprom)?;
    let length = |offset: u8, metres: f64| {
        let length = eeprom.byte(0, offset).filter(|length| *length > 0)?;
        Some(f64::from(length) * metres)
    };
    let optical = [(142, 1000.0), (146, 2.0), (143, 2.0), (144, 1.0), (145, 1.0)];
    Some(ModuleIdentity {
        form,
        technology,
        vendor: eeprom.text(0, 148, 16),
        part_number: eeprom.text(0, 168, 16),
        serial_number: eeprom.text(0, 196, 16),
        revision: eeprom.text(0, 184, 2),
        firmware_version: None,
        length: match technology {
            CableTechnology::Optical => optical.into_iter().find_map(|(offset, metres)| length(offset, metres)),
            CableTechnology::PassiveCopper | CableTechnology::ActiveCopper => length(146, 1.0),
        },
    })
}

pub(super) fn limits(eeprom: &Eeprom) -> ModuleLimits {
    let at = |offset| eeprom.bytes(3, offset, 8);
    ModuleLimits {
        temperature: limits_of(at(128), degrees),
        voltage: limits_of(at(144), volts),
        receive: limits_of(at(176), watts),
        bias: limits_of(at(184), amperes),
        transmit: limits_of(at(192), watts),
    }
}

pub(super) fn values(eeprom: &Eeprom) -> Option<ModuleValues> {
    let is_optical = technology(eeprom)? == CableTechnology::Optical;
    let counts_sent = eeprom.byte(0, 220).is_some_and(|byte| byte & 1 << 2 != 0);
    let lane = |lane: u8| ModuleLane {
        receive: eeprom.word(0, 34 + 2 * lane).map(watts),
        bias: eeprom.word(0, 42 + 2 * lane).map(amperes),
        transmit: eeprom.word(0, 50 + 2 * lane).filter(|_| counts_sent).map(watts),
    };
    Some(ModuleValues {
        state: None,
        temperature: Some(Celsius(degrees(eeprom.word(0, 22)?))),
        voltage: eeprom.word(0, 26).map(volts),
        lanes: if is_optical { (0..4).map(lane).collect() } else { Vec::new() },
    })
}
