//! Who uses functions that are passed through: processes with vfio or uio open, libvirt domains, other network
//! namespaces; and what keeps functions ready for guests. Reads files only, never hardware.

pub mod cgroup;
pub mod libvirt;
mod namespaces;
mod pools;
mod processes;
mod proxmox;
mod qemu;
pub mod recorded;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, GoneReader, ReadContext, Setup, Spec};
use super::file::content;
use super::io::{Capabilities, reason_of};
use crate::model::holder::{CgroupOwner, MissingAccess};
use crate::model::reading::ReadError;

/// The collector of holders.
pub const SPEC: Spec = Spec {
    name: "holders",
    about: "VF users: processes with vfio or uio open, libvirt domains, network namespaces",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |_: &Setup| Box::new(HolderCollector),
};

const PROCESSES: &str = "processes";
const LIBVIRT: &str = "libvirt";
const NAMESPACES: &str = "namespaces";
const PROXMOX: &str = "proxmox";
const POOLS: &str = "pools";

struct HolderCollector;

impl Collector for HolderCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let found = |key: &str| Discovered { key: Arc::from(key), device: None };
        let mut all = vec![found(LIBVIRT), found(NAMESPACES), found(POOLS), found(PROCESSES)];
        if cx.host.io.stamp(&cx.host.roots.proxmox).is_ok() {
            all.push(found(PROXMOX));
        }
        Ok(all)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match &*found.key {
            PROCESSES => Box::new(processes::ProcessReader::default()),
            LIBVIRT => Box::new(libvirt::LibvirtReader::default()),
            NAMESPACES => Box::new(namespaces::NamespaceReader::default()),
            PROXMOX => Box::new(proxmox::ProxmoxReader::default()),
            POOLS => Box::new(pools::PoolReader::default()),
            _ => Box::new(GoneReader),
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    reason_of(error) == Some(ReadError::Permission)
}

/// The permission missing to resolve a descriptor or namespace of a process.
const fn hides_target(capabilities: Capabilities) -> MissingAccess {
    if capabilities.ptrace { MissingAccess::Refused } else { MissingAccess::Ptrace }
}

/// The permission missing to list a process's descriptors.
const fn hides_list(capabilities: Capabilities) -> MissingAccess {
    match (capabilities.search, capabilities.ptrace) {
        (false, false) => MissingAccess::Descriptors,
        (false, true) => MissingAccess::Search,
        (true, _) => hides_target(capabilities),
    }
}

/// The numbers of the processes that `/proc` shows.
fn pids(cx: &ReadContext<'_>) -> io::Result<Vec<u32>> {
    let names = cx.host.io.list(&cx.host.procfs)?;
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// What a process belongs to, by its control groups.
fn owner(cx: &ReadContext<'_>, pid: u32) -> Option<CgroupOwner> {
    let path = cx.host.procfs.join(pid.to_string()).join("cgroup");
    let bytes = content(&*cx.host.io, &path, cgroup::LONGEST).ok()?;
    cgroup::owner(std::str::from_utf8(&bytes).ok()?)
}

#[cfg(test)]
mod tests {
    //! Hosts whose functions are held by machines, pods, programs, namespaces, and nobody.

    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::libvirt::domain;
    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};
    use crate::model::holder::{DeviceFile, Libvirt, Namespaces, Openers};
    use crate::model::sriov::Mac;

    const POD: &str = "0::/kubepods.slice/kubepods-burstable.slice/\
                       kubepods-burstable-pod3b1f0a52_1111_4222_8333_944444444444.slice/cri-containerd-ab.scope\n";

    fn harness() -> CollectorHarness {
        let harness = CollectorHarness::new(&SPEC, Filter::default());
        harness.memory.symlink("/proc/self/ns/net", "net:[100]");
        harness
            .memory
            .symlink("/sys/bus/pci/drivers/vfio-pci/0000:98:00.1", "../../../../devices/pci0000:97/0000:98:00.1");
        harness
    }

    fn process(harness: &CollectorHarness, pid: u32, name: &str, line: &str, descriptors: &[&str]) {
        let at = |file: &str| format!("/proc/{pid}/{file}");
        harness.memory.set(at("comm"), format!("{name}\n"));
        harness.memory.set(at("cmdline"), line.replace(' ', "\0"));
        harness.memory.set(at("cgroup"), "0::/system.slice/x.service\n");
        harness.memory.symlink(at("ns/net"), "net:[100]");
        harness.memory.directory(at("fd"));
        for (number, target) in descriptors.iter().enumerate() {
            harness.memory.symlink(at(&format!("fd/{number}")), *target);
        }
    }

    fn read<T: Clone + 'static>(harness: &mut CollectorHarness) -> T {
        harness.discover().unwrap();
        facts::<T>(&harness.read()).pop().expect("a fact")
    }

    #[test]
    fn holders_are_vms_pods_and_programs() {
        let mut harness = harness();
        process(&harness, 10, "systemd", "/sbin/init", &["/dev/null"]);
        let qemu = "/usr/bin/qemu-system-x86_64 -name guest=vm1,debug-threads=on -S";
        process(&harness, 20, "qemu-system-x86", qemu, &["/dev/vfio/vfio", "/dev/vfio/40", "/dev/kvm"]);
        process(&harness, 30, "dpdk-testpmd", "/app/testpmd", &["/dev/vfio/devices/vfio3"]);
        harness.memory.set("/proc/30/cgroup", POD);
        process(&harness, 40, "vpp", "/usr/bin/vpp", &["anon_inode:[vfio-device]", "/dev/uio2"]);
        harness.memory.set("/proc/40/fdinfo/0", "pos:\t0\nvfio-device-syspath: /sys/devices/pci0000:97/0000:98:00.4\n");
        let openers: Openers = read(&mut harness);
        assert!(openers.missing.is_none() && openers.visible);
        let [vm, pod, program] = &openers.openers[..] else { panic!("{openers:?}") };
        assert_eq!((vm.domain.as_deref(), &*vm.handles), (Some("vm1"), &[DeviceFile::Group(40)][..]));
        let uid = pod.owner.as_ref().and_then(CgroupOwner::pod);
        assert_eq!(uid.map(|uid| &**uid), Some("3b1f0a52-1111-4222-8333-944444444444"));
        assert_eq!(
            program.handles,
            [DeviceFile::Node("uio2".into()), DeviceFile::Function("0000:98:00.4".parse().unwrap())]
        );
        harness.memory.remove("/proc/20");
        process(&harness, 50, "qemu-kvm", "/usr/libexec/qemu-kvm -name vm2", &["/dev/vfio/41"]);
        let openers: Openers = read(&mut harness);
        assert_eq!(openers.openers.last().and_then(|opener| opener.domain.as_deref()), Some("vm2"));
        assert_eq!(openers.openers.len(), 3);
    }

    #[test]
    fn without_permission_only_the_missing_capability_is_reported() {
        let mut harness = harness();
        process(&harness, 10, "systemd", "/sbin/init", &["/dev/null"]);
        harness.memory.remove("/proc/10/fd");
        harness.memory.fail("/proc/10/fd", Errno::ACCESS);
        let openers: Openers = read(&mut harness);
        assert!(openers.visible);
        assert_eq!(harness.faults, []);
    }

    #[test]
    fn a_host_without_processes_shows_no_holder() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        assert_eq!(read::<Openers>(&mut harness), Openers::default());
        assert_eq!(read::<Namespaces>(&mut harness).missing, Some(MissingAccess::Processes));
        let libvirt: Libvirt = read(&mut harness);
        assert_eq!((libvirt.domains.len(), libvirt.readable, libvirt.has_live), (0, true, false));
        assert_eq!(harness.faults, []);
    }

    #[test]
    fn interfaces_in_other_namespaces() {
        let mut harness = harness();
        process(&harness, 10, "systemd", "/sbin/init", &[]);
        process(&harness, 20, "app", "/app", &[]);
        harness.memory.symlink("/proc/20/ns/net", "net:[200]");
        harness.memory.set("/proc/20/cgroup", POD);
        let net = |name: &str| format!("{}/sys/class/net/{name}", "/proc/20/root");
        harness.memory.symlink(net("eth1"), "../../devices/pci0000:97/0000:98:00.1/net/eth1");
        harness.memory.symlink(net("lo"), "../../devices/virtual/net/lo");
        harness.memory.set("/proc/20/net/dev", "Inter-|   Receive\n face |bytes\n    lo: 0 0\n  eth1: 0 0\n");
        let found: Namespaces = read(&mut harness);
        let [eth1] = &found.interfaces[..] else { panic!("{found:?}") };
        assert_eq!(
            (eth1.address.to_string().as_str(), &*eth1.netdev, &*eth1.namespace),
            ("0000:98:00.1", "eth1", "200")
        );
        assert!(eth1.owner.is_some() && found.missing.is_none());
        // The `/sys` of another namespace does not show this one.
        harness.memory.set("/proc/20/net/dev", "Inter-|   Receive\n face |bytes\n    lo: 0 0\n");
        let found: Namespaces = read(&mut harness);
        assert_eq!((found.interfaces.len(), found.missing), (0, Some(MissingAccess::Namespace)));
    }

    #[test]
    fn a_named_namespace_without_a_process() {
        let mut harness = harness();
        process(&harness, 10, "systemd", "/sbin/init", &[]);
        harness.memory.set("/run/netns/blue", "");
        let found: Namespaces = read(&mut harness);
        assert_eq!(
            (found.missing, found.only_hidden().map(|name| &**name)),
            (Some(MissingAccess::Namespace), Some("blue"))
        );
        harness.memory.set("/run/netns/red", "");
        let found: Namespaces = read(&mut harness);
        assert_eq!((found.empty.len(), found.only_hidden()), (2, None));
        // Another that cannot be looked into may have the interface as well.
        harness.memory.remove("/run/netns/red");
        process(&harness, 20, "app", "/app", &[]);
        harness.memory.symlink("/proc/20/ns/net", "net:[200]");
        let found: Namespaces = read(&mut harness);
        assert_eq!((found.missing, found.only_hidden()), (Some(MissingAccess::Namespace), None));
    }

    const LIVE: &str = "<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n<domstatus state='running' reason='migrated' \
                        pid='3803518'>\n<monitor path='/x'/><devices><device alias='hostdev0'/></devices>\n<domain \
                        type='kvm' id='7'><name>a&amp;b</name><devices>\
                        <interface type='network'><mac address='02:00:00:00:00:01'/><source network='pool'/>\
                        <actual type='hostdev' managed='yes'><source><address type='pci' domain='0x0000' bus='0x98' \
                        slot='0x00' function='0x1'/></source><vlan><tag id='42'/></vlan></actual>\
                        <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>\
                        <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>\
                        </devices></domain></domstatus>";

    #[test]
    fn live_statuses_and_definitions() {
        let found = domain(LIVE.as_bytes()).unwrap();
        assert_eq!((&*found.name, found.live, found.pid, found.id), ("a&b", true, Some(3_803_518), Some(7)));
        assert_eq!((found.state.as_deref(), found.reason.as_deref()), (Some("running"), Some("migrated")));
        let [claim] = &found.claims[..] else { panic!("{found:?}") };
        assert_eq!((claim.address.to_string().as_str(), claim.vlan), ("0000:98:00.1", Some(42)));
        assert_eq!(claim.mac, Mac::parse("02:00:00:00:00:01"));
        // Decimal numbers, and the attributes in any order.
        let text = "<domain><name>vm1</name><devices><hostdev managed=\"yes\" type=\"pci\"><source><address function=\"1\" \
                    slot=\"0\" domain=\"1\" bus=\"13\"/></source><address function=\"1\" slot=\"5\" type=\"pci\" \
                    bus=\"0\"/></hostdev></devices></domain>";
        let found = domain(text.as_bytes()).unwrap();
        assert_eq!((found.live, found.claims[0].address.to_string().as_str()), (false, "0001:0d:00.1"));
        assert_eq!(domain(b"<network><name>pool</name></network>").map(|found| found.claims.len()), None);
        assert_eq!(domain(b"<domain><na"), None);
    }

    #[test]
    fn a_domain_that_runs_is_known_by_its_status() {
        let mut harness = harness();
        harness.memory.set("/run/libvirt/qemu/a.xml", LIVE);
        harness.memory.set("/run/libvirt/qemu/a.pid", "3803518");
        harness.memory.set("/etc/libvirt/qemu/a.xml", "<domain><name>a&amp;b</name></domain>");
        harness.memory.set("/etc/libvirt/qemu/b.xml", "<domain><name>b</name></domain>");
        harness.memory.directory("/etc/libvirt/qemu/networks");
        let libvirt: Libvirt = read(&mut harness);
        let names: Vec<(&str, bool)> = libvirt.domains.iter().map(|domain| (&*domain.name, domain.live)).collect();
        assert_eq!((names, libvirt.has_live, libvirt.readable), (vec![("a&b", true), ("b", false)], true, true));
        harness.memory.remove("/run/libvirt/qemu/a.xml");
        let libvirt: Libvirt = read(&mut harness);
        assert!(libvirt.domains.iter().all(|domain| !domain.live));
        harness.memory.fail("/run/libvirt/qemu/a.xml", Errno::ACCESS);
        assert!(!read::<Libvirt>(&mut harness).readable);
        assert_eq!(harness.faults, []);
    }

    proptest! {
        #[test]
        fn any_domain_file_parses_without_a_panic(text in "(<[a-z ='0-9/]{0,20}>|[a-z&;]{0,8}){0,20}") {
            let _ = domain(text.as_bytes());
            let _ = domain(LIVE.as_bytes().get(..text.len() * 7 % LIVE.len()).unwrap());
        }
    }

    #[test]
    fn the_missing_capability_is_named() {
        let capabilities = |search, ptrace| Capabilities { ptrace, search };
        assert_eq!(hides_list(capabilities(false, false)).as_str(), "CAP_SYS_PTRACE with CAP_DAC_READ_SEARCH");
        assert_eq!(hides_list(capabilities(false, true)).as_str(), "CAP_DAC_READ_SEARCH");
        assert_eq!(hides_list(capabilities(true, false)).as_str(), "CAP_SYS_PTRACE");
        assert_eq!(hides_target(capabilities(false, false)).as_str(), "CAP_SYS_PTRACE");
        // If all capabilities are there and access is still denied, none helps.
        for hidden in [hides_list(capabilities(true, true)), hides_target(capabilities(false, true))] {
            assert_eq!(hidden, MissingAccess::Refused);
            assert!(!hidden.as_str().contains("CAP_"));
        }
    }
}
