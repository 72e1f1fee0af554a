//! What a line means: the texts of each driver's source by file.

mod broadcom;
mod chelsio;
mod cloud;
mod hisilicon;
mod intel;
mod legacy;
mod marvell;
mod mellanox;
mod nvidia;
mod omni_path;
mod pci;
mod pensando;
mod software;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::pattern;
use crate::model::kmsg::{MessageKind, MessageSource};

/// How the kernel prints what stands before a driver's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// `dev_err` of the PCI function: `ice 0000:07:00.1: `.
    Function,
    /// The same with mlx5's own words in front: `mlx5_core 0000:07:00.0: mlx5_cmd_out_err:808:(pid 7): `.
    TracedFunction,
    /// `ibdev_err`: driver and name of the parent, then the RDMA device: `ice 0000:07:00.1 rocep7s0f1: `.
    RdmaDevice,
    /// `dev_err` of the RDMA device itself: `infiniband mlx5_0: `.
    RdmaClass,
    /// The same with mlx5's own words in front: `infiniband mlx5_0: mlx5_ib_poll_cq:500:(pid 8): `.
    TracedRdmaClass,
    /// `dev_err` of the PCI function with the RDMA device's name first: `hfi1 0000:05:00.0: hfi1_0: `.
    FunctionOfDevice,
    /// `netdev_err`: driver and name of the parent, then the interface: `ice 0000:07:00.1 ens7f1: `.
    Interface,
    /// `pr_err` with this text in front.
    Module(&'static str),
    /// `DP_ERR`, `DP_NOTICE`: `[qed_mcp_cmd:543(ens2f0-0)]`.
    Bracketed,
}

/// A line of a driver.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// How the driver prints it.
    pub caller: Caller,
    /// The format string, without the line's end.
    pub format: &'static str,
    /// A word that one of its values must be; empty where any will do.
    pub word: &'static str,
    /// What it means.
    pub kind: MessageKind,
    /// Whether it is a spelling of kernels before 6.12, or of the vendor's own module.
    pub older: bool,
}

impl Line {
    fn fits(&self, text: &str) -> bool {
        pattern::fits(self.format, text) && text.contains(self.word)
    }
}

const fn line(caller: Caller, format: &'static str, kind: MessageKind) -> Line {
    Line { caller, format, word: "", kind, older: false }
}

const fn with(caller: Caller, format: &'static str, word: &'static str, kind: MessageKind) -> Line {
    Line { caller, format, word, kind, older: false }
}

const fn older(caller: Caller, format: &'static str, kind: MessageKind) -> Line {
    Line { caller, format, word: "", kind, older: true }
}

const fn older_with(caller: Caller, format: &'static str, word: &'static str, kind: MessageKind) -> Line {
    Line { caller, format, word, kind, older: true }
}

/// The lines of a source file of the kernel that mean something.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Whose it is; several where drivers share it.
    pub drivers: &'static [MessageSource],
    /// Its path in the kernel's source.
    pub file: &'static str,
    /// Its lines. The first that fits counts.
    pub lines: &'static [Line],
}

/// All, in the order in which they are tried.
pub fn sources() -> impl Iterator<Item = &'static Source> {
    [
        nvidia::SOURCES,
        mellanox::SOURCES,
        intel::SOURCES,
        broadcom::SOURCES,
        cloud::SOURCES,
        hisilicon::SOURCES,
        marvell::SOURCES,
        chelsio::SOURCES,
        pensando::SOURCES,
        omni_path::SOURCES,
        legacy::SOURCES,
        software::SOURCES,
        pci::SOURCES,
    ]
    .into_iter()
    .flatten()
}

/// All lines, in the order in which they are tried, and which of them a word of a text makes possible.
struct Index {
    lines: Vec<(&'static Source, &'static Line)>,
    /// Positions in `lines` by the longest word that each line always has. A log has many lines that mean nothing;
    /// their words rule out nearly every rule.
    by_word: HashMap<&'static str, Vec<usize>>,
    /// Positions of the lines that have no such word.
    without_word: Vec<usize>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let lines: Vec<_> = sources().flat_map(|source| source.lines.iter().map(move |line| (source, line))).collect();
    let (mut by_word, mut without_word) = (HashMap::<_, Vec<_>>::new(), Vec::new());
    for (at, (_, line)) in lines.iter().enumerate() {
        match pattern::longest_word(line.format) {
            Some(word) => by_word.entry(word).or_default().push(at),
            None => without_word.push(at),
        }
    }
    Index { lines, by_word, without_word }
});

/// The rules that a text fits.
pub struct Matches<'a> {
    text: &'a str,
    /// In the order of [`sources`].
    lines: Vec<(&'static Source, &'static Line)>,
}

impl<'a> Matches<'a> {
    /// Looks a text up in the rules of all drivers.
    pub fn of(text: &'a str) -> Self {
        let possible = pattern::words(text).filter_map(|word| INDEX.by_word.get(word)).flatten();
        let mut possible: Vec<usize> = possible.chain(&INDEX.without_word).copied().collect();
        possible.sort_unstable();
        possible.dedup();
        let lines = possible.into_iter().filter_map(|at| INDEX.lines.get(at).copied());
        Self { text, lines: lines.filter(|(_, line)| line.fits(text)).collect() }
    }

    /// What the text means that names this driver, and whose it is: the driver's own, else of one that has the same
    /// card.
    pub fn by_driver(&self, speaker: MessageSource) -> Option<(MessageSource, MessageKind)> {
        let relatives = speaker.family().iter().copied().filter(|driver| *driver != speaker);
        std::iter::once(speaker).chain(relatives).find_map(|driver| {
            let (_, line) = self.lines.iter().find(|(source, _)| source.drivers.contains(&driver))?;
            is_real(line.kind, self.text).then_some((driver, line.kind))
        })
    }

    /// What the text means, whoever has said it: of lines that name neither driver nor a device that is known.
    pub fn by_text(&self, is_rdma: bool) -> Option<(MessageSource, MessageKind)> {
        self.lines.iter().find_map(|(source, line)| {
            let [driver] = source.drivers else { return None };
            let is_specific = if is_rdma { driver.is_rdma_part() } else { driver.is_of_rdma() };
            // Words as short as `Link down` may be anybody's.
            let is_telling = is_rdma || line.format.len() > 20;
            (is_specific && is_telling && is_real(line.kind, self.text)).then_some((*driver, line.kind))
        })
    }
}

/// Texts that look like another.
fn is_real(kind: MessageKind, text: &str) -> bool {
    match kind {
        // No link at all, or a rate of nothing, is no limit.
        MessageKind::PcieBandwidthLimited => !text.contains("Unknown") && !text.starts_with("0.000 "),
        // Notices and below (5 to 7) are no failure.
        MessageKind::FirmwareFatal => {
            !["severity(5)", "severity(6)", "severity(7)"].iter().any(|mild| text.contains(mild))
        }
        _ => true,
    }
}

/// Every driver with the kinds that it can have, in the order of the metrics.
pub fn pairs() -> Vec<(MessageSource, MessageKind)> {
    let own = sources().flat_map(|source| {
        source.drivers.iter().flat_map(|driver| source.lines.iter().map(|line| (*driver, line.kind)))
    });
    let read = [
        (MessageSource::Pcieport, MessageKind::AerFatal),
        (MessageSource::Pcieport, MessageKind::AerNonfatal),
        (MessageSource::Pcieport, MessageKind::AerCorrectable),
        (MessageSource::Iommu, MessageKind::IommuFault),
    ];
    let mut pairs: Vec<(MessageSource, MessageKind)> = own.chain(read).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}
