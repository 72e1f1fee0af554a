//! Every rule on a line in the exact form of its driver.

use super::super::reader::Reader;
use super::super::record::dmesg;
use super::super::speaker::{Names, Owner};
use super::*;
use crate::model::ids::PciAddress;

/// The function's driver whose name the kernel prints for what this driver says.
fn parent(driver: MessageSource) -> MessageSource {
    match driver {
        // The interfaces are of the second module here, and the function is the first one's.
        MessageSource::Qed | MessageSource::Qede | MessageSource::Qedr => MessageSource::Qede,
        MessageSource::Pci => MessageSource::Pcieport,
        // Each has functions of its own.
        MessageSource::Ice | MessageSource::I40e | MessageSource::Iavf => driver,
        _ => driver.family().first().copied().unwrap_or(driver),
    }
}

/// A host whose RDMA device and function are of one driver.
struct Host(MessageSource);

impl Names for Host {
    fn owner(&self, name: &str) -> Option<Owner> {
        let is_rdma = name.starts_with("roce");
        let driver = Some(self.0);
        (is_rdma || name.starts_with("enp")).then(|| Owner { address: "0000:41:00.2".parse().ok(), driver, is_rdma })
    }

    fn driver(&self, _: PciAddress) -> Option<MessageSource> {
        Some(self.0)
    }

    fn is_of_rdma(&self, _: PciAddress) -> bool {
        true
    }

    fn in_some_domain(&self, _: &str) -> Option<PciAddress> {
        None
    }
}

/// The line that the kernel prints.
fn printed(driver: MessageSource, line: &Line) -> String {
    let parent = parent(driver);
    let function = format!("{} 0000:41:00.2", parent.as_str());
    let mut words = pattern::printed(line.format);
    if !line.word.is_empty() && !words.contains(line.word) {
        let at = words.rfind("some words").expect("a word where the rule wants one");
        words.replace_range(at.., &words[at..].replace("some words", line.word));
    }
    let words = words.replace("(some words): transmit", &format!("({}): transmit", parent.as_str()));
    match line.caller {
        Caller::Function => format!("{function}: {words}"),
        Caller::TracedFunction => format!("{function}: mlx5_function:1234:(pid 567): {words}"),
        Caller::RdmaDevice => format!("{function} rocep65s0f0: {words}"),
        Caller::RdmaClass => format!("infiniband rocep65s0f0: {words}"),
        Caller::TracedRdmaClass => format!("infiniband rocep65s0f0: mlx5_function:1234:(pid 567): {words}"),
        Caller::FunctionOfDevice => format!("{function}: rocep65s0f0: {words}"),
        Caller::Interface => format!("{function} enp65s0f0: {words}"),
        Caller::Module(prefix) => format!("{prefix}{words}"),
        Caller::Bracketed => format!("[{}_function:1234(enp65s0f0-0)]{words}", driver.as_str()),
    }
}

#[test]
fn every_rule_knows_the_line_of_its_driver() {
    let (mut lines, mut wrong) = (0, Vec::new());
    for source in sources() {
        for line in source.lines {
            for driver in source.drivers {
                lines += 1;
                let text = printed(*driver, line);
                let host = Host(*driver);
                let found = Reader::default().read(&dmesg(&format!("[   12.345678] {text}")), &host);
                let named = text.contains("0000:41:00.2").then(|| "0000:41:00.2".parse().unwrap());
                let is_right = found.as_ref().is_some_and(|found| {
                    (found.driver, found.kind) == (*driver, line.kind) && (named.is_none() || found.address == named)
                });
                if !is_right {
                    wrong.push(format!("{}: {text}: {found:?}", source.file));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {lines} lines:\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines > 400, "{lines}");
}

#[test]
fn every_driver_says_something_and_every_kind_can_be_had() {
    let pairs = pairs();
    for kind in MessageKind::ALL {
        assert!(pairs.iter().any(|(_, other)| other == kind), "{}", kind.as_str());
    }
    for driver in MessageSource::ALL {
        assert!(pairs.iter().any(|(other, _)| other == driver), "{}", driver.as_str());
        assert!(driver.family().contains(driver), "{}", driver.as_str());
    }
}
