//! The files of one PCI function's directory, and their texts: link speed and width as old and new kernels write them,
//! AER error counters.

use std::path::Path;
use std::sync::Arc;

use crate::host::collector::ReadContext;
use crate::host::file::{Attribute, AttributeFile, CachedAttribute};
use crate::host::text::{self, parse_decimal, parsed};
use crate::model::pcie::{Aer, AerClass, FunctionKind, LinkEnd, PciClass};
use crate::model::reading::{ReadError, Reading};
use crate::model::units::{Lanes, TransfersPerSecond};

/// Every file that is read of a function. Its identity and limits are read once, its link and error counters on every
/// pass.
pub(super) struct FunctionFiles {
    class: CachedAttribute<PciClass>,
    vendor: CachedAttribute<u16>,
    device: CachedAttribute<u16>,
    numa_node: CachedAttribute<u32>,
    total_vfs: CachedAttribute<u16>,
    ari_enabled: CachedAttribute<bool>,
    max_speed: CachedAttribute<TransfersPerSecond>,
    max_width: CachedAttribute<LinkWidth>,
    speed: Attribute,
    width: Attribute,
    aer: AerFiles,
}

impl FunctionFiles {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            class: CachedAttribute::new(directory, "class"),
            vendor: CachedAttribute::new(directory, "vendor"),
            device: CachedAttribute::new(directory, "device"),
            numa_node: CachedAttribute::new(directory, "numa_node"),
            total_vfs: CachedAttribute::new(directory, "sriov_totalvfs"),
            ari_enabled: CachedAttribute::new(directory, "ari_enabled"),
            max_speed: CachedAttribute::new(directory, "max_link_speed"),
            max_width: CachedAttribute::new(directory, "max_link_width"),
            speed: Attribute::new(directory, "current_link_speed"),
            width: Attribute::new(directory, "current_link_width"),
            aer: AerFiles::new(directory),
        }
    }

    /// Takes the current listing of the directory.
    pub(super) fn relist(&mut self, names: &[String]) {
        self.all().for_each(|file| file.relist(names));
    }

    /// How many are quarantined.
    pub(super) fn quarantined(&mut self) -> usize {
        self.all().filter(|file| file.is_quarantined()).count()
    }

    fn all(&mut self) -> impl Iterator<Item = &mut dyn AttributeFile> {
        let own: [&mut dyn AttributeFile; 10] = [
            &mut self.class,
            &mut self.vendor,
            &mut self.device,
            &mut self.numa_node,
            &mut self.total_vfs,
            &mut self.ari_enabled,
            &mut self.max_speed,
            &mut self.max_width,
            &mut self.speed,
            &mut self.width,
        ];
        own.into_iter().chain(self.aer.all().map(|file| -> &mut dyn AttributeFile { file }))
    }

    pub(super) fn class(&mut self, cx: &mut ReadContext<'_>) -> Option<PciClass> {
        self.class.read(cx, |bytes| hex(bytes).map(PciClass)).value()
    }

    /// Vendor and device identifiers.
    pub(super) fn ids(&mut self, cx: &mut ReadContext<'_>) -> Option<(u16, u16)> {
        let vendor = self.vendor.read(cx, hex).value();
        let device = self.device.read(cx, hex).value();
        vendor.zip(device)
    }

    pub(super) fn numa_node(&mut self, cx: &mut ReadContext<'_>) -> Option<u32> {
        let node = |bytes: &[u8]| if bytes == b"-1" { Reading::Absent } else { decimal(bytes) };
        self.numa_node.read(cx, node).value()
    }

    pub(super) fn vfs_limit(&mut self, cx: &mut ReadContext<'_>) -> Option<u32> {
        self.total_vfs.read(cx, decimal).value().map(u32::from)
    }

    /// Drops the limit, so that it is read again.
    pub(super) fn forget_vfs_limit(&mut self) {
        self.total_vfs.forget();
    }

    /// Whether functions on this bus are numbered beyond the eight of a device (ARI).
    pub(super) fn numbered_through(&mut self, cx: &mut ReadContext<'_>) -> bool {
        self.ari_enabled.read(cx, |bytes| text::counter(bytes).map(|flag| flag == 1)).value() == Some(true)
    }

    pub(super) fn link(&mut self, cx: &mut ReadContext<'_>) -> LinkEnd {
        let width = self.width.read(cx, parse_width);
        LinkEnd {
            speed: self.speed.read(cx, parse_speed),
            width: lanes(width),
            max_speed: self.max_speed.read(cx, parse_speed),
            max_width: lanes(self.max_width.read(cx, parse_width)),
            off_bus: width == Reading::Value(LinkWidth::AllOnes),
        }
    }

    /// The error counters. Those of VFs are skipped: they have no link of their own and may be hundreds.
    pub(super) fn aer(&mut self, cx: &mut ReadContext<'_>, kind: FunctionKind) -> Aer {
        if matches!(kind, FunctionKind::Virtual { .. }) { Aer::default() } else { self.aer.read(cx) }
    }
}

fn lanes(width: Reading<LinkWidth>) -> Reading<Lanes> {
    match width.map(LinkWidth::lanes) {
        Reading::Value(lanes) => lanes.into(),
        Reading::Absent => Reading::Absent,
        Reading::Unreadable(reason) => Reading::Unreadable(reason),
    }
}

/// A hexadecimal number that fits.
fn hex<T: TryFrom<u64>>(bytes: &[u8]) -> Reading<T> {
    fitting(text::parse_hex(bytes))
}

/// A decimal number that fits.
fn decimal<T: TryFrom<u64>>(bytes: &[u8]) -> Reading<T> {
    fitting(text::parse_decimal(bytes))
}

fn fitting<T: TryFrom<u64>>(number: Option<u64>) -> Reading<T> {
    number.and_then(|number| T::try_from(number).ok()).map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value)
}

/// Content of a width file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkWidth {
    /// A number of lanes.
    Lanes(Lanes),
    /// 63: the register reads all ones, as every register of a function that fell off the bus does.
    AllOnes,
}

impl LinkWidth {
    fn lanes(self) -> Option<Lanes> {
        match self {
            Self::Lanes(lanes) => Some(lanes),
            Self::AllOnes => None,
        }
    }
}

/// `8.0 GT/s PCIe`; up to kernel 5.6 `8 GT/s`. Generations to come are taken at their number; `Unknown` and
/// `Unknown speed` are absent, as is a link that makes no transfers.
pub(in crate::host) fn parse_speed(bytes: &[u8]) -> Reading<TransfersPerSecond> {
    if bytes.starts_with(b"Unknown") {
        return Reading::Absent;
    }
    match parsed(bytes, transfers) {
        Reading::Value(TransfersPerSecond(0)) => Reading::Absent,
        reading => reading,
    }
}

fn transfers(text: &str) -> Option<TransfersPerSecond> {
    let number = text.strip_suffix(" PCIe").unwrap_or(text).strip_suffix(" GT/s")?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let locations = u32::try_from(fraction.len()).ok()?;
    let scale = 10u64.pow(9u32.checked_sub(locations)?);
    let whole = parse_decimal(whole.as_bytes())?.checked_mul(1_000_000_000)?;
    Some(TransfersPerSecond(whole.checked_add(parse_decimal(fraction.as_bytes())? * scale)?))
}

/// A number of lanes, 1 to 32. 0 (link down, or a VF) and 255 (no such register) are absent.
fn parse_width(bytes: &[u8]) -> Reading<LinkWidth> {
    match parse_decimal(bytes) {
        Some(0 | 255) => Reading::Absent,
        Some(63) => Reading::Value(LinkWidth::AllOnes),
        Some(lanes @ 1..=32) => u8::try_from(lanes).ok().map(|lanes| LinkWidth::Lanes(Lanes(lanes))).into(),
        _ => Reading::Unreadable(ReadError::Malformed),
    }
}

/// A width as a number of lanes; absent where every register reads all ones.
pub(in crate::host) fn parse_lanes(bytes: &[u8]) -> Reading<Lanes> {
    match parse_width(bytes) {
        Reading::Value(width) => width.lanes().into(),
        Reading::Absent => Reading::Absent,
        Reading::Unreadable(reason) => Reading::Unreadable(reason),
    }
}

/// The files of one function, in the order of [`crate::model::pcie::AerSeverity::ALL`].
struct AerFiles {
    classes: [(Attribute, AerClass); 3],
    root_totals: [Attribute; 3],
}

impl AerFiles {
    fn new(directory: &Path) -> Self {
        let class = |name| (Attribute::new(directory, name), AerClass::default());
        let total = |name| Attribute::new(directory, name);
        Self {
            classes: ["aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"].map(class),
            root_totals: [
                "aer_rootport_total_err_cor",
                "aer_rootport_total_err_nonfatal",
                "aer_rootport_total_err_fatal",
            ]
            .map(total),
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Attribute> {
        self.classes.iter_mut().map(|(file, _)| file).chain(&mut self.root_totals)
    }

    fn read(&mut self, cx: &mut ReadContext<'_>) -> Aer {
        Aer {
            classes: self.classes.each_mut().map(|(file, last)| {
                let class = file.read(cx, |bytes| parse_aer(bytes, last)).value()?;
                last.clone_from(&class);
                Some(class)
            }),
            root_totals: self.root_totals.each_mut().map(|file| file.read(cx, text::counter).value()),
        }
    }
}

/// Lines `Name N`, then `TOTAL_ERR_… N`, which need not be the sum. The set of names varies with the kernel, and an
/// unnamed bit has brackets in its name, so the number is what follows the last space. Names are shared with the
/// last reading, where they were the same.
fn parse_aer(bytes: &[u8], last: &AerClass) -> Reading<AerClass> {
    if bytes.is_empty() { Reading::Absent } else { text::parsed(bytes, |text| lines(text, last)) }
}

fn lines(text: &str, last: &AerClass) -> Option<AerClass> {
    let mut errors: Vec<(Arc<str>, u64)> = Vec::with_capacity(last.errors.len());
    let mut total = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, count) = line.rsplit_once(' ')?;
        let (name, count) = (name.trim_end(), text::parse_decimal(count.as_bytes())?);
        if name.starts_with("TOTAL_ERR") {
            total = Some(count);
            continue;
        }
        let known = last.errors.get(errors.len()).filter(|(known, _)| **known == *name);
        errors.push((known.map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known)), count));
    }
    let sum = || errors.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    Some(AerClass { total: total.unwrap_or_else(sum), errors })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::reading::ReadError;

    const MALFORMED: Option<ReadError> = Some(ReadError::Malformed);

    #[test]
    fn speeds_of_old_and_new_kernels() {
        let table = [
            ("2.5 GT/s", 2_500),
            ("2.5 GT/s PCIe", 2_500),
            ("5 GT/s", 5_000),
            ("5.0 GT/s PCIe", 5_000),
            ("8 GT/s", 8_000),
            ("8.0 GT/s PCIe", 8_000),
            ("16 GT/s", 16_000),
            ("16.0 GT/s PCIe", 16_000),
            ("32.0 GT/s PCIe", 32_000),
            ("64.0 GT/s PCIe", 64_000),
            ("128.0 GT/s PCIe", 128_000),
        ];
        for (text, mega) in table {
            assert_eq!(parse_speed(text.as_bytes()), Reading::Value(TransfersPerSecond::from_mega(mega)), "{text}");
        }
        assert_eq!(parse_speed(b"0.000000001 GT/s"), Reading::Value(TransfersPerSecond(1)));
    }

    #[test]
    fn unknown_and_malformed_speeds() {
        for text in ["Unknown", "Unknown speed", "0 GT/s", "0.0 GT/s PCIe"] {
            assert_eq!(parse_speed(text.as_bytes()), Reading::Absent, "{text}");
        }
        let wrong = ["", "8", "8 GT/s PCI", "8GT/s", "GT/s", " GT/s", ".5 GT/s", "8. GT/s", "-8 GT/s", "8.0.0 GT/s"];
        for text in wrong.into_iter().chain(["66 MHz PCI-X", "99999999999999 GT/s", "1.0000000001 GT/s"]) {
            assert_eq!(parse_speed(text.as_bytes()).reason(), MALFORMED, "{text}");
        }
    }

    #[test]
    fn widths() {
        for lanes in [1, 2, 4, 8, 12, 16, 32] {
            assert_eq!(parse_width(lanes.to_string().as_bytes()), Reading::Value(LinkWidth::Lanes(Lanes(lanes))));
        }
        assert_eq!(parse_width(b"0"), Reading::Absent);
        assert_eq!(parse_width(b"255"), Reading::Absent);
        assert_eq!(parse_width(b"63"), Reading::Value(LinkWidth::AllOnes));
        for text in ["", "x8", "33", "64", "-1", "256", "8 "] {
            assert_eq!(parse_width(text.as_bytes()).reason(), MALFORMED, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32), text in any::<String>()) {
            let _ = (parse_speed(&bytes), parse_width(&bytes), parse_speed(text.as_bytes()));
        }

        #[test]
        fn a_speed_is_its_number(giga in 1u64..1000, tenths in 0u64..10, new in any::<bool>()) {
            let text = format!("{giga}.{tenths} GT/s{}", if new { " PCIe" } else { "" });
            let expected = TransfersPerSecond::from_mega(giga * 1000 + tenths * 100);
            prop_assert_eq!(parse_speed(text.as_bytes()), Reading::Value(expected));
        }
    }

    fn read(text: &str) -> Reading<(Vec<(String, u64)>, u64)> {
        parse_aer(text.as_bytes(), &AerClass::default()).map(|class| {
            (class.errors.into_iter().map(|(name, count)| (name.to_string(), count)).collect(), class.total)
        })
    }

    #[test]
    fn the_total_is_no_error_and_need_not_be_the_sum() {
        let errors = vec![("RxErr".to_owned(), 2), ("BadTLP".to_owned(), 1)];
        assert_eq!(read("RxErr 2\nBadTLP 1\nTOTAL_ERR_COR 7\n"), Reading::Value((errors.clone(), 7)));
        assert_eq!(read("RxErr 2\nBadTLP 1\nTOTAL_ERR_COR  7"), Reading::Value((errors.clone(), 7)));
        assert_eq!(read("RxErr 2\nBadTLP 1"), Reading::Value((errors, 3)));
    }

    #[test]
    fn bits_without_a_name_are_named_by_their_number() {
        let errors = vec![("dev_cor_errs_bit[3]".to_owned(), 7), ("Some New Error".to_owned(), 1)];
        assert_eq!(read("dev_cor_errs_bit[3] 7\nSome New Error 1\nTOTAL_ERR_COR 8"), Reading::Value((errors, 8)));
    }

    #[test]
    fn what_is_no_such_file() {
        for text in ["RxErr", "RxErr two", "RxErr 2\n7", "RxErr -1", "RxErr 18446744073709551616"] {
            assert_eq!(read(text).reason(), Some(ReadError::Malformed), "{text}");
        }
        assert_eq!(read(""), Reading::Absent);
        assert_eq!(parse_aer(b"\xff 1", &AerClass::default()).reason(), Some(ReadError::Malformed));
    }

    #[test]
    fn names_are_shared_between_readings() {
        let Reading::Value(first) = parse_aer(b"RxErr 1\nBadTLP 2", &AerClass::default()) else { panic!() };
        let Reading::Value(second) = parse_aer(b"RxErr 3\nBadDLLP 4", &first) else { panic!() };
        assert!(Arc::ptr_eq(&first.errors[0].0, &second.errors[0].0));
        assert_eq!(&*second.errors[1].0, "BadDLLP");
    }

    proptest! {
        #[test]
        fn any_aer_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse_aer(&bytes, &AerClass::default());
        }

        #[test]
        fn counts_survive(errors in proptest::collection::vec(("[A-Za-z]{1,12}(\\[[0-9]{1,2}\\])?", any::<u64>()), 1..30), total in any::<u64>()) {
            let lines: Vec<String> = errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
            prop_assert_eq!(read(&format!("{}\nTOTAL_ERR_FATAL {total}\n", lines.join("\n"))), Reading::Value((errors, total)));
        }
    }
}
