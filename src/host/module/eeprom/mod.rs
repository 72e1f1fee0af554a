//! The memory of a module in blocks, as `ETHTOOL_MSG_MODULE_EEPROM_GET` reads it, and which blocks hold what. Flags are
//! never read: reading them clears them for everybody else.

mod cmis;
mod sff8472;
mod sff8636;

use std::sync::Arc;

use crate::model::module::{Limits, ModuleForm, ModuleIdentity, ModuleLimits, ModuleState, ModuleValues};

/// The I2C address of a module.
pub const MODULE: u8 = 0x50;
/// The I2C address of the diagnostics of an SFP.
pub const DIAGNOSTICS: u8 = 0x51;

/// A block of a module's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockAddress {
    /// I2C address.
    pub i2c: u8,
    /// Bank.
    pub bank: u8,
    /// Page; offsets below 128 are those of page 0.
    pub page: u8,
    /// Offset within the page, 0 to 255.
    pub offset: u8,
    /// Bytes, 1 to 128; a block never crosses offset 128.
    pub length: u8,
}

impl BlockAddress {
    const fn new(page: u8, offset: u8, length: u8) -> Self {
        Self { i2c: MODULE, bank: 0, page, offset, length }
    }
}

/// The first bytes: what kind of module it is.
pub const KIND: BlockAddress = BlockAddress::new(0, 0, 3);

/// What is read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EepromPart {
    /// What the module is.
    Identity,
    /// Its limits.
    Limits,
    /// How it does now.
    Values,
}

impl EepromPart {
    /// All, in the order in which they are read.
    pub const ALL: [Self; 3] = [Self::Identity, Self::Limits, Self::Values];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Limits => "limits",
            Self::Values => "values",
        }
    }
}

/// Blocks that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eeprom {
    blocks: Vec<(BlockAddress, Vec<u8>)>,
}

impl Eeprom {
    /// Adds a block; one that is there is replaced.
    pub fn set(&mut self, address: BlockAddress, bytes: Vec<u8>) {
        self.blocks.retain(|(known, _)| *known != address);
        self.blocks.push((address, bytes));
    }

    /// Adds all blocks of another one.
    pub fn extend(&mut self, other: Self) {
        other.blocks.into_iter().for_each(|(address, bytes)| self.set(address, bytes));
    }

    /// The blocks and their bytes.
    pub fn blocks(&self) -> impl Iterator<Item = (&BlockAddress, &[u8])> {
        self.blocks.iter().map(|(address, bytes)| (address, &**bytes))
    }

    /// Whether a block is there.
    pub fn has(&self, address: BlockAddress) -> bool {
        self.blocks.iter().any(|(known, _)| *known == address)
    }

    fn at(&self, i2c: u8, bank: u8, page: u8, offset: u8, length: usize) -> Option<&[u8]> {
        self.blocks.iter().find_map(|(block, bytes)| {
            let same = (block.i2c, block.bank, block.page) == (i2c, bank, page);
            let start = usize::from(offset).checked_sub(usize::from(block.offset)).filter(|_| same)?;
            bytes.get(start..start.checked_add(length)?)
        })
    }

    fn bytes(&self, page: u8, offset: u8, length: usize) -> Option<&[u8]> {
        self.at(MODULE, 0, page, offset, length)
    }

    fn byte(&self, page: u8, offset: u8) -> Option<u8> {
        self.bytes(page, offset, 1)?.first().copied()
    }

    fn word(&self, page: u8, offset: u8) -> Option<u16> {
        self.bytes(page, offset, 2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    fn text(&self, page: u8, offset: u8, length: usize) -> Option<Arc<str>> {
        text(self.bytes(page, offset, length)?)
    }

    /// The form, from the first byte; `None` for nothing there, an idle bus, or a kind that is not known.
    pub fn form(&self) -> Option<ModuleForm> {
        Some(match self.byte(0, 0)? {
            0x03 => ModuleForm::Sfp,
            0x0c => ModuleForm::Qsfp,
            0x0d => ModuleForm::QsfpPlus,
            0x11 => ModuleForm::Qsfp28,
            0x18 => ModuleForm::QsfpDd,
            0x19 => ModuleForm::Osfp,
            0x1b => ModuleForm::Dsfp,
            0x1e => ModuleForm::Qsfp112,
            0x1f => ModuleForm::SfpDd,
            _ => return None,
        })
    }

    fn map(&self) -> Option<Map> {
        Some(match self.form()? {
            ModuleForm::Sfp => Map::Sff8472,
            ModuleForm::Qsfp | ModuleForm::QsfpPlus | ModuleForm::Qsfp28 => Map::Sff8636,
            _ => Map::Cmis,
        })
    }

    /// The blocks of a part, once [`KIND`] is there, and for CMIS's values the identity. At most four.
    pub fn blocks_of(&self, part: EepromPart) -> Vec<BlockAddress> {
        match self.map() {
            Some(Map::Sff8472) => sff8472::blocks(self, part),
            Some(Map::Sff8636) => sff8636::blocks(self, part),
            Some(Map::Cmis) => cmis::blocks(self, part),
            None => Vec::new(),
        }
    }

    /// What the module is; `None` if it cannot be read, or its checksum is wrong.
    pub fn identity(&self) -> Option<ModuleIdentity> {
        let form = self.form()?;
        match self.map()? {
            Map::Sff8472 => sff8472::identity(self, form),
            Map::Sff8636 => sff8636::identity(self, form),
            Map::Cmis => cmis::identity(self, form),
        }
    }

    /// Its limits; those that are missing or make no sense are absent.
    pub fn limits(&self) -> ModuleLimits {
        match self.map() {
            Some(Map::Sff8472) => sff8472::limits(self),
            Some(Map::Sff8636) => sff8636::limits(self),
            Some(Map::Cmis) => cmis::limits(self),
            None => ModuleLimits::default(),
        }
    }

    /// Whether the module stays in the state in which it was read.
    pub fn is_settled(&self) -> bool {
        self.values().and_then(|values| values.state).is_none_or(ModuleState::is_settled)
    }

    /// How it does; `None` if it was not read, or has nothing to say (a passive cable).
    pub fn values(&self) -> Option<ModuleValues> {
        match self.map()? {
            Map::Sff8472 => sff8472::values(self),
            Map::Sff8636 => sff8636::values(self),
            Map::Cmis => cmis::values(self),
        }
    }
}

/// How a module's memory is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Map {
    Sff8472,
    Sff8636,
    Cmis,
}

/// A text field: padded with blanks, NULs or 0xff, with junk behind them on some modules.
fn text(bytes: &[u8]) -> Option<Arc<str>> {
    let end = bytes.iter().position(|byte| matches!(byte, 0 | 0xff)).unwrap_or(bytes.len());
    let text: String = bytes
        .get(..end)?
        .iter()
        .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '?' })
        .collect();
    let text = text.trim();
    (!text.is_empty()).then(|| Arc::from(text))
}

/// Whether the low byte of a sum is what the module says.
fn sum_is(bytes: Option<&[u8]>, sum: Option<u8>) -> bool {
    bytes.zip(sum).is_some_and(|(bytes, sum)| bytes.iter().fold(0u8, |all, byte| all.wrapping_add(*byte)) == sum)
}

/// 1/256 degrees, signed.
fn degrees(raw: u16) -> f64 {
    f64::from(raw.cast_signed()) / 256.0
}

/// 100 microvolts.
fn volts(raw: u16) -> f64 {
    f64::from(raw) * 1e-4
}

/// Tenths of a microwatt.
fn watts(raw: u16) -> f64 {
    f64::from(raw) * 1e-7
}

/// Two microamperes.
fn amperes(raw: u16) -> f64 {
    f64::from(raw) * 2e-6
}

/// Four limits as modules list them: high alarm, low alarm, high warning, low warning.
fn limits_of(bytes: Option<&[u8]>, scale: impl Fn(u16) -> f64) -> Option<Limits> {
    let bytes: &[u8; 8] = bytes?.first_chunk()?;
    let [a, b, c, d, e, f, g, h] = *bytes;
    let [high_alarm, low_alarm, high_warning, low_warning] =
        [[a, b], [c, d], [e, f], [g, h]].map(|pair| scale(u16::from_be_bytes(pair)));
    Limits::new(low_alarm, low_warning, high_warning, high_alarm)
}

#[cfg(test)]
pub(crate) mod tests;
