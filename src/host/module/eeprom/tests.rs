//! Images of modules written by hand from the tables of the specifications.

use proptest::prelude::*;

use super::*;
use crate::model::module::{CableTechnology, ModuleForm, ModuleState};
use crate::model::units::Celsius;

/// A module's whole memory, from which blocks are read as the kernel does.
pub(crate) struct Image {
    /// 256 bytes by address, bank and page; the lower half of page 0 is the lower memory.
    pages: Vec<((u8, u8, u8), Vec<u8>)>,
}

impl Image {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new() }
    }

    pub(crate) fn put(&mut self, i2c: u8, bank: u8, page: u8, offset: usize, bytes: &[u8]) -> &mut Self {
        let key = (i2c, bank, page);
        if !self.pages.iter().any(|(known, _)| *known == key) {
            self.pages.push((key, vec![0; 256]));
        }
        let page = self.pages.iter_mut().find(|(known, _)| *known == key).unwrap();
        page.1[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn text(&mut self, page: u8, offset: usize, length: usize, text: &str) -> &mut Self {
        self.put(MODULE, 0, page, offset, format!("{text:length$}").as_bytes())
    }

    /// Sets a checksum over a range of page 0.
    fn sum(&mut self, range: std::ops::Range<usize>, at: usize) -> &mut Self {
        let page = self.pages.iter().find(|(key, _)| *key == (MODULE, 0, 0)).unwrap();
        let sum = page.1[range].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        self.put(MODULE, 0, 0, at, &[sum])
    }

    pub(crate) fn read(&self, block: BlockAddress) -> Option<Vec<u8>> {
        let page = if block.offset < 128 { 0 } else { block.page };
        let (_, bytes) = self.pages.iter().find(|(key, _)| *key == (block.i2c, block.bank, page))?;
        let start = usize::from(block.offset);
        Some(bytes[start..start + usize::from(block.length)].to_vec())
    }

    /// Reads part after part, as the reader does, and what was read.
    pub(crate) fn eeprom(&self) -> (Eeprom, Vec<BlockAddress>) {
        let (mut eeprom, mut blocks) = (Eeprom::default(), vec![KIND]);
        eeprom.set(KIND, self.read(KIND).unwrap());
        for part in EepromPart::ALL {
            for block in eeprom.blocks_of(part) {
                blocks.push(block);
                if let Some(bytes) = self.read(block) {
                    eeprom.set(block, bytes);
                }
            }
        }
        (eeprom, blocks)
    }
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() <= b.abs() * 1e-6 + 1e-12)
}

/// Limits of a laser module: 75 and -5 degrees, warnings at 70 and 0; the others likewise, in raw units.
const TEMPERATURES: [u16; 4] = [75 * 256, 0xfb00, 70 * 256, 0];
const VOLTAGES: [u16; 4] = [36_300, 29_700, 34_650, 31_350];
const POWERS: [u16; 4] = [20_000, 1_000, 15_000, 1_500];
const BIASES: [u16; 4] = [50_000, 5_000, 45_000, 6_000];

/// An SFP28 SR, its values calibrated by the module itself.
pub(crate) fn sfp() -> Image {
    let mut image = Image::new();
    image
        .put(MODULE, 0, 0, 0, &[0x03, 0x04, 0x07])
        .put(MODULE, 0, 0, 16, &[0, 0, 10, 7])
        .text(0, 20, 16, "ACME OPTICS")
        .text(0, 40, 16, "AO-25SR")
        .text(0, 56, 4, "A2")
        .sum(0..63, 63)
        .text(0, 68, 16, "SN0001\0\0\x7f\x7fjunk")
        .put(MODULE, 0, 0, 92, &[0x68]);
    for (offset, limits) in [(0, TEMPERATURES), (8, VOLTAGES), (16, BIASES), (24, POWERS), (32, POWERS)] {
        image.put(DIAGNOSTICS, 0, 0, offset, &words(&limits));
    }
    image.put(DIAGNOSTICS, 0, 0, 96, &words(&[0x2d80, 33_000, 3_500, 6_000, 4_500]));
    image
}

/// A QSFP28 LR4 with its third lane dark.
pub(crate) fn qsfp28() -> Image {
    let mut image = Image::new();
    image
        .put(MODULE, 0, 0, 0, &[0x11, 0x07, 0])
        .put(MODULE, 0, 0, 22, &words(&[0x3040]))
        .put(MODULE, 0, 0, 26, &words(&[32_900]))
        .put(MODULE, 0, 0, 34, &words(&[5_000, 4_900, 0, 5_100]))
        .put(MODULE, 0, 0, 42, &words(&[20_000, 20_100, 20_200, 20_300]))
        .put(MODULE, 0, 0, 50, &words(&[9_000, 9_100, 9_200, 9_300]))
        .put(MODULE, 0, 0, 128, &[0x11])
        .put(MODULE, 0, 0, 142, &[10])
        .put(MODULE, 0, 0, 147, &[0x40])
        .text(0, 148, 16, "ACME OPTICS")
        .text(0, 168, 16, "AO-100LR4")
        .text(0, 184, 2, "1A")
        .sum(128..191, 191)
        .text(0, 196, 16, "SN0002")
        .put(MODULE, 0, 0, 220, &[0x0c]);
    for (offset, limits) in [(128, TEMPERATURES), (144, VOLTAGES), (176, POWERS), (184, BIASES), (192, POWERS)] {
        image.put(MODULE, 0, 3, offset, &words(&limits));
    }
    image
}

/// An OSFP module with CMIS: media lanes of the first application, its instances, banks.
pub(crate) fn osfp(media_lanes: u8, assignments: u8, banks: u8) -> Image {
    let mut image = Image::new();
    image
        .put(MODULE, 0, 0, 0, &[0x19, 0x50, 0, 0x06])
        .put(MODULE, 0, 0, 14, &words(&[0x3280, 32_800]))
        .put(MODULE, 0, 0, 39, &[3, 1])
        .put(MODULE, 0, 0, 85, &[2, 0x51, 0x1c, 0x80 | media_lanes, assignments])
        .put(MODULE, 0, 0, 128, &[0x19])
        .text(0, 129, 16, "ACME OPTICS")
        .text(0, 148, 16, "AO-400DR4")
        .text(0, 164, 2, "B0")
        .text(0, 166, 16, "SN0003")
        .put(MODULE, 0, 0, 212, &[0x06])
        .put(MODULE, 0, 1, 132, &[0x05])
        .put(MODULE, 0, 1, 142, &[banks])
        .put(MODULE, 0, 1, 160, &[0x0f]);
    for (offset, limits) in [(128, TEMPERATURES), (136, VOLTAGES), (176, POWERS), (184, BIASES), (192, POWERS)] {
        image.put(MODULE, 0, 2, offset, &words(&limits));
    }
    for bank in 0..1u8 << banks {
        let lanes = |first: u16| (0..8).map(|lane| first + 100 * u16::from(bank) + lane).collect::<Vec<_>>();
        image
            .put(MODULE, bank, 0x11, 154, &words(&lanes(12_000)))
            .put(MODULE, bank, 0x11, 170, &words(&lanes(15_000)))
            .put(MODULE, bank, 0x11, 186, &words(&lanes(7_000)));
    }
    image
}

#[test]
fn an_sfp_calibrated_by_itself() {
    let (eeprom, blocks) = sfp().eeprom();
    let identity = eeprom.identity().unwrap();
    assert_eq!((identity.form, identity.technology), (ModuleForm::Sfp, CableTechnology::Optical));
    assert_eq!(identity.vendor.as_deref(), Some("ACME OPTICS"));
    assert_eq!((identity.part_number.as_deref(), identity.revision.as_deref()), (Some("AO-25SR"), Some("A2")));
    assert_eq!((identity.serial_number.as_deref(), identity.length), (Some("SN0001"), Some(100.0)));
    let values = eeprom.values().unwrap();
    assert_eq!(values.temperature, Some(Celsius(45.5)));
    assert!(near(values.voltage, 3.3));
    let [lane] = values.lanes[..] else { panic!() };
    assert!(near(lane.bias, 7e-3) && near(lane.transmit, 0.6e-3) && near(lane.receive, 0.45e-3), "{lane:?}");
    let limits = eeprom.limits();
    let temperature = limits.temperature.unwrap();
    assert_eq!((temperature.low_alarm, temperature.high_alarm), (-5.0, 75.0));
    assert!(near(limits.receive.map(|limits| limits.low_warning), 0.15e-3));
    assert_eq!(blocks.len(), 4);
}

#[test]
fn an_sfp_calibrated_from_outside() {
    let mut image = sfp();
    image.put(MODULE, 0, 0, 92, &[0x58]);
    // Received power: 2x^2 + 3x + 5. Slopes of 1.5, offsets of -100.
    let polynomial = [0f32, 0.0, 2.0, 3.0, 5.0];
    let polynomial: Vec<u8> = polynomial.into_iter().flat_map(f32::to_be_bytes).collect();
    image.put(DIAGNOSTICS, 0, 0, 56, &polynomial);
    image.put(DIAGNOSTICS, 0, 0, 76, &words(&[0x180, 0xff9c, 0x180, 0xff9c, 0x180, 0xff9c, 0x180, 0xff9c]));
    image.put(DIAGNOSTICS, 0, 0, 104, &words(&[10]));
    let (eeprom, _) = image.eeprom();
    let values = eeprom.values().unwrap();
    let [lane] = values.lanes[..] else { panic!() };
    assert!(near(lane.receive, (2.0 * 100.0 + 3.0 * 10.0 + 5.0) * 1e-7), "{lane:?}");
    assert!(near(lane.bias, (3_500.0 * 1.5 - 100.0) * 2e-6), "{lane:?}");
    assert!(near(values.temperature.map(|value| value.0), (45.5 * 256.0 * 1.5 - 100.0) / 256.0));
    assert!(near(values.voltage, (33_000.0 * 1.5 - 100.0) * 1e-4));
    // A polynomial of nonsense is no power.
    image.put(DIAGNOSTICS, 0, 0, 56, &[0xff; 20]);
    assert_eq!(image.eeprom().0.values().unwrap().lanes[0].receive, None);
}

#[test]
fn a_dark_lane_is_no_light_and_not_left_out() {
    let (eeprom, _) = qsfp28().eeprom();
    let identity = eeprom.identity().unwrap();
    assert_eq!((identity.form, identity.length), (ModuleForm::Qsfp28, Some(10_000.0)));
    let values = eeprom.values().unwrap();
    assert_eq!((values.temperature.unwrap().0, values.lanes.len()), (48.25, 4));
    assert_eq!(values.lanes[2].receive, Some(0.0));
    assert!(near(values.lanes[3].transmit, 0.93e-3) && near(values.lanes[0].bias, 40e-3));
    assert!(near(eeprom.limits().transmit.map(|limits| limits.high_alarm), 2e-3));
    // One that does not measure what it sends.
    let mut image = qsfp28();
    image.put(MODULE, 0, 0, 220, &[0x08]);
    assert_eq!(image.eeprom().0.values().unwrap().lanes[0].transmit, None);
}

#[test]
fn a_module_with_pages_in_one_and_two_banks() {
    let (eeprom, blocks) = osfp(4, 0x01, 0).eeprom();
    let identity = eeprom.identity().unwrap();
    assert_eq!((identity.form, identity.technology), (ModuleForm::Osfp, CableTechnology::Optical));
    assert_eq!((identity.firmware_version.as_deref(), identity.length), (Some("3.1"), Some(500.0)));
    let values = eeprom.values().unwrap();
    assert_eq!((values.state, values.lanes.len()), (Some(ModuleState::Ready), 4), "a DR4 has four lanes of eight");
    assert_eq!(values.temperature, Some(Celsius(50.5)));
    assert!(near(values.lanes[3].transmit, 1.2003e-3) && near(values.lanes[3].receive, 0.7003e-3));
    assert!(near(values.lanes[0].bias, 60e-3), "the multiplier is 2");
    assert!(near(eeprom.limits().bias.map(|limits| limits.high_alarm), 0.2));
    for part in EepromPart::ALL {
        assert!(eeprom.blocks_of(part).len() <= 4, "{part:?}");
    }
    assert!(blocks.iter().all(|block| !reads_flags(*block)), "{blocks:?}");
    // Two instances of four lanes; then sixteen lanes in two banks.
    assert_eq!(osfp(4, 0x11, 0).eeprom().0.values().unwrap().lanes.len(), 8);
    let values = osfp(8, 0x03, 1).eeprom().0.values().unwrap();
    assert_eq!(values.lanes.len(), 16);
    assert!(near(values.lanes[9].receive, 0.7101e-3), "{:?}", values.lanes[9]);
}

/// Whether a block has flags of CMIS that reading clears: lower 8 to 13, page 11h 134 to 153.
fn reads_flags(block: BlockAddress) -> bool {
    let (first, last) = (block.offset, block.offset + (block.length - 1));
    let overlaps = |from: u8, to: u8| first <= to && last >= from;
    (block.offset < 128 && overlaps(8, 13)) || (block.page == 0x11 && overlaps(134, 153))
}

#[test]
fn flat_memories_of_passive_cables() {
    // A QSFP28 copper cable of 3 m.
    let mut image = qsfp28();
    image.put(MODULE, 0, 0, 2, &[0x04]).put(MODULE, 0, 0, 142, &[0, 0, 0, 0, 3, 0xa0]).sum(128..191, 191);
    let (eeprom, blocks) = image.eeprom();
    let identity = eeprom.identity().unwrap();
    assert_eq!((identity.technology, identity.length), (CableTechnology::PassiveCopper, Some(3.0)));
    assert_eq!((blocks.len(), eeprom.values(), eeprom.limits().temperature), (2, None, None));
    // An OSFP copper cable of 1.5 m.
    let mut image = osfp(8, 1, 0);
    image.put(MODULE, 0, 0, 2, &[0x80]).put(MODULE, 0, 0, 202, &[0x0f]).put(MODULE, 0, 0, 212, &[0x0b]);
    let (eeprom, blocks) = image.eeprom();
    let identity = eeprom.identity().unwrap();
    assert_eq!((identity.technology, identity.length), (CableTechnology::PassiveCopper, Some(1.5)));
    assert_eq!((blocks.len(), eeprom.values()), (3, None));
    // An SFP28 copper cable of 2 m.
    let mut image = sfp();
    image.put(MODULE, 0, 0, 8, &[0x04]).put(MODULE, 0, 0, 16, &[0, 0, 2, 0]).sum(0..63, 63).put(MODULE, 0, 0, 92, &[0]);
    let (eeprom, blocks) = image.eeprom();
    let identity = eeprom.identity().unwrap();
    assert_eq!((identity.technology, identity.length), (CableTechnology::PassiveCopper, Some(2.0)));
    assert_eq!((blocks.len(), eeprom.values()), (2, None));
}

#[test]
fn an_active_cable_with_fibre() {
    let mut image = osfp(8, 1, 0);
    image.put(MODULE, 0, 0, 202, &[0x43]).put(MODULE, 0, 0, 212, &[0x00]);
    let identity = image.eeprom().0.identity().unwrap();
    assert_eq!((identity.technology, identity.length), (CableTechnology::Optical, Some(3.0)));
}

#[test]
fn what_cannot_be_read_or_believed_is_absent() {
    for nothing in [0x00, 0xff, 0x42] {
        let mut image = Image::new();
        image.put(MODULE, 0, 0, 0, &[nothing; 128]);
        let (eeprom, blocks) = image.eeprom();
        assert_eq!((eeprom.identity(), eeprom.values(), blocks.len()), (None, None, 1), "{nothing:#x}");
    }
    for (mut image, at) in [(sfp(), 63), (qsfp28(), 191)] {
        image.put(MODULE, 0, 0, at, &[0x5a]);
        assert_eq!(image.eeprom().0.identity(), None, "a wrong sum is a torn read");
    }
    // Limits that are reversed, or never written.
    let mut image = qsfp28();
    image.put(MODULE, 0, 3, 128, &words(&[0, 75 * 256, 0, 70 * 256])).put(MODULE, 0, 3, 176, &[0xff; 8]);
    let limits = image.eeprom().0.limits();
    assert_eq!((limits.temperature, limits.receive), (None, None));
    assert!(limits.voltage.is_some());
    let mut image = qsfp28();
    image.put(MODULE, 0, 0, 148, &[0xff; 16]).put(
        MODULE,
        0,
        0,
        168,
        b"AO\x01100\x00\x7f\x00\x00\x00\x00\x00\x00\x00\x00",
    );
    image.sum(128..191, 191);
    let identity = image.eeprom().0.identity().unwrap();
    assert_eq!((identity.vendor.as_deref(), identity.part_number.as_deref()), (None, Some("AO?100")));
}

proptest! {
    #[test]
    fn any_memory_parses_without_a_panic(
        kind in any::<[u8; 3]>(), bytes in proptest::collection::vec(any::<u8>(), 0..160), cut in 0usize..128,
    ) {
        for id in [0x03, 0x0d, 0x11, 0x18, 0x19, 0x1b, 0x1e, 0x1f, kind[0]] {
            let mut eeprom = Eeprom::default();
            eeprom.set(KIND, vec![id, kind[1], kind[2]]);
            for part in EepromPart::ALL {
                let blocks = eeprom.blocks_of(part);
                prop_assert!(blocks.len() <= 4);
                for block in blocks {
                    let content: Vec<u8> = bytes.iter().copied().cycle().take(cut.min(usize::from(block.length))).collect();
                    eeprom.set(block, if bytes.is_empty() { Vec::new() } else { content });
                }
            }
            let (identity, limits, values) = (eeprom.identity(), eeprom.limits(), eeprom.values());
            prop_assert!(identity.is_none_or(|identity| identity.vendor.is_none_or(|vendor| vendor.len() <= 16)));
            prop_assert!(limits.temperature.is_none_or(|limits| limits.low_alarm < limits.high_alarm));
            prop_assert!(values.is_none_or(|values| values.lanes.len() <= 16));
        }
    }

    #[test]
    fn any_blocks_parse_without_a_panic(
        blocks in proptest::collection::vec((any::<[u8; 5]>(), proptest::collection::vec(any::<u8>(), 0..130)), 0..6),
    ) {
        let mut eeprom = Eeprom::default();
        for ([i2c, bank, page, offset, length], bytes) in blocks {
            let i2c = if i2c & 1 == 0 { MODULE } else { DIAGNOSTICS };
            eeprom.set(BlockAddress { i2c, bank: bank & 1, page: page & 3, offset, length }, bytes);
        }
        let _ = (eeprom.identity(), eeprom.limits(), eeprom.values());
    }
}
