//! Ports that should be up and are not, and what to do about it.

use super::View;
use super::limits::{PORT_DOWN_HOLD, SUBNET_MANAGER_HOLD};
use super::links::{DownCause, down_cause};
use super::ports::{baseline, ports, state};
use super::verdicts::Verdicts;
use super::vf::config::enable_link;
use crate::model::check::{Check, Severity};
use crate::model::counter::CounterKind;
use crate::model::finding::{Condition, Subject};
use crate::model::ids::{Guid, PortKey};
use crate::model::net::Netdev;
use crate::model::rdma::{LinkLayer, PhysicalState, Port, PortState, RdmaDevice};
use crate::model::reading::Reading;
use crate::model::reason::FindingReason;
use crate::model::sriov::{Pf, VfConfig, VfLink};

/// `port_down`: expected up, and not ACTIVE or not LinkUp. A device of which the host shows no port is not known.
pub fn down(view: &View<'_>, verdicts: &mut Verdicts) {
    for device in view.snapshot.devices().filter(|device| device.ports.is_empty()) {
        let subject = Subject::Device(device.name.clone());
        let directory = format!("/{}/ports", device.name);
        let faults = view.snapshot.collector("rdma").map_or(&[][..], |rdma| &rdma.faults);
        match faults.iter().find(|fault| fault.source.ends_with(&directory)) {
            Some(fault) => verdicts.unknown(Check::PortDown, subject, Some(fault.reason)),
            None => verdicts.unreported(Check::PortDown, subject),
        }
    }
    for (device, port, key) in ports(view) {
        let subject = Subject::Port(key.clone());
        let Some(state) = state(port, Check::PortDown, &key, verdicts) else { continue };
        let linked = port.physical_state.value().is_none_or(|physical| physical == PhysicalState::LinkUp);
        let says_up = state == PortState::ActiveDefer || (state == PortState::Active && linked);
        let dark = view.snapshot.all::<Netdev>().find(|netdev| says_up && port.lacks_carrier(netdev));
        if says_up && dark.is_none() {
            verdicts.ok(Check::PortDown);
            continue;
        }
        let Some(expected) = expected_up(view, device, port, &key) else {
            verdicts.skipped(Check::PortDown);
            continue;
        };
        let waits = matches!(state, PortState::Init | PortState::Armed);
        let (reason, summary) = match dark {
            Some(netdev) => describe_dark(&key, state, netdev, &expected_text(port, expected)),
            None => describe_down(view, device, port, &key, state, expected),
        };
        let hold = if waits { SUBNET_MANAGER_HOLD } else { PORT_DOWN_HOLD };
        verdicts.found(
            Condition::new(Check::PortDown, subject, Severity::Critical, reason, summary)
                .address(device.identity.pci_address)
                .with_evidence("state", Some(state.as_str()))
                .with_evidence("physical_state", port.physical_state.value().map(PhysicalState::as_str))
                .with_evidence("expected_by", Some(expected.as_str()))
                .with_evidence(
                    "link_cause",
                    down_cause(view, device, port).and_then(|down| Some(down.cause?.to_string())),
                )
                .hold(hold),
        );
    }
}

/// What expects a port to be up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedBy {
    Policy,
    Baseline,
    OwnCounters,
}

impl ExpectedBy {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Baseline => "baseline",
            Self::OwnCounters => "its own counters",
        }
    }
}

/// What expects a port to be up; `None` if nothing does.
fn expected_up(view: &View<'_>, device: &RdmaDevice, port: &Port, key: &PortKey) -> Option<ExpectedBy> {
    match view.policy.port_up(key) {
        Some(true) => return Some(ExpectedBy::Policy),
        Some(false) => return None,
        None => {}
    }
    if baseline(view.history, device).and_then(|known| known.ports.get(&port.number)).is_some_and(|port| port.active) {
        return Some(ExpectedBy::Baseline);
    }
    past_life(port).is_some().then_some(ExpectedBy::OwnCounters)
}

/// What shows that a port was up before. A `link_downed` among the hardware counters does not: rdma_rxe, whose alone it is,
/// counts each time that it finds the interface down, at first when it is created (`drivers/infiniband/sw/rxe/rxe_net.c`).
fn past_life(port: &Port) -> Option<String> {
    if let Some(lid) = port.lid.filter(|lid| *lid != 0) {
        return Some(format!("it still has LID {lid}"));
    }
    let counted =
        |name: &str, count: Option<u64>| count.filter(|count| *count > 0).map(|count| format!("{name} is {count}"));
    let received = || port.total(|meaning| (meaning == CounterKind::ReceivedPackets).then_some(1));
    let received = || received().filter(|count| *count > 0).map(|count| format!("it has received {count} packets"));
    counted("link_downed", port.pma.get("link_downed"))
        .or_else(|| counted("port_rcv_packets", port.counter("port_rcv_packets")))
        .or_else(received)
}

/// What expects a port to be up, in words.
fn expected_text(port: &Port, expected: ExpectedBy) -> String {
    match expected {
        ExpectedBy::Policy => "the policy expects it up".to_owned(),
        ExpectedBy::Baseline => "it was up before".to_owned(),
        ExpectedBy::OwnCounters => {
            past_life(port).map_or("it was up before".to_owned(), |proof| format!("it was up before: {proof}"))
        }
    }
}

/// A port that says that it is up, over an interface that is not.
fn describe_dark(key: &PortKey, state: PortState, netdev: &Netdev, why: &str) -> (FindingReason, String) {
    let (word, name) = (state.as_str(), &netdev.name);
    let text = format!(
        "{key} reports {word}, but its interface {name} ({}) has no carrier, so it cannot carry traffic. Check \
         `ip link show {name}` and the kernel log ({why}).",
        netdev.pci_address
    );
    (FindingReason::NoCarrier, text)
}

/// The VF behind a device, with its PF and configuration, where this host has the PF.
fn vf_of<'a>(view: &View<'a>, key: &PortKey) -> Option<(&'a Pf, u32, VfConfig)> {
    let mut vfs = view.snapshot.all::<Pf>().flat_map(|pf| pf.vfs.iter().map(move |vf| (pf, vf)));
    let (pf, vf) = vfs.find(|(_, vf)| vf.devices.contains(&key.device))?;
    Some((pf, vf.number, vf.config.unwrap_or_default()))
}

/// What the PF has to set before a VF's port can be up; `None` if that is not what is missing.
fn describe_vf_down(pf: &Pf, vf: u32, config: &VfConfig, port: &Port) -> Option<(FindingReason, String)> {
    if config.link == Some(VfLink::Disable) {
        let text = format!("its PF keeps this VF's link down. {}", enable_link(pf, vf));
        return Some((FindingReason::LinkDisabled, text));
    }
    let is_unset = |guid: Option<Guid>| guid.is_some_and(Guid::is_zero);
    if port.link_layer == Some(LinkLayer::InfiniBand) && (is_unset(config.node_guid) || is_unset(config.port_guid)) {
        let netdev = pf.netdevs.first().map_or("PF", |name| name);
        let text = format!(
            "this VF has no GUIDs. Set both on the PF (`ip link set {netdev} vf {vf} node_guid ... port_guid ...`), then \
             rebind its driver"
        );
        return Some((FindingReason::GuidZero, text));
    }
    None
}

fn describe_down(
    view: &View<'_>,
    device: &RdmaDevice,
    port: &Port,
    key: &PortKey,
    state: PortState,
    expected: ExpectedBy,
) -> (FindingReason, String) {
    let word = state.as_str();
    let why = expected_text(port, expected);
    let vf = vf_of(view, key);
    if let Some((pf, vf, config)) = vf
        && let Some((reason, text)) = describe_vf_down(pf, vf, &config, port)
    {
        return (reason, format!("{key} is {word}: {text} ({why})."));
    }
    if matches!(state, PortState::Init | PortState::Armed) && vf.is_some() {
        let text = "the subnet manager has not configured this VF. Check that it serves VFs (`virt_enabled 2` in NVIDIA's \
                    opensm.conf) and that the VF's port GUID is in its partitions";
        return (FindingReason::NoSubnetManager, format!("{key} is {word}: {text} ({why})."));
    }
    if matches!(state, PortState::Init | PortState::Armed) {
        let text = "the link is up but no subnet manager has configured it. Check that a subnet manager runs and reaches this port";
        return (FindingReason::NoSubnetManager, format!("{key} is {word}: {text} ({why})."));
    }
    let physical = port.physical_state.value();
    if let Some(DownCause { reason, text: Some(text), .. }) = down_cause(view, device, port) {
        return (reason.unwrap_or(FindingReason::NoCarrier), format!("{key} is {word}: {text} ({why})."));
    }
    if port.link_layer == Some(LinkLayer::Ethernet) {
        let netdev = port.netdev.as_deref();
        let known = netdev.and_then(|name| view.snapshot.all::<Netdev>().find(|n| *n.name == *name));
        let text = match (netdev, known.map(|n| n.carrier)) {
            (Some(name), Some(Reading::Value(false))) => {
                format!("{name} has no carrier. Check cable, module and the other end")
            }
            (Some(name), _) => {
                format!("{name} is administratively down or has no carrier. Check with `ip link show {name}`")
            }
            (None, _) => "its network interface is administratively down or has no carrier".to_owned(),
        };
        return (FindingReason::NoCarrier, format!("{key} is {word}: {text} ({why})."));
    }
    let (reason, text) = match physical {
        Some(PhysicalState::Disabled) => {
            (FindingReason::Disabled, "disabled by an administrator or a tool. Enable it if that was not intended")
        }
        Some(PhysicalState::Polling) => {
            (FindingReason::Polling, "no link partner. Check cable, module and switch port")
        }
        Some(PhysicalState::Training | PhysicalState::Recovery) => {
            (FindingReason::Training, "the link keeps training. Check cable and module")
        }
        Some(PhysicalState::LinkUp) | None => (FindingReason::Down, "check cable, switch port and subnet manager"),
        Some(PhysicalState::Sleep | PhysicalState::PhyTest) => {
            (FindingReason::Down, "the port is in sleep or test mode")
        }
    };
    let physical = physical.map_or("unknown", PhysicalState::as_str);
    (reason, format!("{key} is {word} ({physical}): {text} ({why})."))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::assess::testing::seen;
    use crate::model::counter::{Counters, layout};
    use crate::model::ids::DeviceName;
    use crate::model::rdma::DeviceIdentity;
    use crate::model::snapshot::Fact;
    use crate::model::sriov::Vf;
    use crate::model::time::BootTime;

    /// A port that is down, with a counter in one of the two directories.
    fn port(link_layer: LinkLayer, pma: &[(&str, u64)], hardware: &[(&str, u64)]) -> Port {
        let names = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, _)| Arc::from(*name)).collect::<Vec<Arc<str>>>();
        let values = |pairs: &[(&str, u64)]| pairs.iter().map(|(_, value)| Some(*value)).collect();
        let (of_pma, of_driver) = layout(&names(pma), &names(hardware));
        Port {
            number: 1,
            link_layer: Some(link_layer),
            state: Reading::Value(PortState::Down),
            physical_state: Reading::Value(PhysicalState::Disabled),
            rate: Reading::Absent,
            lid: None,
            sm_lid: None,
            netdev: None,
            guid: None,
            pma: Counters { layout: of_pma, values: values(pma) },
            hardware: Counters { layout: of_driver, values: values(hardware) },
        }
    }

    /// What is found about the only port of a device, besides these facts.
    fn found(port: Port, mut facts: Vec<Fact>) -> Vec<(FindingReason, String)> {
        facts.push(Arc::new(RdmaDevice {
            name: DeviceName::new("rdma0"),
            identity: Arc::new(DeviceIdentity::default()),
            ports: vec![port],
            counters: Counters::default(),
            counters_at: BootTime(0),
        }));
        seen(facts, |view| {
            let mut verdicts = Verdicts::default();
            down(view, &mut verdicts);
            verdicts.conditions.into_iter().map(|found| (found.reason, found.summary)).collect()
        })
    }

    #[test]
    fn a_soft_roce_port_that_was_never_up_is_not_expected_up() {
        // As after `rdma link add`, over an interface that is down.
        assert_eq!(found(port(LinkLayer::Ethernet, &[], &[("link_downed", 1), ("sent_pkts", 0)]), Vec::new()), []);
        let before = found(port(LinkLayer::InfiniBand, &[("link_downed", 1)], &[]), Vec::new());
        assert!(before[0].1.contains("it was up before: link_downed is 1"), "{before:?}");
    }

    #[test]
    fn a_vf_that_is_down_names_what_its_pf_must_set() {
        let pf = |config: VfConfig| -> Vec<Fact> {
            let vf = Vf { number: 3, config: Some(config), devices: vec![DeviceName::new("rdma0")], ..Vf::default() };
            vec![Arc::new(Pf {
                netdevs: vec![Arc::from("ib4")],
                fabric: Some(crate::model::sriov::Fabric::InfiniBand),
                vfs: vec![vf],
                ..Pf::at("0000:98:00.0".parse().unwrap())
            })]
        };
        let was_up = || port(LinkLayer::InfiniBand, &[("link_downed", 1)], &[]);
        let link = VfConfig { link: Some(VfLink::Disable), ..VfConfig::default() };
        let [(reason, text)] = &found(was_up(), pf(link))[..] else { panic!() };
        assert_eq!(*reason, FindingReason::LinkDisabled);
        assert!(text.contains("`ip link set ib4 vf 3 state auto`"), "{text}");
        let guids = VfConfig { port_guid: Some(Guid(0)), ..VfConfig::default() };
        let [(reason, text)] = &found(was_up(), pf(guids))[..] else { panic!() };
        assert_eq!(*reason, FindingReason::GuidZero);
        assert!(text.contains("`ip link set ib4 vf 3 node_guid"), "{text}");
        let init = Port { state: Reading::Value(PortState::Init), ..was_up() };
        let [(reason, text)] = &found(init, pf(VfConfig::default()))[..] else { panic!() };
        assert_eq!(*reason, FindingReason::NoSubnetManager);
        assert!(text.contains("virt_enabled"), "{text}");
    }
}
