//! Statistics that mean the same for every driver, over generic netlink (`uapi/linux/ethtool_netlink.h`): IEEE 802.3
//! and RMON groups, pause frames, FEC. Bytes in, facts out.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::line::FecCounts;
use crate::host::collector::ReadContext;
use crate::host::io::reason_of;
use crate::host::netlink::generic::{self, GenericFamily, is};
use crate::host::netlink::message::{Attributes, NESTED, number8, number32, number64, put, put_text};
use crate::host::netlink::socket::NetlinkConnector;
use crate::model::counter::CounterClass::{self, Congestion, Error, Other};
use crate::model::line::{FecBin, FecMode};
use crate::model::reading::ReadError;
use crate::model::time::BootTime;

/// How long an interface is not asked again for what its driver does not support.
pub const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

/// The family.
pub const FAMILY: &str = "ethtool";

const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// Bitsets without names (`ETHTOOL_FLAG_COMPACT_BITSETS`).
pub const FLAG_COMPACT: u32 = 1;
/// With statistics (`ETHTOOL_FLAG_STATS`).
pub const FLAG_STATS: u32 = 4;

const STATS_HEADER: u16 = 2;
const STATS_GROUPS: u16 = 3;
const STATS_GROUP: u16 = 4;
const BITSET_NOMASK: u16 = 1;
const BITSET_SIZE: u16 = 2;
const BITSET_VALUE: u16 = 4;
const GROUP_ID: u16 = 2;
const GROUP_STAT: u16 = 4;

const PAUSE_RX: u16 = 3;
const PAUSE_TX: u16 = 4;
const PAUSE_STATS: u16 = 5;
const PAUSE_STAT_TX: u16 = 2;
const PAUSE_STAT_RX: u16 = 3;

const FEC_ACTIVE: u16 = 4;
const FEC_STATS: u16 = 5;
const FEC_CORRECTED: u16 = 2;
const FEC_LOST: u16 = 3;
const FEC_BITS: u16 = 4;
const FEC_HIST: u16 = 5;
const FEC_STAT_NAMES: [(u16, &str, CounterClass); 3] = [
    (FEC_CORRECTED, "fec_corrected_blocks", Other),
    (FEC_LOST, "fec_uncorrectable_blocks", Error),
    (FEC_BITS, "fec_corrected_bits", Other),
];
const HIST_LOW: u16 = 2;
const HIST_HIGH: u16 = 3;
const HIST_VALUE: u16 = 4;
/// Lanes that the kernel lists (`ETHTOOL_MAX_LANES`).
const MOST_LANES: usize = 8;
/// Most bins of a histogram; RS(544,514) has 16.
const MOST_BINS: usize = 20;

/// Which statistics of a group matter: group, number in it, the kernel's name, class.
///
/// Control frames include pause frames, which are counted elsewhere, so they have no class of their own.
#[rustfmt::skip]
const KNOWN: &[(u32, u16, &str, CounterClass)] = &[
    (0, 0, "SymbolErrorDuringCarrier", Error),
    (1, 4, "FrameCheckSequenceErrors", Error), (1, 5, "AlignmentErrors", Error),
    (1, 10, "FramesLostDueToIntMACXmitError", Error), (1, 13, "FramesLostDueToIntMACRcvError", Error),
    (1, 19, "InRangeLengthErrors", Error), (1, 20, "OutOfRangeLengthField", Error), (1, 21, "FrameTooLongErrors", Error),
    (2, 0, "MACControlFramesTransmitted", Other), (2, 1, "MACControlFramesReceived", Other),
    (2, 2, "UnsupportedOpcodesReceived", Error),
    (3, 0, "etherStatsUndersizePkts", Error), (3, 1, "etherStatsOversizePkts", Error),
    (3, 2, "etherStatsFragments", Error), (3, 3, "etherStatsJabbers", Error),
];

/// The drivers' own names for what a standard statistic counts: where a driver has one, the standard one is left out.
#[rustfmt::skip]
const SAME: &[(&str, &[&str])] = &[
    ("SymbolErrorDuringCarrier", &["rx_symbol_err_phy", "rx_pcs_symbol_err"]),
    ("FrameCheckSequenceErrors", &["rx_crc_errors_phy", "rx_crc_errors.nic", "rx_fcs_err_frames"]),
    ("AlignmentErrors", &["rx_align_err_frames"]),
    ("InRangeLengthErrors", &["rx_in_range_len_errors_phy"]),
    ("OutOfRangeLengthField", &["rx_out_of_range_len_phy"]),
    ("FrameTooLongErrors", &["rx_oversize_pkts_phy", "rx_oversize.nic"]),
    ("UnsupportedOpcodesReceived", &["rx_unsupported_op_phy"]),
    ("etherStatsUndersizePkts", &["rx_undersize.nic"]),
    ("etherStatsOversizePkts", &["rx_oversize_pkts_phy", "rx_oversize.nic"]),
    ("etherStatsFragments", &["rx_fragments_phy", "rx_fragments.nic"]),
    ("etherStatsJabbers", &["rx_jabbers_phy", "rx_jabber.nic", "rx_jbr_frames"]),
    ("rx_pause_frames", &["rx_global_pause", "link_xoff_rx.nic"]),
    ("tx_pause_frames", &["tx_global_pause", "link_xoff_tx.nic"]),
    (LINK_DOWNS, &["link_down_events_phy"]),
    ("fec_corrected_blocks", &["rx_fec_corrected_blocks"]),
    ("fec_uncorrectable_blocks", &["rx_fec_uncorrectable_blocks"]),
    ("fec_corrected_bits", &["rx_corrected_bits_phy", "rx_corrected_bits"]),
];

/// How often the firmware lost the link (`ETHTOOL_A_LINKSTATE_EXT_DOWN_CNT`), by the name that drivers give it.
pub const LINK_DOWNS: &str = "link_down_events";

/// Whether a driver that has these names counts a standard statistic already.
pub fn is_counted<'a>(standard: &str, mut own: impl Iterator<Item = &'a str>) -> bool {
    let same = SAME.iter().find(|(name, _)| *name == standard).map_or(&[][..], |(_, same)| same);
    own.any(|name| name == standard || same.contains(&name))
}

/// A query of ethtool netlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EthtoolCommand {
    /// Groups of statistics (Linux 5.13).
    Stats,
    /// Pauses of the whole link, with statistics (5.10).
    Pause,
    /// Error correction, with statistics (5.13).
    Fec,
}

impl EthtoolCommand {
    const ALL: [Self; 3] = [Self::Stats, Self::Pause, Self::Fec];

    /// The command's number and name.
    pub const fn command(self) -> (u8, &'static str) {
        match self {
            Self::Stats => (32, "ETHTOOL_MSG_STATS_GET"),
            Self::Pause => (21, "ETHTOOL_MSG_PAUSE_GET"),
            Self::Fec => (29, "ETHTOOL_MSG_FEC_GET"),
        }
    }

    fn attributes(self, netdev: &str) -> Vec<u8> {
        let (kind, flags) = match self {
            Self::Stats => (STATS_HEADER, FLAG_COMPACT),
            Self::Pause | Self::Fec => (1, FLAG_COMPACT | FLAG_STATS),
        };
        let mut out = header(kind, netdev, flags);
        if self == Self::Stats {
            let mut groups = Vec::new();
            put(&mut groups, BITSET_NOMASK, &[]);
            put(&mut groups, BITSET_SIZE, &4u32.to_ne_bytes());
            put(&mut groups, BITSET_VALUE, &0b1111u32.to_ne_bytes());
            put(&mut out, STATS_GROUPS | NESTED, &groups);
        }
        out
    }
}

/// Encodes the header that names the interface.
pub fn header(kind: u16, netdev: &str, flags: u32) -> Vec<u8> {
    let (mut out, mut nest) = (Vec::new(), Vec::new());
    put_text(&mut nest, HEADER_NAME, netdev);
    put(&mut nest, HEADER_FLAGS, &flags.to_ne_bytes());
    put(&mut out, kind | NESTED, &nest);
    out
}

/// Standard statistics and link settings of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandardStatistics {
    /// Statistics by the kernel's names for them.
    pub statistics: Vec<(&'static str, CounterClass, u64)>,
    /// FEC mode.
    pub fec: Option<FecMode>,
    /// What FEC counted.
    pub fec_counts: FecCounts,
    /// Whether pause frames are honoured and sent.
    pub pause: Option<(bool, bool)>,
}

impl StandardStatistics {
    /// Adds a reply. Each statistic is kept once, even if the reply repeats it.
    fn take(&mut self, op: EthtoolCommand, reply: Attributes<'_>) {
        match op {
            EthtoolCommand::Stats => self.groups(reply),
            EthtoolCommand::Pause => self.pauses(reply),
            EthtoolCommand::Fec => self.correction(reply),
        }
    }

    fn add(&mut self, name: &'static str, class: CounterClass, value: u64) {
        // All ones means that the driver does not count it.
        if value != u64::MAX && !self.statistics.iter().any(|(known, _, _)| *known == name) {
            self.statistics.push((name, class, value));
        }
    }

    fn groups(&mut self, reply: Attributes<'_>) {
        for group in reply.filter_map(|(kind, value)| (kind == STATS_GROUP).then_some(value)) {
            let Some(id) = Attributes::new(group).find_map(|(kind, id)| (kind == GROUP_ID).then(|| number32(id))?)
            else {
                continue;
            };
            let values = Attributes::new(group).filter_map(|(kind, value)| (kind == GROUP_STAT).then_some(value));
            for (number, value) in values.flat_map(Attributes::from_zero) {
                let known = KNOWN.iter().find(|(group, at, _, _)| (*group, *at) == (id, number));
                if let (Some((_, _, name, class)), Some(value)) = (known, number64(value)) {
                    self.add(name, *class, value);
                }
            }
        }
    }

    fn pauses(&mut self, reply: Attributes<'_>) {
        let mut switches = (None, None);
        for (kind, value) in reply {
            match kind {
                PAUSE_RX => switches.0 = number8(value).map(|on| on != 0),
                PAUSE_TX => switches.1 = number8(value).map(|on| on != 0),
                PAUSE_STATS => {
                    for (kind, value) in Attributes::new(value) {
                        let name = match kind {
                            PAUSE_STAT_TX => "tx_pause_frames",
                            PAUSE_STAT_RX => "rx_pause_frames",
                            _ => continue,
                        };
                        if let Some(value) = number64(value) {
                            self.add(name, Congestion, value);
                        }
                    }
                }
                _ => {}
            }
        }
        self.pause = switches.0.zip(switches.1);
    }

    fn count(&mut self, kind: u16, value: &[u8]) {
        let counted = &mut self.fec_counts;
        match kind {
            FEC_CORRECTED => counted.corrected = counts(value),
            FEC_LOST => counted.lost = counts(value),
            FEC_BITS => counted.bits = counts(value),
            FEC_HIST if counted.bins.len() < MOST_BINS => counted.bins.extend(bin(value)),
            _ => {}
        }
    }

    /// Each count is a list: the whole, and then each lane.
    fn correction(&mut self, reply: Attributes<'_>) {
        for (kind, value) in reply {
            match kind {
                // A bit number of link modes.
                FEC_ACTIVE => {
                    self.fec = match number32(value) {
                        Some(49) => Some(FecMode::Off),
                        Some(50) => Some(FecMode::Rs),
                        Some(51) => Some(FecMode::BaseR),
                        Some(74) => Some(FecMode::LowLatency),
                        _ => None,
                    };
                }
                FEC_STATS => {
                    for (kind, value) in Attributes::new(value) {
                        let known = FEC_STAT_NAMES.iter().find(|(known, _, _)| *known == kind);
                        if let (Some((_, name, class)), Some(value)) = (known, number64(value)) {
                            self.add(name, *class, value);
                        }
                        self.count(kind, value);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The counts of a list, all lanes together first, up to the first one that the driver does not count.
fn counts(value: &[u8]) -> Vec<u64> {
    let counts = value.chunks_exact(8).take(1 + MOST_LANES).filter_map(number64);
    counts.take_while(|count| *count != u64::MAX).collect()
}

/// A bin of the histogram (`ETHTOOL_A_FEC_HIST`).
fn bin(value: &[u8]) -> Option<FecBin> {
    let (mut low, mut high, mut codewords) = (None, None, None);
    for (kind, value) in Attributes::new(value) {
        match kind {
            HIST_LOW => low = number32(value),
            HIST_HIGH => high = number32(value),
            // As short as the number allows.
            HIST_VALUE => codewords = number64(value).or_else(|| number32(value).map(u64::from)),
            _ => {}
        }
    }
    Some(FecBin { low: low?, high: high?, codewords: codewords? })
}

/// Queries one interface; what its driver does not support is not asked again for a while.
pub struct StandardStatisticsReader {
    family: GenericFamily,
    not_offered: [Option<BootTime>; EthtoolCommand::ALL.len()],
}

impl StandardStatisticsReader {
    /// Nothing is asked yet.
    pub fn new(connect: NetlinkConnector) -> Self {
        Self { family: GenericFamily::new(FAMILY, connect), not_offered: [None; EthtoolCommand::ALL.len()] }
    }

    /// How many queries are quarantined.
    pub fn quarantined(&self) -> usize {
        self.not_offered.iter().flatten().count()
    }

    /// Reads all queries. An unsupported one is no fault.
    pub fn read(&mut self, cx: &mut ReadContext<'_>, netdev: &str) -> StandardStatistics {
        let mut standard = StandardStatistics::default();
        for (op, not_before) in EthtoolCommand::ALL.into_iter().zip(&mut self.not_offered) {
            if not_before.is_some_and(|until| cx.now < until) {
                continue;
            }
            *not_before = None;
            let (command, name) = op.command();
            match self.family.ask(cx.now, command, false, &op.attributes(netdev)) {
                Ok(replies) => {
                    for reply in replies.iter().flatten() {
                        standard.take(op, generic::attributes(reply));
                    }
                }
                Err(error) if refused(&error) => *not_before = Some(cx.now.after(NOT_OFFERED)),
                Err(error) if is(&error, &[Errno::NODEV]) => {}
                Err(error) => {
                    let reason = reason_of(&error).unwrap_or(ReadError::Io);
                    cx.fault(Path::new(&format!("{name} {netdev}")), reason);
                }
            }
        }
        standard
    }
}

/// Whether an error means "not supported".
pub fn refused(error: &io::Error) -> bool {
    reason_of(error) == Some(ReadError::NotSupported)
}

#[cfg(test)]
pub(crate) mod tests {
    //! Replies as the kernel lays them out.

    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::memory::MemoryHost;
    use crate::host::netlink::generic::tests::FakeFamily;
    use crate::host::netlink::message::tests::attribute;
    use crate::host::netlink::socket;

    /// The header that every reply begins with.
    fn reply_header(kind: u16) -> Vec<u8> {
        attribute(kind | NESTED, &[attribute(1, &7u32.to_ne_bytes()), attribute(2, b"eth2\0")].concat())
    }

    /// A group of `STATS_GET`; as the kernel does, with a padding of type 1 before each value.
    pub(crate) fn group(id: u32, values: &[(u16, u64)]) -> Vec<u8> {
        let mut out = [attribute(GROUP_ID, &id.to_ne_bytes()), attribute(3, &(17 + id).to_ne_bytes())].concat();
        for (number, value) in values {
            out.extend(attribute(1, &[]));
            out.extend(attribute(GROUP_STAT | NESTED, &attribute(*number, &value.to_ne_bytes())));
        }
        attribute(STATS_GROUP | NESTED, &out)
    }

    pub(crate) fn stats_reply(groups: &[Vec<u8>]) -> Vec<u8> {
        [reply_header(STATS_HEADER), groups.concat()].concat()
    }

    pub(crate) fn pause_reply(rx: u8, tx: u8, frames: Option<(u64, u64)>) -> Vec<u8> {
        let mut out =
            [reply_header(1), attribute(2, &[1]), attribute(PAUSE_RX, &[rx]), attribute(PAUSE_TX, &[tx])].concat();
        if let Some((sent, received)) = frames {
            let pad = attribute(1, &[]);
            let [sent, received] = [(PAUSE_STAT_TX, sent), (PAUSE_STAT_RX, received)]
                .map(|(kind, frames)| attribute(kind, &frames.to_ne_bytes()));
            out.extend(attribute(PAUSE_STATS | NESTED, &[pad.clone(), sent, pad, received].concat()));
        }
        out
    }

    pub(crate) fn fec_reply(active: u32, counts: &[(u16, &[u64])]) -> Vec<u8> {
        let modes =
            attribute(2 | NESTED, &[attribute(BITSET_SIZE, &92u32.to_ne_bytes()), attribute(4, &[0; 12])].concat());
        let list = |(kind, lanes): &(u16, &[u64])| {
            let lanes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_ne_bytes()).collect();
            [attribute(1, &[]), attribute(*kind, &lanes)].concat()
        };
        let counts: Vec<u8> = counts.iter().flat_map(list).collect();
        let auto = [attribute(3, &[1]), attribute(FEC_ACTIVE, &active.to_ne_bytes())].concat();
        [reply_header(1), modes, auto, attribute(FEC_STATS | NESTED, &counts)].concat()
    }

    fn taken(op: EthtoolCommand, reply: &[u8]) -> StandardStatistics {
        let mut standard = StandardStatistics::default();
        standard.take(op, Attributes::new(reply));
        standard
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn requests_byte_for_byte() {
        #[rustfmt::skip]
        let header = |kind: u8, flags: u8| [
            24, 0, kind, 0x80,
            9, 0, 2, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0,
            8, 0, 3, 0, flags, 0, 0, 0,
        ];
        #[rustfmt::skip]
        let groups = [
            24, 0, 3, 0x80,
            4, 0, 1, 0,
            8, 0, 2, 0, 4, 0, 0, 0,
            8, 0, 4, 0, 15, 0, 0, 0,
        ];
        assert_eq!(EthtoolCommand::Stats.attributes("eth2"), [&header(2, 1)[..], &groups].concat());
        assert_eq!(EthtoolCommand::Pause.attributes("eth2"), header(1, 5));
        assert_eq!(EthtoolCommand::Fec.attributes("eth2"), header(1, 5));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_group_byte_for_byte() {
        #[rustfmt::skip]
        let reply = [
            52, 0, 4, 0x80,
            8, 0, 2, 0, 1, 0, 0, 0,
            8, 0, 3, 0, 18, 0, 0, 0,
            16, 0, 4, 0x80, 12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
            16, 0, 4, 0x80, 12, 0, 4, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        ];
        let standard = taken(EthtoolCommand::Stats, &reply);
        assert_eq!(standard.statistics, [("FrameCheckSequenceErrors", Error, 3)], "frames sent are traffic");
        for end in 0..reply.len() {
            taken(EthtoolCommand::Stats, &reply[..end]);
        }
    }

    #[test]
    fn all_groups() {
        let reply = stats_reply(&[
            group(0, &[(0, 5)]),
            group(1, &[(0, 1000), (4, 1), (5, 2), (21, 3), (13, u64::MAX)]),
            group(2, &[(0, 6), (1, 7), (2, 8)]),
            group(3, &[(0, 0), (3, 9), (4, 10)]),
            group(9, &[(0, 11)]),
        ]);
        let names: Vec<_> =
            taken(EthtoolCommand::Stats, &reply).statistics.iter().map(|(name, _, value)| (*name, *value)).collect();
        let expected = [
            ("SymbolErrorDuringCarrier", 5),
            ("FrameCheckSequenceErrors", 1),
            ("AlignmentErrors", 2),
            ("FrameTooLongErrors", 3),
            ("MACControlFramesTransmitted", 6),
            ("MACControlFramesReceived", 7),
            ("UnsupportedOpcodesReceived", 8),
            ("etherStatsUndersizePkts", 0),
            ("etherStatsJabbers", 9),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn pauses_and_error_correction() {
        let pause = taken(EthtoolCommand::Pause, &pause_reply(1, 0, Some((3, 4))));
        assert_eq!(pause.pause, Some((true, false)));
        assert_eq!(pause.statistics, [("tx_pause_frames", Congestion, 3), ("rx_pause_frames", Congestion, 4)]);
        assert_eq!(taken(EthtoolCommand::Pause, &pause_reply(0, 0, None)).statistics, []);
        // The whole, then four lanes.
        let fec = taken(EthtoolCommand::Fec, &fec_reply(50, &[(2, &[10, 1, 2, 3, 4]), (3, &[2]), (4, &[])]));
        assert_eq!(fec.fec, Some(FecMode::Rs));
        let FecCounts { corrected, lost, bits, bins } = fec.fec_counts;
        assert_eq!((corrected, lost, bits, bins), (vec![10, 1, 2, 3, 4], vec![2], vec![], vec![]));
        assert_eq!(fec.statistics, [("fec_corrected_blocks", Other, 10), ("fec_uncorrectable_blocks", Error, 2)]);
        for (bit, word) in [(49, Some("off")), (51, Some("baser")), (74, Some("llrs")), (0, None)] {
            let fec = taken(EthtoolCommand::Fec, &fec_reply(bit, &[])).fec;
            assert_eq!(fec.map(FecMode::as_str), word);
        }
    }

    #[test]
    fn lists_of_one_five_and_nine_counts_and_of_half_a_count() {
        let counted = |counts: &[u64]| taken(EthtoolCommand::Fec, &fec_reply(50, &[(4, counts)])).fec_counts.bits;
        assert_eq!(counted(&[7]), [7]);
        assert_eq!(counted(&[10, 1, 2, 3, 4]), [10, 1, 2, 3, 4]);
        assert_eq!(counted(&[36, 1, 2, 3, 4, 5, 6, 7, 8]), [36, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(counted(&[u64::MAX; 9]), [0; 0], "not counted");
        let half = attribute(FEC_STATS | NESTED, &attribute(FEC_BITS, &[1, 2, 3, 4]));
        assert_eq!(taken(EthtoolCommand::Fec, &half).fec_counts, FecCounts::default());
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_histogram_byte_for_byte() {
        #[rustfmt::skip]
        let reply = [
            92, 0, 5, 0x80,
            4, 0, 1, 0,
            12, 0, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0,
            32, 0, 5, 0x80,
            8, 0, 2, 0, 0, 0, 0, 0,
            8, 0, 3, 0, 0, 0, 0, 0,
            12, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0,
            40, 0, 5, 0x80,
            8, 0, 2, 0, 1, 0, 0, 0,
            8, 0, 3, 0, 3, 0, 0, 0,
            8, 0, 4, 0, 5, 0, 0, 0,
            12, 0, 5, 0, 5, 0, 0, 0, 0, 0, 0, 0,
        ];
        let FecCounts { corrected, bins, .. } = taken(EthtoolCommand::Fec, &reply).fec_counts;
        let bin = |low, high, codewords| FecBin { low, high, codewords };
        assert_eq!((corrected, bins), (vec![9], vec![bin(0, 0, 1 << 32), bin(1, 3, 5)]));
        for end in 0..reply.len() {
            taken(EthtoolCommand::Fec, &reply[..end]);
        }
    }

    #[test]
    fn what_a_driver_counts_itself_is_not_counted_twice() {
        let mlx5 = ["rx_crc_errors_phy", "rx_corrected_bits_phy", "rx_global_pause"];
        for (name, counted) in [
            ("FrameCheckSequenceErrors", true),
            ("fec_corrected_bits", true),
            ("rx_pause_frames", true),
            ("tx_pause_frames", false),
            ("fec_uncorrectable_blocks", false),
        ] {
            assert_eq!(is_counted(name, mlx5.into_iter()), counted, "{name}");
        }
        assert!(is_counted("rx_pause_frames", ["rx_pause_frames"].into_iter()));
        for (name, own) in SAME {
            let known = KNOWN.iter().any(|(_, _, known, _)| known == name)
                || FEC_STAT_NAMES.iter().any(|(_, known, _)| known == name)
                || name.ends_with("x_pause_frames")
                || *name == LINK_DOWNS;
            assert!(known, "{name}");
            for own in *own {
                assert!(super::super::table::meaning(own).is_some(), "{own} is of no driver's table");
            }
        }
    }

    #[test]
    fn an_unsupported_query_is_no_fault_and_is_paused() {
        let made = Arc::new(FakeFamily::default());
        made.set(21, &[pause_reply(0, 1, None)]);
        let mut asker = StandardStatisticsReader::new(FakeFamily::connect(&made));
        let host = Arc::new(MemoryHost::new()).host();
        let mut read = |second: i64| {
            let mut cx = ReadContext::new(&host, BootTime(second * 1000), Depth::Full);
            let standard = asker.read(&mut cx, "eth2");
            (standard.pause, cx.faults.len(), asker.quarantined())
        };
        assert_eq!(read(0), (Some((false, true)), 0, 2));
        assert_eq!(read(15), (Some((false, true)), 0, 2));
        assert_eq!((made.count(32), made.count(21)), (1, 2));
        *made.refuses.lock().unwrap() = Some(Errno::IO);
        assert_eq!(read(30), (None, 1, 2));
        *made.refuses.lock().unwrap() = Some(Errno::NODEV);
        assert_eq!(read(45), (None, 0, 2));
        *made.refuses.lock().unwrap() = None;
        made.set(32, &[stats_reply(&[group(0, &[(0, 1)])])]);
        assert_eq!(read(600), (Some((false, true)), 0, 1));
    }

    /// Interfaces of the machine that runs the tests: whatever they offer, nothing of it is an error.
    #[test]
    fn the_running_kernel_answers() {
        let host = Arc::new(MemoryHost::new()).host();
        for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
            let standard = StandardStatisticsReader::new(socket::generic()).read(&mut cx, &name);
            assert_eq!(cx.faults, []);
            println!("{name}: {standard:?}");
        }
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for op in EthtoolCommand::ALL {
                prop_assert!(taken(op, &bytes).statistics.len() <= KNOWN.len() + 5);
            }
        }

        #[test]
        fn a_reply_of_any_length_gives_each_statistic_once(
            groups in proptest::collection::vec((0u32..5, proptest::collection::vec((0u16..24, any::<u64>()), 0..30)), 0..30),
        ) {
            let groups: Vec<Vec<u8>> = groups.iter().map(|(id, values)| group(*id, values)).collect();
            let statistics = taken(EthtoolCommand::Stats, &stats_reply(&groups)).statistics;
            let mut names: Vec<&str> = statistics.iter().map(|(name, _, _)| *name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), count);
        }
    }
}
