//! Why an interface has no link, over generic netlink (`ETHTOOL_MSG_LINKSTATE_GET`, `net/ethtool/linkstate.c`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::standard::{FAMILY, FLAG_STATS, NOT_OFFERED, header};
use crate::host::collector::ReadContext;
use crate::host::file::PolledFile;
use crate::host::io::reason_of;
use crate::host::net::parse_carrier;
use crate::host::netlink::generic::{self, GenericFamily, is};
use crate::host::netlink::message::{Attributes, number8, number32};
use crate::host::netlink::socket::NetlinkConnector;
use crate::host::text;
use crate::model::link::{LinkCause, NetdevLink, STEADY_ANSWERS};
use crate::model::reading::ReadError;
use crate::model::time::BootTime;

const LINKSTATE_GET: u8 = 6;
const HEADER: u16 = 1;
const EXT_STATE: u16 = 5;
const EXT_SUBSTATE: u16 = 6;
const EXT_DOWN_CNT: u16 = 7;

/// How often the count of lost links is asked for: it may cost a firmware command.
const COUNTED: Duration = Duration::from_secs(60);

/// The type of InfiniBand interfaces (`ARPHRD_INFINIBAND`), of which no driver gives a reason.
const INFINIBAND: &[u8] = b"32";

/// What one request says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Answer {
    cause: Option<LinkCause>,
    downs: Option<u32>,
}

impl Answer {
    fn parse(reply: Attributes<'_>) -> Self {
        let (mut state, mut substate, mut downs) = (None, None, None);
        for (kind, value) in reply {
            match kind {
                EXT_STATE => state = number8(value),
                EXT_SUBSTATE => substate = number8(value),
                EXT_DOWN_CNT => downs = number32(value),
                _ => {}
            }
        }
        Self { cause: state.map(|state| LinkCause { state, substate }), downs }
    }
}

/// What is known of a link after a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// What the driver says while there is no carrier.
    pub state: Option<NetdevLink>,
    /// How often the firmware lost the link, as last asked for.
    pub downs: Option<u64>,
}

/// Asks the driver of one interface: on every pass while the interface is up without a carrier, else once a minute for
/// the count of lost links. A driver that gives no reason or fails is left alone for a while.
pub struct LinkStateReader {
    family: GenericFamily,
    carrier: PolledFile,
    hardware_type: PolledFile,
    infiniband: Option<bool>,
    last: Option<(Option<LinkCause>, u32)>,
    downs: Option<u64>,
    counted: Option<BootTime>,
    state_not_before: Option<BootTime>,
    count_not_before: Option<BootTime>,
}

impl LinkStateReader {
    /// Nothing is asked yet. `directory` is the interface's in sysfs.
    pub fn new(connect: NetlinkConnector, directory: &Path) -> Self {
        Self {
            family: GenericFamily::new(FAMILY, connect),
            carrier: PolledFile::new(directory.join("carrier")),
            hardware_type: PolledFile::new(directory.join("type")),
            infiniband: None,
            last: None,
            downs: None,
            counted: None,
            state_not_before: None,
            count_not_before: None,
        }
    }

    /// Asks what is due.
    pub fn read(&mut self, cx: &mut ReadContext<'_>, netdev: &Arc<str>) -> LinkReading {
        if self.infiniband.is_none() {
            self.infiniband =
                self.hardware_type.read(cx, text::label).value().map(|kind| kind.as_bytes() == INFINIBAND);
            self.hardware_type.close();
        }
        // An interface that is down on purpose has no carrier file to read, and no reason.
        let carrier = self.carrier.read_unless_down(cx, parse_carrier).value();
        let (Some(carrier), Some(false)) = (carrier, self.infiniband) else {
            self.last = None;
            return LinkReading::default();
        };
        if carrier {
            (self.last, self.state_not_before) = (None, None);
        }
        let is_due = |not_before: Option<BootTime>| not_before.is_none_or(|until| cx.now >= until);
        let with_state = !carrier && is_due(self.state_not_before);
        let with_count = is_due(self.count_not_before) && self.counted.is_none_or(|at| cx.now.since(at) >= COUNTED);
        if with_state || with_count {
            self.ask(cx, netdev, with_state, with_count);
        }
        let state = self.last.map(|(cause, answers)| NetdevLink { netdev: Arc::clone(netdev), cause, answers });
        LinkReading { state, downs: self.downs }
    }

    fn ask(&mut self, cx: &mut ReadContext<'_>, netdev: &str, with_state: bool, with_count: bool) {
        let flags = if with_count { FLAG_STATS } else { 0 };
        let later = Some(cx.now.after(NOT_OFFERED));
        match self.family.ask(cx.now, LINKSTATE_GET, false, &header(HEADER, netdev, flags)) {
            Ok(replies) => {
                let Some(reply) = replies.as_ref().and_then(|replies| replies.first()) else { return };
                let answer = Answer::parse(generic::attributes(reply));
                if with_count {
                    self.downs = answer.downs.map(u64::from);
                    self.counted = Some(cx.now);
                    self.count_not_before = if answer.downs.is_none() { later } else { None };
                }
                if with_state {
                    let answers = match self.last {
                        Some((cause, answers)) if cause == answer.cause => answers.saturating_add(1),
                        _ => 1,
                    };
                    self.last = Some((answer.cause, answers));
                    if answer.cause.is_none() && answers >= STEADY_ANSWERS {
                        self.state_not_before = later;
                    }
                }
            }
            Err(error) => {
                (self.last, self.downs) = (None, None);
                (self.state_not_before, self.count_not_before) = (later, later);
                let reason = reason_of(&error).unwrap_or(ReadError::Io);
                if reason != ReadError::NotSupported && !is(&error, &[Errno::NODEV]) {
                    cx.fault(Path::new(&format!("ETHTOOL_MSG_LINKSTATE_GET {netdev}")), reason);
                }
                // It went to another network namespace: it may come back soon.
                if is(&error, &[Errno::NODEV]) {
                    (self.state_not_before, self.count_not_before) = (None, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::memory::MemoryHost;
    use crate::host::netlink::generic::tests::FakeFamily;
    use crate::host::netlink::message::NESTED;
    use crate::host::netlink::message::tests::attribute;

    const ETH2: &str = "/sys/class/net/eth2";

    /// A reply as the kernel lays it out (`linkstate_fill_reply`): header, link, state, substate, count.
    fn reply(link: u8, state: Option<(u8, Option<u8>)>, downs: Option<u32>) -> Vec<u8> {
        let header = [attribute(1, &7u32.to_ne_bytes()), attribute(2, b"eth2\0")].concat();
        let mut out = [attribute(HEADER | NESTED, &header), attribute(2, &[link])].concat();
        if let Some((state, substate)) = state {
            out.extend(attribute(EXT_STATE, &[state]));
            out.extend(substate.map(|substate| attribute(EXT_SUBSTATE, &[substate])).unwrap_or_default());
        }
        out.extend(downs.map(|downs| attribute(EXT_DOWN_CNT, &downs.to_ne_bytes())).unwrap_or_default());
        out
    }

    /// State and substate.
    type State = (u8, Option<u8>);

    struct Link {
        memory: Arc<MemoryHost>,
        kernel: Arc<FakeFamily>,
        reader: LinkStateReader,
        faults: Vec<ReadError>,
    }

    impl Link {
        fn new() -> Self {
            let (memory, kernel) = (Arc::new(MemoryHost::new()), Arc::new(FakeFamily::default()));
            memory.set(format!("{ETH2}/type"), "1\n");
            let reader = LinkStateReader::new(FakeFamily::connect(&kernel), Path::new(ETH2));
            Self { memory, kernel, reader, faults: Vec::new() }
        }

        fn carrier(&self, carrier: bool) {
            self.memory.set(format!("{ETH2}/carrier"), if carrier { "1\n" } else { "0\n" });
        }

        fn read(&mut self, second: i64) -> LinkReading {
            let host = self.memory.host();
            let mut cx = ReadContext::new(&host, BootTime(second * 1000), Depth::Full);
            let reading = self.reader.read(&mut cx, &Arc::from("eth2"));
            self.faults = cx.faults.iter().map(|fault| fault.reason).collect();
            reading
        }

        fn state(&mut self, second: i64) -> Option<(Option<State>, u32)> {
            let state = self.read(second).state?;
            Some((state.cause.map(|cause| (cause.state, cause.substate)), state.answers))
        }

        fn asked(&self) -> usize {
            self.kernel.count(LINKSTATE_GET)
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn an_exchange_byte_for_byte() {
        #[rustfmt::skip]
        let request = [
            24, 0, 1, 0x80,
            9, 0, 2, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0,
            8, 0, 3, 0, 4, 0, 0, 0,
        ];
        assert_eq!(header(HEADER, "eth2", FLAG_STATS), request);
        #[rustfmt::skip]
        let answer = [
            24, 0, 1, 0x80,
            8, 0, 1, 0, 7, 0, 0, 0,
            9, 0, 2, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0,
            5, 0, 2, 0, 0, 0, 0, 0,
            5, 0, 5, 0, 3, 0, 0, 0,
            5, 0, 6, 0, 1, 0, 0, 0,
            8, 0, 7, 0, 9, 0, 0, 0,
        ];
        assert_eq!(reply(0, Some((3, Some(1))), Some(9)), answer);
        let parsed = Answer::parse(Attributes::new(&answer));
        assert_eq!(parsed, Answer { cause: Some(LinkCause { state: 3, substate: Some(1) }), downs: Some(9) });
        for end in 0..answer.len() {
            Answer::parse(Attributes::new(&answer[..end]));
        }
    }

    #[test]
    fn state_zero_is_a_state_and_its_absence_is_none() {
        let cause = |bytes: &[u8]| Answer::parse(Attributes::new(bytes)).cause;
        assert_eq!(cause(&reply(0, Some((0, None)), None)), Some(LinkCause { state: 0, substate: None }));
        assert_eq!(cause(&reply(0, None, Some(4))), None);
    }

    #[test]
    fn the_same_answer_is_counted_and_another_starts_anew() {
        let mut link = Link::new();
        link.carrier(false);
        link.kernel.set(LINKSTATE_GET, &[reply(0, Some((4, None)), None)]);
        assert_eq!(link.state(0), Some((Some((4, None)), 1)));
        assert_eq!(link.state(15), Some((Some((4, None)), 2)));
        link.kernel.set(LINKSTATE_GET, &[reply(0, Some((1, Some(4))), None)]);
        assert_eq!(link.state(30), Some((Some((1, Some(4))), 1)));
        link.carrier(true);
        assert_eq!(link.state(45), None, "a link that is up needs no reason");
        link.carrier(false);
        assert_eq!(link.state(60), Some((Some((1, Some(4))), 1)), "what was before is of another loss");
    }

    #[test]
    fn a_driver_without_reasons_is_asked_three_times_and_then_every_ten_minutes() {
        let mut link = Link::new();
        link.carrier(false);
        link.kernel.set(LINKSTATE_GET, &[reply(0, None, None)]);
        let answers: Vec<_> = (0..40).map(|pass| link.state(pass * 15).map(|(_, answers)| answers)).collect();
        assert_eq!(answers[..4], [Some(1), Some(2), Some(3), Some(3)]);
        assert_eq!(link.asked(), 3);
        assert_eq!(link.state(630), Some((None, 4)));
        assert_eq!(link.asked(), 4);
    }

    #[test]
    fn lost_links_are_asked_for_once_a_minute() {
        let mut link = Link::new();
        link.carrier(true);
        link.kernel.set(LINKSTATE_GET, &[reply(1, None, Some(3))]);
        for pass in 0..40 {
            assert_eq!(link.read(pass * 15).downs, Some(3));
        }
        assert_eq!(link.asked(), 10);
        let flags = |asked: &(u8, Vec<u8>)| asked.1.ends_with(&FLAG_STATS.to_ne_bytes());
        assert!(link.kernel.asked.lock().unwrap().iter().all(flags));
        // One that does not count is left alone.
        let mut link = Link::new();
        link.carrier(true);
        link.kernel.set(LINKSTATE_GET, &[reply(1, None, None)]);
        (0..40).for_each(|pass| assert_eq!(link.read(pass * 15), LinkReading::default()));
        assert_eq!(link.asked(), 1);
    }

    #[test]
    fn errors_are_faults_but_for_those_that_mean_not_here() {
        for (errno, faults, asked) in [
            (Errno::OPNOTSUPP, vec![], 1),
            (Errno::NODEV, vec![], 3),
            (Errno::IO, vec![ReadError::Io], 1),
            (Errno::PERM, vec![ReadError::Permission], 1),
        ] {
            let mut link = Link::new();
            link.carrier(false);
            *link.kernel.refuses.lock().unwrap() = Some(errno);
            assert_eq!(link.read(0), LinkReading::default(), "{errno}");
            assert_eq!(link.faults, faults);
            (1..3).for_each(|pass| assert_eq!(link.state(pass * 15), None));
            assert_eq!(link.asked(), asked, "{errno}");
            *link.kernel.refuses.lock().unwrap() = None;
            link.kernel.set(LINKSTATE_GET, &[reply(0, Some((4, None)), None)]);
            assert_eq!(link.state(630), Some((Some((4, None)), 1)));
        }
    }

    #[test]
    fn an_interface_that_is_down_on_purpose_or_infiniband_is_not_asked() {
        let mut link = Link::new();
        link.memory.fail(format!("{ETH2}/carrier"), Errno::INVAL);
        assert_eq!((link.read(0), link.asked()), (LinkReading::default(), 0));
        let mut link = Link::new();
        link.memory.set(format!("{ETH2}/type"), "32\n");
        link.carrier(false);
        assert_eq!((link.read(0), link.asked()), (LinkReading::default(), 0));
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let answer = Answer::parse(Attributes::new(&bytes));
            prop_assert!(answer.cause.is_none_or(|cause| !cause.to_string().is_empty()));
        }
    }
}
