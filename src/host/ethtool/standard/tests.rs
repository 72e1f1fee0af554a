//! Replies as the kernel lays them out.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::host::collector::Depth;
use crate::host::memory::MemoryHost;
use crate::host::netlink::attributes::tests::attribute;
use crate::host::netlink::generic::tests::FakeFamily;
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
    let modes = attribute(2 | NESTED, &[attribute(BITSET_SIZE, &92u32.to_ne_bytes()), attribute(4, &[0; 12])].concat());
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
    assert_eq!(fec.fec, Some("rs"));
    assert_eq!(fec.statistics, [("fec_corrected_blocks", Other, 10), ("fec_uncorrectable_blocks", Error, 2)]);
    for (bit, word) in [(49, Some("off")), (51, Some("baser")), (74, Some("llrs")), (0, None)] {
        assert_eq!(taken(EthtoolCommand::Fec, &fec_reply(bit, &[])).fec, word);
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
            || name.ends_with("x_pause_frames");
        assert!(known, "{name}");
        for own in *own {
            assert!(super::super::table::meaning(own).is_some(), "{own} is of no driver's table");
        }
    }
}

#[test]
fn what_is_not_offered_is_no_fault_and_asked_for_seldom() {
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
    fn no_reply_breaks_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
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
