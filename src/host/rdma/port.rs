//! One port of a device: its files, and netlink replies that replace some of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::counters::{CounterDirs, CounterSource, stamp};
use super::interface::{self, parse_gid};
use crate::host::collector::ReadContext;
use crate::host::file::{PolledFile, read_once};
use crate::host::io::DirStamp;
use crate::host::netlink::client::{QueryOutcome, RdmaNetlinkClient};
use crate::host::netlink::nldev::{self, NldevCommand};
use crate::host::text::{self, parse_decimal, parse_hex};
use crate::model::ids::Guid;
use crate::model::rdma::{LinkLayer, PhysicalState, Port, PortRate, PortState, Speed};
use crate::model::reading::{ReadError, Reading};
use crate::model::units::BytesPerSecond;

/// How much of a port a pass reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortScope {
    /// Counters and everything else that may change.
    pub(super) full: bool,
    /// What rarely changes.
    pub(super) seldom: bool,
}

/// A port and the files it is read from.
pub(super) struct PortFiles {
    number: u32,
    dir: PathBuf,
    stamp: Option<DirStamp>,
    state_file: PolledFile,
    physical_state_file: PolledFile,
    rate_file: PolledFile,
    lid_file: PolledFile,
    sm_lid_file: PolledFile,
    counters: CounterDirs,
    link_layer: Option<LinkLayer>,
    guid: Option<Guid>,
    netdev: Option<Arc<str>>,
    state: Reading<PortState>,
    physical_state: Reading<PhysicalState>,
    rate: Reading<PortRate>,
    lids: (Option<u32>, Option<u32>),
    /// The GUID whose interface was last searched for, and what was found.
    searched: Option<Guid>,
    by_address: Option<Arc<str>>,
}

impl PortFiles {
    /// A port in the `ports` directory of a device; nothing is read yet.
    pub(super) fn new(ports: &Path, number: u32) -> Self {
        let dir = ports.join(number.to_string());
        let file = |name: &str| PolledFile::new(dir.join(name));
        Self {
            number,
            stamp: None,
            state_file: file("state"),
            physical_state_file: file("phys_state"),
            rate_file: file("rate"),
            lid_file: file("lid"),
            sm_lid_file: file("sm_lid"),
            counters: CounterDirs::of_port(&dir),
            link_layer: None,
            guid: None,
            netdev: None,
            state: Reading::Absent,
            physical_state: Reading::Absent,
            rate: Reading::Absent,
            lids: (None, None),
            searched: None,
            by_address: None,
            dir,
        }
    }

    /// Checks for changes; true if the port or its counters were replaced.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>) -> bool {
        let Ok(now) = stamp(cx, &self.dir) else { return false };
        let another = now != self.stamp;
        if another {
            if let Some(ports) = self.dir.parent() {
                *self = Self::new(ports, self.number);
            }
            self.stamp = now;
        }
        self.counters.refresh(cx) || another
    }

    /// Reads the port; `None` if its directory is gone.
    ///
    /// Each of `state`, `phys_state`, `rate`, `lid` and `sm_lid` makes the driver query the port again; netlink returns
    /// all but the rate from one query.
    pub(super) fn read(
        &mut self,
        cx: &mut ReadContext<'_>,
        scope: PortScope,
        client: Option<&mut RdmaNetlinkClient>,
    ) -> Option<Port> {
        self.stamp?;
        if scope.seldom && self.link_layer.is_none() {
            self.link_layer = read_once(cx, &self.dir.join("link_layer"), parse_link_layer);
        }
        let mut client = client;
        let answer = match &mut client {
            Some(client) => client.ask(cx, NldevCommand::PortGet, Some(self.number)),
            None => QueryOutcome::Silent,
        };
        let before = (self.state, self.physical_state);
        self.read_states(cx, &answer);
        let moved = before != (self.state, self.physical_state);
        if moved && self.rate_file.is_quarantined() {
            self.rate_file = PolledFile::new(self.dir.join("rate"));
        }
        if scope.full || moved {
            // On a port that is down, `rate` is empty, wrong, or fails with EINVAL.
            let active = matches!(self.state, Reading::Value(PortState::Active | PortState::ActiveDefer));
            self.rate = if active { self.rate_file.read(cx, parse_rate) } else { Reading::Absent };
            // Ethernet has no subnet manager and no LIDs; netlink omits them, the files hold 0.
            if answer == QueryOutcome::Silent && self.link_layer != Some(LinkLayer::Ethernet) {
                let lid = self.lid_file.read(cx, parse_lid).value();
                self.lids = (lid, self.sm_lid_file.read(cx, parse_lid).value());
            }
        }
        if scope.seldom {
            self.read_seldom(cx);
        }
        if let QueryOutcome::Reply(reply) = &answer {
            self.take_netdev(nldev::port(reply).netdev);
        }
        if scope.full {
            self.read_counters(cx, client);
        }
        Some(self.port())
    }

    fn read_states(&mut self, cx: &mut ReadContext<'_>, answer: &QueryOutcome) {
        let told = match answer {
            QueryOutcome::Failed(reason) => {
                (self.state, self.physical_state) = (Reading::Unreadable(*reason), Reading::Unreadable(*reason));
                self.lids = (None, None);
                return;
            }
            QueryOutcome::Reply(reply) => nldev::port(reply),
            QueryOutcome::Silent => nldev::PortAttributes::default(),
        };
        self.state = match told.state {
            Some(code) => PortState::from_code(code).into(),
            None => self.state_file.read(cx, parse_state),
        };
        self.physical_state = match told.physical_state {
            Some(code) => PhysicalState::from_code(code).into(),
            None => self.physical_state_file.read(cx, parse_physical_state),
        };
        if matches!(answer, QueryOutcome::Reply(_)) {
            self.lids = (told.lid, told.sm_lid);
        }
    }

    /// The GID table's first entry, from the kernel's memory.
    fn read_seldom(&mut self, cx: &mut ReadContext<'_>) {
        self.guid = read_once(cx, &self.dir.join("gids/0"), parse_gid);
        // EINVAL means that the entry has no interface, as on every InfiniBand port.
        let netdev = PolledFile::new(self.dir.join("gid_attrs/ndevs/0")).read_unless_down(cx, text::label);
        self.netdev = netdev.value().or_else(|| self.other_netdev(cx));
    }

    /// The interface of a port whose GID table names none.
    fn other_netdev(&mut self, cx: &mut ReadContext<'_>) -> Option<Arc<str>> {
        let device = self.dir.parent()?.parent()?.to_owned();
        match &self.link_layer {
            Some(LinkLayer::Ethernet) => interface::by_number(cx, &device, self.number),
            // EFA. All interfaces of the host are looked at, so not again while the GID is the same.
            Some(LinkLayer::Other(_)) => {
                if self.guid != self.searched {
                    self.searched = self.guid;
                    self.by_address = self.guid.and_then(|guid| interface::by_address(cx, guid));
                }
                self.by_address.clone()
            }
            Some(LinkLayer::InfiniBand) | None => None,
        }
    }

    fn take_netdev(&mut self, name: Option<&str>) {
        if name.is_some() && self.netdev.as_deref() != name {
            self.netdev = name.map(Arc::from);
        }
    }

    fn read_counters(&mut self, cx: &mut ReadContext<'_>, client: Option<&mut RdmaNetlinkClient>) {
        let answer = match client {
            Some(client) if self.counters.has_hardware() => client.ask(cx, NldevCommand::StatGet, Some(self.number)),
            _ => QueryOutcome::Silent,
        };
        let source = match &answer {
            QueryOutcome::Reply(reply) => CounterSource::Reply(reply),
            QueryOutcome::Silent => CounterSource::Files,
            QueryOutcome::Failed(_) => CounterSource::Nothing,
        };
        self.counters.read(cx, &source);
    }

    fn port(&self) -> Port {
        Port {
            number: self.number,
            link_layer: self.link_layer.clone(),
            state: self.state,
            physical_state: self.physical_state,
            rate: self.rate,
            lid: self.lids.0,
            sm_lid: self.lids.1,
            netdev: self.netdev.clone(),
            guid: self.guid,
            pma: self.counters.pma(),
            hardware: self.counters.hardware(),
        }
    }

    /// How many of its files are quarantined.
    pub(super) fn quarantined(&self) -> usize {
        let files = [&self.state_file, &self.physical_state_file, &self.rate_file, &self.lid_file, &self.sm_lid_file];
        files.into_iter().filter(|file| file.is_quarantined()).count() + self.counters.quarantined()
    }
}

/// `state`: `4: ACTIVE`, by its word.
fn parse_state(bytes: &[u8]) -> Reading<PortState> {
    word(bytes, |word| PortState::ALL.into_iter().find(|state| state.as_str() == word))
}

/// `phys_state`: `5: LinkUp`, by its word.
fn parse_physical_state(bytes: &[u8]) -> Reading<PhysicalState> {
    word(bytes, |word| PhysicalState::ALL.into_iter().find(|state| state.as_str() == word))
}

fn word<T>(bytes: &[u8], find: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
    let Some((code, word)) = std::str::from_utf8(bytes).ok().and_then(|text| text.split_once(": ")) else {
        return Reading::Unreadable(ReadError::Malformed);
    };
    match find(word) {
        _ if parse_decimal(code.as_bytes()).is_none() => Reading::Unreadable(ReadError::Malformed),
        Some(found) => Reading::Value(found),
        None if matches!(word, "UNKNOWN" | "<unknown>") => Reading::Absent,
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

/// `rate`: `200 Gb/sec (4X HDR)`. Kernels before 4.17 wrote no word for SDR: `10 Gb/sec (4X)`. No text and a rate of
/// zero are absent.
fn parse_rate(bytes: &[u8]) -> Reading<PortRate> {
    if bytes.is_empty() {
        return Reading::Absent;
    }
    match std::str::from_utf8(bytes).ok().and_then(rate_of) {
        Some(rate) if rate.bandwidth.0 > 0.0 => Reading::Value(rate),
        Some(_) => Reading::Absent,
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

fn rate_of(text: &str) -> Option<PortRate> {
    let (number, rest) = text.split_once(' ')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if parse_decimal(whole.as_bytes()).is_none() || parse_decimal(fraction.as_bytes()).is_none() {
        return None;
    }
    let bandwidth = BytesPerSecond::from_gbits(number.parse().ok()?);
    let (unit, lanes) = rest.split_once(' ').map_or((rest, None), |(unit, lanes)| (unit, Some(lanes)));
    if !matches!(unit, "Gb/sec" | "GB/sec" | "gb/sec" | "gB/sec") {
        return None;
    }
    let Some(lanes) = lanes else {
        return Some(PortRate { bandwidth, width: None, speed: Speed::Other });
    };
    let lanes = lanes.strip_prefix('(')?.strip_suffix(')')?;
    let (width, word) = lanes.split_once(' ').map_or((lanes, None), |(width, word)| (width, Some(word)));
    let width = u8::try_from(parse_decimal(width.strip_suffix('X')?.as_bytes())?).ok()?;
    Some(PortRate { bandwidth, width: Some(width), speed: word.map_or(Some(Speed::Sdr), speed)? })
}

fn speed(word: &str) -> Option<Speed> {
    let known =
        [Speed::Sdr, Speed::Ddr, Speed::Qdr, Speed::Fdr10, Speed::Fdr, Speed::Edr, Speed::Hdr, Speed::Ndr, Speed::Xdr];
    let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    plain.then(|| known.into_iter().find(|speed| speed.as_str() == word).unwrap_or(Speed::Other))
}

/// `link_layer`: one word.
fn parse_link_layer(bytes: &[u8]) -> Reading<LinkLayer> {
    match std::str::from_utf8(bytes) {
        Ok("") => Reading::Absent,
        Ok("InfiniBand") => Reading::Value(LinkLayer::InfiniBand),
        Ok("Ethernet") => Reading::Value(LinkLayer::Ethernet),
        Ok(word) => Reading::Value(LinkLayer::Other(Arc::from(word))),
        Err(_) => Reading::Unreadable(ReadError::Malformed),
    }
}

/// `lid` and `sm_lid`: `0x364`.
fn parse_lid(bytes: &[u8]) -> Reading<u32> {
    match parse_hex(bytes).and_then(|lid| u32::try_from(lid).ok()) {
        Some(lid) => Reading::Value(lid),
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MALFORMED: ReadError = ReadError::Malformed;

    #[test]
    fn states_by_their_words() {
        assert_eq!(parse_state(b"4: ACTIVE"), Reading::Value(PortState::Active));
        assert_eq!(parse_state(b"5: ACTIVE_DEFER"), Reading::Value(PortState::ActiveDefer));
        assert_eq!(parse_state(b"6: UNKNOWN"), Reading::Absent);
        assert_eq!(parse_physical_state(b"7: Phy Test"), Reading::Value(PhysicalState::PhyTest));
        assert_eq!(parse_physical_state(b"0: <unknown>"), Reading::Absent);
        for wrong in [&b"4: ACTIV"[..], b"ACTIVE", b"", b"x: ACTIVE", b"4:ACTIVE", b"\xff: ACTIVE"] {
            assert_eq!(parse_state(wrong), Reading::Unreadable(MALFORMED), "{wrong:?}");
        }
        // Another file's word, as some hand-made trees have it.
        assert_eq!(parse_physical_state(b"4: ACTIVE"), Reading::Unreadable(MALFORMED));
    }

    #[test]
    fn rates_of_every_kernel() {
        let made = |text: &str| match parse_rate(text.as_bytes()) {
            Reading::Value(rate) => (rate.bandwidth.gbits(), rate.width, rate.speed),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(made("200 Gb/sec (4X HDR)"), (200.0, Some(4), Speed::Hdr));
        assert_eq!(made("2.5 Gb/sec (1X SDR)"), (2.5, Some(1), Speed::Sdr));
        assert_eq!(made("10 Gb/sec (4X)"), (10.0, Some(4), Speed::Sdr));
        assert_eq!(made("800 Gb/sec (4X XDR)"), (800.0, Some(4), Speed::Xdr));
        assert_eq!(made("10 Gb/sec (1X FDR10)"), (10.0, Some(1), Speed::Fdr10));
        assert_eq!(made("1600 Gb/sec (4X GDR)"), (1600.0, Some(4), Speed::Other));
        assert_eq!(made("100 Gb/sec"), (100.0, None, Speed::Other));
        assert_eq!(parse_rate(b""), Reading::Absent);
        assert_eq!(parse_rate(b"0 GB/sec"), Reading::Absent);
        assert_eq!(parse_rate(b"0 Gb/sec (4X SDR)"), Reading::Absent);
        for wrong in [
            "-1X",
            "200",
            "200 Gb/s (4X HDR)",
            "200 Gb/sec (4X HDR",
            "200 Gb/sec (X HDR)",
            "+2 Gb/sec",
            "1e9 Gb/sec",
            "200  Gb/sec",
            "200 Gb/sec (4X hdr)",
            "200 Gb/sec (4X )",
            "200. Gb/sec",
            "999 Gb/sec (999X)",
        ] {
            assert_eq!(parse_rate(wrong.as_bytes()), Reading::Unreadable(MALFORMED), "{wrong}");
        }
    }

    #[test]
    fn other_files() {
        assert_eq!(parse_link_layer(b"InfiniBand"), Reading::Value(LinkLayer::InfiniBand));
        assert_eq!(parse_link_layer(b"Unspecified"), Reading::Value(LinkLayer::Other("Unspecified".into())));
        assert_eq!(parse_link_layer(b""), Reading::Absent);
        assert_eq!(parse_gid(b"fe80:0000:0000:0000:0c42:a103:0065:2ee2"), Reading::Value(Guid(0x0c42_a103_0065_2ee2)));
        assert_eq!(parse_gid(b"0000:0000:0000:0000:0000:0000:0000:0000"), Reading::Absent);
        assert_eq!(parse_gid(b"0000:0000:0000:0000:0000:ffff:c0a8:0101"), Reading::Absent);
        for wrong in [&b""[..], b"what?", b"\xff\xfe", b"fe80::1", b"fe80:0000:0000:0000:0c42:a103:0065"] {
            assert_eq!(parse_gid(wrong), Reading::Unreadable(MALFORMED), "{wrong:?}");
        }
        assert_eq!(parse_lid(b"0x364"), Reading::Value(0x364));
        assert_eq!(parse_lid(b"0xffffffff1"), Reading::Unreadable(MALFORMED));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (parse_state(&bytes), parse_physical_state(&bytes), parse_rate(&bytes), parse_link_layer(&bytes), parse_lid(&bytes), parse_gid(&bytes));
        }

        #[test]
        fn every_rate_survives_its_text(gbits in 1u32..2000, width in 1u8..=12, half in any::<bool>()) {
            let dot = if half { ".5" } else { "" };
            let Reading::Value(got) = parse_rate(format!("{gbits}{dot} Gb/sec ({width}X NDR)").as_bytes()) else {
                return Err(TestCaseError::fail("no value"));
            };
            let expected = f64::from(gbits) + if half { 0.5 } else { 0.0 };
            prop_assert!((got.bandwidth.gbits() - expected).abs() < 1e-9);
            prop_assert_eq!((got.width, got.speed), (Some(width), Speed::Ndr));
        }
    }
}
