//! SFP modules (SFF-8472): identity at 0x50, diagnostics at 0x51, from outside or by the module calibrated.

use super::{BlockAddress, DIAGNOSTICS, Eeprom, EepromPart, amperes, limits_of, sum_is, volts, watts};
use crate::model::module::{CableTechnology, ModuleForm, ModuleIdentity, ModuleLane, ModuleLimits, ModuleValues};
use crate::model::units::Celsius;

const IDENTITY: BlockAddress = BlockAddress::new(0, 0, 96);
/// Limits, and constants of calibration.
const LIMITS: BlockAddress = BlockAddress { i2c: DIAGNOSTICS, bank: 0, page: 0, offset: 0, length: 96 };
/// Temperature to received power.
const VALUES: BlockAddress = BlockAddress { i2c: DIAGNOSTICS, bank: 0, page: 0, offset: 96, length: 10 };

const HAS_DIAGNOSTICS: u8 = 1 << 6;
const CALIBRATED_OUTSIDE: u8 = 1 << 4;

pub(super) fn blocks(eeprom: &Eeprom, part: EepromPart) -> Vec<BlockAddress> {
    let has_diagnostics = eeprom.byte(0, 92).is_some_and(|byte| byte & HAS_DIAGNOSTICS != 0);
    match part {
        EepromPart::Identity => vec![IDENTITY],
        EepromPart::Limits if has_diagnostics => vec![LIMITS],
        EepromPart::Values if has_diagnostics => vec![VALUES],
        EepromPart::Limits | EepromPart::Values => Vec::new(),
    }
}

pub(super) fn identity(eeprom: &Eeprom, form: ModuleForm) -> Option<ModuleIdentity> {
    if !sum_is(eeprom.bytes(0, 0, 63), eeprom.byte(0, 63)) {
        return None;
    }
    let cable = eeprom.byte(0, 8)?;
    let technology = if cable & 1 << 2 != 0 {
        CableTechnology::PassiveCopper
    } else if cable & 1 << 3 != 0 {
        CableTechnology::ActiveCopper
    } else {
        CableTechnology::Optical
    };
    let length = |offset: u8, metres: f64| {
        let length = eeprom.byte(0, offset).filter(|length| *length > 0)?;
        Some(f64::from(length) * metres)
    };
    let optical = [(14, 1000.0), (15, 100.0), (18, 10.0), (19, 10.0), (16, 10.0), (17, 10.0)];
    Some(ModuleIdentity {
        form,
        technology,
        vendor: eeprom.text(0, 20, 16),
        part_number: eeprom.text(0, 40, 16),
        serial_number: eeprom.text(0, 68, 16),
        revision: eeprom.text(0, 56, 4),
        firmware_version: None,
        length: match technology {
            CableTechnology::Optical => optical.into_iter().find_map(|(offset, metres)| length(offset, metres)),
            CableTechnology::PassiveCopper | CableTechnology::ActiveCopper => length(18, 1.0),
        },
    })
}

/// Constants of a module that is calibrated from outside.
struct Calibration<'a>(Option<&'a [u8]>);

impl<'a> Calibration<'a> {
    fn of(eeprom: &'a Eeprom) -> Self {
        let outside = eeprom.byte(0, 92).is_some_and(|byte| byte & CALIBRATED_OUTSIDE != 0);
        Self(if outside { eeprom.at(DIAGNOSTICS, 0, 0, 56, 36) } else { None })
    }

    /// A raw value times its slope, plus its offset, in raw units; the constants stand at this offset.
    fn linear(&self, raw: f64, offset: usize) -> f64 {
        let constants = self.0.and_then(|bytes| bytes.get(offset.checked_sub(56)?..)?.first_chunk::<4>());
        let Some([a, b, c, d]) = constants.copied() else { return raw };
        let slope = f64::from(u16::from_be_bytes([a, b])) / 256.0;
        raw * slope + f64::from(i16::from_be_bytes([c, d]))
    }

    /// Received power: a polynomial, its constants from x^4 down.
    fn receive(&self, raw: f64) -> f64 {
        let Some(bytes) = self.0 else { return raw };
        let constants = bytes.chunks_exact(4).take(5).filter_map(|chunk| chunk.first_chunk::<4>());
        constants.fold(0.0, |sum, bytes| sum * raw + f64::from(f32::from_be_bytes(*bytes)))
    }

    fn degrees(&self, raw: u16) -> f64 {
        self.linear(f64::from(raw.cast_signed()), 84) / 256.0
    }

    fn scaled(&self, raw: u16, offset: usize, unit: fn(u16) -> f64) -> f64 {
        self.linear(f64::from(raw), offset) * unit(1)
    }
}

pub(super) fn limits(eeprom: &Eeprom) -> ModuleLimits {
    let calibration = Calibration::of(eeprom);
    let at = |offset| eeprom.at(DIAGNOSTICS, 0, 0, offset, 8);
    ModuleLimits {
        temperature: limits_of(at(0), |raw| calibration.degrees(raw)),
        voltage: limits_of(at(8), |raw| calibration.scaled(raw, 88, volts)),
        bias: limits_of(at(16), |raw| calibration.scaled(raw, 76, amperes)),
        transmit: limits_of(at(24), |raw| calibration.scaled(raw, 80, watts)),
        receive: limits_of(at(32), |raw| calibration.receive(f64::from(raw)) * watts(1)),
    }
}

pub(super) fn values(eeprom: &Eeprom) -> Option<ModuleValues> {
    let calibration = Calibration::of(eeprom);
    let raw = |offset: u8| {
        let bytes = eeprom.at(DIAGNOSTICS, 0, 0, offset, 2)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    };
    // Constants that were not read are none that are 1.
    let outside = eeprom.byte(0, 92)? & CALIBRATED_OUTSIDE != 0;
    if outside && calibration.0.is_none() {
        return None;
    }
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let light = |value: f64| finite(value).map(|value| value.max(0.0));
    let lane = ModuleLane {
        receive: light(calibration.receive(f64::from(raw(104)?)) * watts(1)),
        transmit: light(calibration.scaled(raw(102)?, 80, watts)),
        bias: light(calibration.scaled(raw(100)?, 76, amperes)),
    };
    Some(ModuleValues {
        state: None,
        temperature: finite(calibration.degrees(raw(96)?)).map(Celsius),
        voltage: finite(calibration.scaled(raw(98)?, 88, volts)),
        lanes: vec![lane],
    })
}
