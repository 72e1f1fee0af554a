//! Counters of a port as the kernel names them: what each one counts, in which unit, and where it stops counting.

pub mod catalogue;

use std::sync::Arc;

/// What an event counter is about: the `class` label of `lanewatch_port_events_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterClass {
    /// Something was broken or lost on this link or by this device.
    Error,
    /// The fabric or the host could not keep up.
    Congestion,
    /// Sent again, or asked to be.
    Retransmission,
    /// Normal when connections end.
    Teardown,
    /// Work done.
    Traffic,
    /// Not judged: what the hardware corrected, and what is not known to this version.
    Other,
}

impl CounterClass {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Congestion => "congestion",
            Self::Retransmission => "retransmission",
            Self::Teardown => "teardown",
            Self::Traffic => "traffic",
            Self::Other => "other",
        }
    }
}

/// Which family a counter's value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterKind {
    /// Received bytes: the raw value times `unit` (4 for InfiniBand's 32-bit words, 1 where the driver says bytes).
    ReceivedBytes {
        /// Bytes per raw count.
        unit: u64,
    },
    /// Transmitted bytes: the raw value times `unit`.
    TransmittedBytes {
        /// Bytes per raw count.
        unit: u64,
    },
    /// Received packets.
    ReceivedPackets,
    /// Transmitted packets.
    TransmittedPackets,
    /// Ticks (of a length only the device knows) with data to send and no credit.
    TransmitWait,
    /// An event of a class.
    Event(CounterClass),
    /// A level, not a counter (bnxt_re's `active_qps`).
    Level,
}

/// Which directory a counter file stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterDirectory {
    /// `ports/<n>/counters`: InfiniBand performance management; narrow fields that stop at their maximum.
    Pma,
    /// `hw_counters` of a port or a device: the driver's own.
    Hardware,
}

/// One counter file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// File name, as the kernel spells it.
    pub name: Arc<str>,
    /// What its value means.
    pub meaning: CounterKind,
    /// The raw value at which the field stands still, where it does.
    pub limit: Option<u64>,
    /// The counter of `counters/` that it stands for, since that one could not be read.
    pub stands_for: Option<Arc<str>>,
}

/// The counters of a port or device in a fixed order, shared by all readings of it.
pub type CounterLayout = Arc<[Counter]>;

/// One reading of a layout's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// What is read.
    pub layout: CounterLayout,
    /// Raw values in the layout's order; `None` if the file could not be read.
    pub values: Vec<Option<u64>>,
}

impl Counters {
    /// Counters and their raw values, those that could not be read left out.
    pub fn iter(&self) -> impl Iterator<Item = (&Counter, u64)> {
        self.layout.iter().zip(&self.values).filter_map(|(counter, value)| value.map(|value| (counter, value)))
    }

    /// The raw value of the counter of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find_map(|(counter, value)| (*counter.name == *name).then_some(value))
    }

    /// The counters that stand at their field's maximum and no longer count. A greater value proves a wider field.
    pub fn saturated(&self) -> impl Iterator<Item = &Counter> {
        self.iter().filter_map(|(counter, value)| counter.limit.is_some_and(|limit| value == limit).then_some(counter))
    }

    /// The value for a meaning in its family's unit, without a counter that has stopped counting.
    pub fn total(&self, wanted: impl Fn(CounterKind) -> Option<u64>) -> Option<u64> {
        self.iter().find_map(|(counter, value)| wanted(counter.meaning).map(|unit| value.saturating_mul(unit)))
    }
}

/// Names the counters of one directory pair; where both directories have a name, or both count bytes, the PMA's
/// stands and the driver's is kept as an event or left out.
pub fn layout(pma: &[Arc<str>], hardware: &[Arc<str>]) -> (CounterLayout, CounterLayout) {
    let extended = pma.iter().any(|name| name.starts_with("unicast_"));
    let pma_counters: Vec<Counter> = pma
        .iter()
        .filter(|name| is_counter(name))
        .map(|name| Counter {
            name: Arc::clone(name),
            meaning: meaning(name, CounterDirectory::Pma),
            limit: pma_limit(name, extended),
            stands_for: None,
        })
        .collect();
    let hardware_counters = hardware
        .iter()
        .filter(|name| is_counter(name) && !pma.contains(name))
        .map(|name| {
            let meaning = match meaning(name, CounterDirectory::Hardware) {
                family @ (CounterKind::Event(_) | CounterKind::Level) => family,
                family if pma_counters.iter().any(|c| same_family(c.meaning, family)) => {
                    CounterKind::Event(CounterClass::Traffic)
                }
                family => family,
            };
            Counter { name: Arc::clone(name), meaning, limit: None, stands_for: None }
        })
        .collect();
    (pma_counters.into(), hardware_counters)
}

/// The driver's own counters, where they count what a counter of `counters/` counts that could not be read; `None` if none
/// of them does. bnxt_re has both, and its `counters/` fail with EINVAL on some kernels.
pub fn stand_ins(hardware: &CounterLayout, unread: &[&Counter]) -> Option<CounterLayout> {
    let stand_in = |counter: &Counter| {
        let own = meaning(&counter.name, CounterDirectory::Hardware);
        let is_traffic = !matches!(own, CounterKind::Event(_) | CounterKind::Level | CounterKind::TransmitWait);
        let other = unread.iter().find(|other| is_traffic && same_family(other.meaning, own))?;
        Some(Counter { meaning: own, stands_for: Some(Arc::clone(&other.name)), ..counter.clone() })
    };
    let found: Vec<Option<Counter>> = hardware.iter().map(stand_in).collect();
    let any = found.iter().any(Option::is_some);
    any.then(|| hardware.iter().zip(found).map(|(counter, found)| found.unwrap_or_else(|| counter.clone())).collect())
}

fn same_family(left: CounterKind, right: CounterKind) -> bool {
    std::mem::discriminant(&left) == std::mem::discriminant(&right)
}

/// Whether a file of a counter directory is one; `lifespan` is the cache time of the others.
pub fn is_counter(name: &str) -> bool {
    name != "lifespan" && !name.starts_with('.')
}

/// Where a PMA field stops: their widths are 4, 8, 16 or 32 bits. Data and packet counters have 64 bits when the
/// port has the extended set, which shows by its unicast counters, and 32 otherwise.
fn pma_limit(name: &str, extended: bool) -> Option<u64> {
    let bits = match name {
        "local_link_integrity_errors" | "excessive_buffer_overrun_errors" => 4,
        "link_error_recovery" | "link_downed" | "port_xmit_constraint_errors" | "port_rcv_constraint_errors" => 8,
        "symbol_error"
        | "port_rcv_errors"
        | "port_rcv_remote_physical_errors"
        | "port_rcv_switch_relay_errors"
        | "port_xmit_discards"
        | "VL15_dropped" => 16,
        "port_xmit_wait" => 32,
        "port_xmit_data" | "port_rcv_data" | "port_xmit_packets" | "port_rcv_packets" if !extended => 32,
        _ => return None,
    };
    Some((1 << bits) - 1)
}

/// What a counter of this name means.
pub fn meaning(name: &str, group: CounterDirectory) -> CounterKind {
    match (group, name) {
        (CounterDirectory::Pma, "port_rcv_data") => CounterKind::ReceivedBytes { unit: 4 },
        (CounterDirectory::Pma, "port_xmit_data") => CounterKind::TransmittedBytes { unit: 4 },
        (CounterDirectory::Pma, "port_rcv_packets")
        | (CounterDirectory::Hardware, "rx_pkts" | "rx_pkt" | "rcvd_pkts" | "rx_packets_cnt") => {
            CounterKind::ReceivedPackets
        }
        (CounterDirectory::Pma, "port_xmit_packets")
        | (CounterDirectory::Hardware, "tx_pkts" | "tx_pkt" | "sent_pkts" | "tx_packets_cnt") => {
            CounterKind::TransmittedPackets
        }
        (CounterDirectory::Pma, "port_xmit_wait") => CounterKind::TransmitWait,
        (CounterDirectory::Hardware, "rx_bytes" | "rx_bytes_cnt") => CounterKind::ReceivedBytes { unit: 1 },
        (CounterDirectory::Hardware, "tx_bytes" | "tx_bytes_cnt") => CounterKind::TransmittedBytes { unit: 1 },
        (CounterDirectory::Hardware, name) if is_level(name) => CounterKind::Level,
        _ => CounterKind::Event(class(name)),
    }
}

/// Levels among the drivers' counters (bnxt_re, mana).
fn is_level(name: &str) -> bool {
    name.starts_with("active_") || name.starts_with("watermark_") || catalogue::is_level(name)
}

/// The class of an event counter; names unknown to this version are [`CounterClass::Other`]. hfi1 has hundreds of
/// names by a rule: what ends in `Err` and was not corrected is an error.
pub fn class(name: &str) -> CounterClass {
    let name = name.strip_prefix("vport_").unwrap_or(name);
    let name = name.strip_suffix(",32").unwrap_or(name);
    // hfi1 numbers virtual lanes, engines and contexts: XmitDscdVl3.
    let unnumbered = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let numbered = || catalogue::find(unnumbered).filter(|_| name.starts_with(char::is_uppercase));
    match catalogue::find(name).or_else(numbered) {
        Some((_, class)) => class,
        None if has_traffic_prefix(name) => CounterClass::Traffic,
        None if name.ends_with("Err") && name.starts_with(char::is_uppercase) && !name.ends_with("CorErr") => {
            CounterClass::Error
        }
        None => CounterClass::Other,
    }
}

/// Families of names that drivers extend.
fn has_traffic_prefix(name: &str) -> bool {
    const PREFIXES: [&str; 9] =
        ["unicast_", "multicast_", "rdma_", "send_", "recv_", "ip4In", "ip4Out", "ip6In", "ip6Out"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(list: &[&str]) -> Vec<Arc<str>> {
        list.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn data_counters_are_words_of_four_bytes_only_in_the_pma() {
        let (pma, hardware) =
            layout(&names(&["port_rcv_data", "unicast_rcv_packets"]), &names(&["rx_bytes", "tx_bytes", "lifespan"]));
        let of = |layout: &CounterLayout, name: &str| layout.iter().find(|c| &*c.name == name).map(|c| c.meaning);
        assert_eq!(of(&pma, "port_rcv_data"), Some(CounterKind::ReceivedBytes { unit: 4 }));
        // The port's bytes are the PMA's; the driver's own count stays visible and is not a second series of the family.
        assert_eq!(of(&hardware, "rx_bytes"), Some(CounterKind::Event(CounterClass::Traffic)));
        assert_eq!(of(&hardware, "tx_bytes"), Some(CounterKind::TransmittedBytes { unit: 1 }));
        assert_eq!(of(&hardware, "lifespan"), None);
    }

    #[test]
    fn a_drivers_counter_stands_for_one_that_could_not_be_read() {
        let (pma, hardware) = layout(
            &names(&["port_rcv_data", "port_xmit_data", "port_rcv_packets"]),
            &names(&["rx_bytes", "tx_bytes", "rx_pkts", "active_qps", "seq_err_naks_rcvd"]),
        );
        let unread: Vec<&Counter> = pma.iter().filter(|counter| &*counter.name != "port_xmit_data").collect();
        let stand_ins = stand_ins(&hardware, &unread).unwrap();
        let of = |name: &str| stand_ins.iter().find(|c| &*c.name == name).unwrap();
        assert_eq!(of("rx_bytes").meaning, CounterKind::ReceivedBytes { unit: 1 });
        assert_eq!(of("rx_bytes").stands_for.as_deref(), Some("port_rcv_data"));
        assert_eq!(of("rx_pkts").stands_for.as_deref(), Some("port_rcv_packets"));
        assert_eq!(
            (of("tx_bytes").meaning, &of("tx_bytes").stands_for),
            (CounterKind::Event(CounterClass::Traffic), &None)
        );
        assert_eq!(of("active_qps").meaning, CounterKind::Level);
        assert_eq!(super::stand_ins(&hardware, &[]), None);
    }

    #[test]
    fn a_name_in_both_directories_is_read_once() {
        let (pma, hardware) = layout(&names(&["link_downed"]), &names(&["link_downed", "sent_pkts"]));
        assert_eq!(pma.len(), 1);
        assert_eq!(hardware.iter().map(|c| c.name.to_string()).collect::<Vec<_>>(), ["sent_pkts"]);
    }

    #[test]
    fn fields_stop_at_their_width() {
        let (plain, _) = layout(&names(&["port_rcv_data", "link_downed", "local_link_integrity_errors"]), &[]);
        let counters = Counters { layout: plain, values: vec![Some(0xffff_ffff), Some(254), Some(15)] };
        assert_eq!(
            counters.saturated().map(|c| c.name.to_string()).collect::<Vec<_>>(),
            ["port_rcv_data", "local_link_integrity_errors"]
        );
        let (extended, _) = layout(&names(&["port_rcv_data", "unicast_rcv_packets"]), &[]);
        let counters = Counters { layout: extended, values: vec![Some(0xffff_ffff), Some(1)] };
        assert_eq!(counters.saturated().count(), 0);
    }

    #[test]
    fn classes_follow_the_definitions() {
        assert_eq!(class("rnr_nak_retry_err"), CounterClass::Congestion);
        assert_eq!(class("req_cqe_flush_error"), CounterClass::Teardown);
        assert_eq!(class("vport_out_of_buffer"), CounterClass::Congestion);
        assert_eq!(class("RxTidFLGMs,32"), CounterClass::Retransmission);
        assert_eq!(class("RxICrcErr,32"), CounterClass::Error);
        assert_eq!(class("XmitDscdVl3"), CounterClass::Congestion);
        assert_eq!(class("RcvHdrOvr159"), CounterClass::Congestion);
        assert_eq!(class("Pio Reserved 31"), CounterClass::Other);
        assert_eq!(class("ip4InOctets"), CounterClass::Traffic);
        assert_eq!(class("impaired_remote_conn_events"), CounterClass::Error);
        assert_eq!(class("PioWriteOverflowErr"), CounterClass::Error);
        assert_eq!(class("RxRbufDataCorErr"), CounterClass::Other);
        assert_eq!(meaning("tx_bytes_cnt", CounterDirectory::Hardware), CounterKind::TransmittedBytes { unit: 1 });
    }

    proptest! {
        #[test]
        fn no_name_breaks_the_tables(name in any::<String>(), like in "[a-z0-9_]{0,24}") {
            for name in [&*name, &*like] {
                let _ = (is_counter(name), class(name), meaning(name, CounterDirectory::Pma), meaning(name, CounterDirectory::Hardware));
            }
        }
    }
}
