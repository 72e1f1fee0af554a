//! Error counters of a function (`aer_dev_*`) and those a root port received from below (`aer_rootport_total_err_*`).

use std::path::Path;
use std::sync::Arc;

use crate::host::attribute::Attribute;
use crate::host::collector::ReadContext;
use crate::host::text;
use crate::model::pcie::{Aer, AerClass};
use crate::model::reading::Reading;

/// The files of one function, in the order of [`crate::model::pcie::AerSeverity::ALL`].
pub(super) struct AerFiles {
    classes: [(Attribute, AerClass); 3],
    root_totals: [Attribute; 3],
}

impl AerFiles {
    pub(super) fn new(directory: &Path) -> Self {
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

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Attribute> {
        self.classes.iter_mut().map(|(file, _)| file).chain(&mut self.root_totals)
    }

    pub(super) fn read(&mut self, cx: &mut ReadContext<'_>) -> Aer {
        Aer {
            classes: self.classes.each_mut().map(|(file, last)| {
                let class = file.read(cx, |bytes| parse(bytes, last)).value()?;
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
fn parse(bytes: &[u8], last: &AerClass) -> Reading<AerClass> {
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

    fn read(text: &str) -> Reading<(Vec<(String, u64)>, u64)> {
        parse(text.as_bytes(), &AerClass::default()).map(|class| {
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
        assert_eq!(parse(b"\xff 1", &AerClass::default()).reason(), Some(ReadError::Malformed));
    }

    #[test]
    fn names_are_shared_between_readings() {
        let Reading::Value(first) = parse(b"RxErr 1\nBadTLP 2", &AerClass::default()) else { panic!() };
        let Reading::Value(second) = parse(b"RxErr 3\nBadDLLP 4", &first) else { panic!() };
        assert!(Arc::ptr_eq(&first.errors[0].0, &second.errors[0].0));
        assert_eq!(&*second.errors[1].0, "BadDLLP");
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(&bytes, &AerClass::default());
        }

        #[test]
        fn counts_survive(errors in proptest::collection::vec(("[A-Za-z]{1,12}(\\[[0-9]{1,2}\\])?", any::<u64>()), 1..30), total in any::<u64>()) {
            let lines: Vec<String> = errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
            prop_assert_eq!(read(&format!("{}\nTOTAL_ERR_FATAL {total}\n", lines.join("\n"))), Reading::Value((errors, total)));
        }
    }
}
