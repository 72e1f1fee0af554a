//! Requests and replies of rdma netlink's device client (`RDMA_NL_NLDEV`; `uapi/rdma/rdma_netlink.h`,
//! `drivers/infiniband/core/nldev.c`). Bytes in, facts out; what a kernel does not send is absent.

use super::message;
use super::message::{Attributes, number8, number32, number64, text};

/// The netlink protocol of RDMA.
pub const PROTOCOL: isize = 20;

/// `RDMA_NL_NLDEV << 10`.
const CLIENT: u16 = 5 << 10;

const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const LID: u16 = 9;
const SM_LID: u16 = 10;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const RES_SUMMARY: u16 = 15;
const RES_SUMMARY_ENTRY: u16 = 16;
const RES_SUMMARY_ENTRY_NAME: u16 = 17;
const RES_SUMMARY_ENTRY_CURR: u16 = 18;
const RES_QP: u16 = 19;
const RES_QP_ENTRY: u16 = 20;
const RES_TYPE: u16 = 26;
const RES_STATE: u16 = 27;
const NDEV_NAME: u16 = 51;
const SYS_NETNS_MODE: u16 = 66;
const STAT_HWCOUNTERS: u16 = 80;
const STAT_HWCOUNTER_ENTRY: u16 = 81;
const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
const SYS_COPY_ON_FORK: u16 = 93;

/// A command of rdma netlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NldevCommand {
    /// A device, or all of them: index, name, number of ports. From memory.
    Get,
    /// A port's state, from one `ib_query_port`.
    PortGet,
    /// Settings of the RDMA subsystem. From memory.
    SysGet,
    /// How many objects programs hold on a device. From memory.
    ResGet,
    /// Queue pairs one by one. Each costs the device a firmware command.
    ResQpGet,
    /// The hardware counters of a port, from one refresh of the whole set.
    StatGet,
}

impl NldevCommand {
    /// The kernel's number.
    const fn code(self) -> u16 {
        match self {
            Self::Get => 1,
            Self::PortGet => 5,
            Self::SysGet => 6,
            Self::ResGet => 9,
            Self::ResQpGet => 10,
            Self::StatGet => 17,
        }
    }

    /// The kernel's name, without its prefix.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::PortGet => "PORT_GET",
            Self::SysGet => "SYS_GET",
            Self::ResGet => "RES_GET",
            Self::ResQpGet => "RES_QP_GET",
            Self::StatGet => "STAT_GET",
        }
    }
}

/// Asks for all devices.
pub fn dump_devices() -> Vec<u8> {
    message::request(CLIENT + NldevCommand::Get.code(), true, &[])
}

/// Asks for the settings of the RDMA subsystem.
pub fn system_request() -> Vec<u8> {
    message::request(CLIENT + NldevCommand::SysGet.code(), false, &[])
}

/// Asks for a list of what a device has.
pub fn dump(op: NldevCommand, index: u32) -> Vec<u8> {
    message::request(CLIENT + op.code(), true, &[(DEV_INDEX, index)])
}

/// Codes of type and state of the queue pairs in a reply of `RES_QP_GET`.
pub fn queue_pairs(reply: &[u8]) -> impl Iterator<Item = (u8, u8)> {
    let within = |kind: u16| move |(found, value)| (found == kind).then_some(value);
    let entries = Attributes::new(reply).filter_map(within(RES_QP)).flat_map(Attributes::new);
    entries.filter_map(within(RES_QP_ENTRY)).filter_map(move |entry: &[u8]| {
        let mut values = Attributes::new(entry);
        let kind = values.clone().find_map(within(RES_TYPE)).and_then(number8)?;
        Some((kind, values.find_map(within(RES_STATE)).and_then(number8)?))
    })
}

/// Asks about a device, or about one port of it.
pub fn request(op: NldevCommand, index: u32, port: Option<u32>) -> Vec<u8> {
    let attributes = [(DEV_INDEX, index), (PORT_INDEX, port.unwrap_or(0))];
    let (attributes, _) = attributes.split_at(if port.is_some() { 2 } else { 1 });
    message::request(CLIENT + op.code(), false, attributes)
}

/// The device that a reply is about; every reply but that of `SYS_GET` begins with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceAttributes<'a> {
    /// Index, unique until the next boot.
    pub index: Option<u32>,
    /// Name.
    pub name: Option<&'a str>,
}

/// Reads which device a reply is about.
pub fn device(reply: &[u8]) -> DeviceAttributes<'_> {
    let mut device = DeviceAttributes::default();
    for (kind, value) in Attributes::new(reply) {
        match kind {
            DEV_INDEX => device.index = number32(value),
            DEV_NAME => device.name = text(value),
            _ => {}
        }
    }
    device
}

/// A port in a reply of `PORT_GET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortAttributes<'a> {
    /// Code of the logical state.
    pub state: Option<u8>,
    /// Code of the physical state.
    pub physical_state: Option<u8>,
    /// Local identifier; the kernel sends it for InfiniBand ports only.
    pub lid: Option<u32>,
    /// The subnet manager's identifier; InfiniBand only.
    pub sm_lid: Option<u32>,
    /// The network interface on the port, if it is in the agent's network namespace.
    pub netdev: Option<&'a str>,
}

/// Reads a reply of `PORT_GET`.
pub fn port(reply: &[u8]) -> PortAttributes<'_> {
    let mut port = PortAttributes::default();
    for (kind, value) in Attributes::new(reply) {
        match kind {
            PORT_STATE => port.state = number8(value),
            PORT_PHYS_STATE => port.physical_state = number8(value),
            LID => port.lid = number32(value),
            SM_LID => port.sm_lid = number32(value),
            NDEV_NAME => port.netdev = text(value).filter(|name| !name.is_empty()),
            _ => {}
        }
    }
    port
}

/// Settings in a reply of `SYS_GET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SystemAttributes {
    /// Whether all network namespaces see all devices.
    pub shared: Option<bool>,
    /// Whether memory of RDMA programs is copied at fork (Linux 5.13); `None` if the kernel does not report it.
    pub copy_on_fork: Option<bool>,
}

/// Reads a reply of `SYS_GET`.
pub fn system(reply: &[u8]) -> SystemAttributes {
    let mut system = SystemAttributes::default();
    for (kind, value) in Attributes::new(reply) {
        match kind {
            SYS_NETNS_MODE => system.shared = number8(value).map(|mode| mode == 1),
            SYS_COPY_ON_FORK => system.copy_on_fork = number8(value).map(|yes| yes != 0),
            _ => {}
        }
    }
    system
}

/// Names and values of hardware counters in a reply of `STAT_GET`, in the driver's order.
pub fn counters(reply: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    const NEST: [u16; 4] =
        [STAT_HWCOUNTERS, STAT_HWCOUNTER_ENTRY, STAT_HWCOUNTER_ENTRY_NAME, STAT_HWCOUNTER_ENTRY_VALUE];
    pairs(reply, NEST)
}

/// Kinds of objects and how many there are, in a reply of `RES_GET`.
pub fn resources(reply: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    const NEST: [u16; 4] = [RES_SUMMARY, RES_SUMMARY_ENTRY, RES_SUMMARY_ENTRY_NAME, RES_SUMMARY_ENTRY_CURR];
    pairs(reply, NEST)
}

/// Pairs of name and number: a list, in it entries, in each the two; an entry without both is left out.
fn pairs(reply: &[u8], [list, entry, name, number]: [u16; 4]) -> impl Iterator<Item = (&str, u64)> {
    let within = move |kind: u16| move |(found, value)| (found == kind).then_some(value);
    Attributes::new(reply).filter_map(within(list)).flat_map(Attributes::new).filter_map(within(entry)).filter_map(
        move |pair: &[u8]| {
            let mut values = Attributes::new(pair);
            let named = values.clone().find_map(within(name)).and_then(text)?;
            Some((named, values.find_map(within(number)).and_then(number64)?))
        },
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::message::tests::attribute;
    use super::*;
    use proptest::prelude::*;

    /// The attributes that every reply about a device begins with.
    pub(crate) fn handle(index: u32, name: &str) -> Vec<u8> {
        [attribute(DEV_INDEX, &index.to_ne_bytes()), string(DEV_NAME, name)].concat()
    }

    fn string(kind: u16, text: &str) -> Vec<u8> {
        attribute(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// A reply of `PORT_GET` for an InfiniBand port.
    pub(crate) fn port_reply(index: u32, name: &str, state: u8, physical: u8, lid: u32) -> Vec<u8> {
        let mut reply = handle(index, name);
        reply.extend(attribute(PORT_INDEX, &1u32.to_ne_bytes()));
        reply.extend(attribute(0, &[]));
        reply.extend(attribute(4, &0x0a65_1e84_0000_0000u64.to_ne_bytes()));
        reply.extend(attribute(LID, &lid.to_ne_bytes()));
        reply.extend(attribute(SM_LID, &1u32.to_ne_bytes()));
        reply.extend(attribute(11, &[0]));
        reply.extend(attribute(PORT_STATE, &[state]));
        reply.extend(attribute(PORT_PHYS_STATE, &[physical]));
        reply
    }

    fn list(kinds: [u16; 4], flag: u16, pairs: &[(&str, u64)]) -> Vec<u8> {
        let entries: Vec<u8> = pairs
            .iter()
            .flat_map(|(name, value)| {
                let pad = attribute(0, &[]);
                attribute(kinds[1], &[string(kinds[2], name), pad, attribute(kinds[3], &value.to_ne_bytes())].concat())
            })
            .collect();
        attribute(kinds[0] | flag, &entries)
    }

    /// A reply of `STAT_GET`.
    pub(crate) fn counters_reply(index: u32, name: &str, pairs: &[(&str, u64)]) -> Vec<u8> {
        let port = attribute(PORT_INDEX, &1u32.to_ne_bytes());
        [handle(index, name), port, list([80, 81, 82, 83], 0x8000, pairs)].concat()
    }

    /// A reply of `RES_GET`.
    pub(crate) fn resources_reply(index: u32, name: &str, pairs: &[(&str, u64)]) -> Vec<u8> {
        [handle(index, name), list([15, 16, 17, 18], 0, pairs)].concat()
    }

    /// A reply of `RES_QP_GET` with queue pairs of these types and states.
    pub(crate) fn queue_pairs_reply(index: u32, name: &str, pairs: &[(u8, u8)]) -> Vec<u8> {
        let entry = |(number, (kind, state)): (u32, &(u8, u8))| {
            let parts = [
                attribute(PORT_INDEX, &1u32.to_ne_bytes()),
                attribute(21, &number.to_ne_bytes()),
                attribute(24, &0u32.to_ne_bytes()),
                attribute(RES_TYPE, &[*kind]),
                attribute(RES_STATE, &[*state]),
                attribute(28, &77u32.to_ne_bytes()),
            ];
            attribute(RES_QP_ENTRY, &parts.concat())
        };
        let entries: Vec<u8> = (0..).zip(pairs).flat_map(entry).collect();
        [handle(index, name), attribute(RES_QP, &entries)].concat()
    }

    /// A reply of `SYS_GET` by a kernel that knows copy-on-fork, or not.
    pub(crate) fn system_reply(copy_on_fork: bool) -> Vec<u8> {
        let mode = attribute(SYS_NETNS_MODE, &[1]);
        if copy_on_fork { [mode, attribute(SYS_COPY_ON_FORK, &[1])].concat() } else { mode }
    }

    #[test]
    fn requests_by_their_numbers() {
        let kind = |bytes: &[u8]| u16::from_ne_bytes([bytes[4], bytes[5]]);
        assert_eq!(kind(&dump_devices()), 0x1401);
        assert_eq!(kind(&system_request()), 0x1406);
        let port = request(NldevCommand::PortGet, 3, Some(2));
        assert_eq!((kind(&port), port.len()), (0x1405, 32));
        let resources = request(NldevCommand::ResGet, 3, None);
        assert_eq!((kind(&resources), resources.len()), (0x1409, 24));
        assert_eq!(kind(&request(NldevCommand::StatGet, 3, Some(1))), 0x1411);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_port_byte_for_byte() {
        #[rustfmt::skip]
        let reply = [
            8, 0, 1, 0, 2, 0, 0, 0,
            11, 0, 2, 0, b'm', b'l', b'x', b'5', b'_', b'2', 0, 0,
            8, 0, 3, 0, 1, 0, 0, 0,
            4, 0, 0, 0,
            12, 0, 4, 0, 0x84, 0x1e, 0x65, 0x0a, 0, 0, 0, 0,
            8, 0, 9, 0, 0x64, 3, 0, 0,
            8, 0, 10, 0, 1, 0, 0, 0,
            5, 0, 12, 0, 4, 0, 0, 0,
            5, 0, 13, 0, 5, 0, 0, 0,
            8, 0, 50, 0, 7, 0, 0, 0,
            9, 0, 51, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0,
            5, 0, 0xf0, 0x3f, 1, 0, 0, 0,
        ];
        assert_eq!(device(&reply), DeviceAttributes { index: Some(2), name: Some("mlx5_2") });
        let expected = PortAttributes {
            state: Some(4),
            physical_state: Some(5),
            lid: Some(0x364),
            sm_lid: Some(1),
            netdev: Some("eth0"),
        };
        assert_eq!(port(&reply), expected);
        for end in 0..reply.len() {
            let _ = (device(&reply[..end]), port(&reply[..end]));
        }
    }

    #[test]
    fn counters_and_resources_come_as_pairs() {
        let reply = counters_reply(0, "mlx5_0", &[("rx_write_requests", 5), ("out_of_buffer", u64::MAX)]);
        let seen: Vec<_> = counters(&reply).collect();
        assert_eq!(seen, [("rx_write_requests", 5), ("out_of_buffer", u64::MAX)]);
        assert_eq!(resources(&reply).count(), 0);
        let reply = resources_reply(0, "mlx5_0", &[("pd", 2), ("qp", 17)]);
        assert_eq!(resources(&reply).collect::<Vec<_>>(), [("pd", 2), ("qp", 17)]);
    }

    #[test]
    fn an_old_kernel_does_not_know_copy_on_fork() {
        assert_eq!(system(&system_reply(false)), SystemAttributes { shared: Some(true), copy_on_fork: None });
        assert_eq!(system(&system_reply(true)).copy_on_fork, Some(true));
    }

    proptest! {
        #[test]
        fn any_reply_decodes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (device(&bytes), port(&bytes), system(&bytes));
            let _ = (counters(&bytes).count(), resources(&bytes).count(), queue_pairs(&bytes).count());
        }

        #[test]
        fn every_counter_survives(list in proptest::collection::vec(("[a-zA-Z0-9_,]{1,31}", any::<u64>()), 0..40)) {
            let pairs: Vec<(&str, u64)> = list.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let reply = counters_reply(1, "x", &pairs);
            prop_assert_eq!(counters(&reply).collect::<Vec<_>>(), pairs);
        }
    }
}
