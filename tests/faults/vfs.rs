//! A host whose VFs are held by a machine, by a process, by another network namespace, by itself and by nobody: every
//! fault at every path that is read of it. One costs the VFs that it concerns, and nothing is left of it when it is
//! over.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use lanewatch::model::reading::ReadError;

use super::bench::{Bench, Seen};
use super::common::exposition::Sample;
use super::common::faulty::Faulty;
use super::common::tree::Tree;
use super::derived::Rule;
use super::table::{self, Kind};
use super::{AGAIN, FIRST, WORKERS, clean, paths, share_out, unexpected};

const COLLECTORS: [&str; 2] = ["sriov", "holders"];

/// Two PFs, InfiniBand and Ethernet, below one bridge.
const PFS: [&str; 2] = ["0000:41:00.0", "0000:42:00.0"];
const BRIDGE: &str = "sys/devices/pci0000:40";

/// A VF: of which PF, its number, its driver, and the process through which it is held.
struct Vf(usize, u32, Option<&'static str>, Option<u32>);

const VFS: [Vf; 7] = [
    Vf(0, 0, Some("vfio-pci"), Some(700)),
    Vf(0, 1, Some("mlx5_core"), None),
    Vf(0, 2, Some("vfio-pci"), None),
    Vf(0, 3, None, None),
    Vf(1, 0, Some("vfio-pci"), Some(800)),
    Vf(1, 1, Some("mlx5_core"), Some(900)),
    Vf(1, 2, Some("uio_pci_generic"), Some(801)),
];

impl Vf {
    fn pf(&self) -> &'static str {
        PFS[self.0]
    }

    fn address(&self) -> String {
        format!("{}{}", &self.pf()[..11], self.1 + 1)
    }

    fn group(&self) -> usize {
        60 + 10 * self.0 + usize::try_from(self.1).unwrap()
    }

    fn key(&self) -> String {
        format!("{}/vf{}", self.pf(), self.1)
    }

    fn directory(&self) -> String {
        format!("{BRIDGE}/{}", self.address())
    }

    fn is_given_away(&self) -> bool {
        self.2.is_some_and(|driver| driver != "mlx5_core")
    }
}

fn function(tree: &mut Tree, address: &str, driver: Option<&str>, class: &str) {
    let at = format!("{BRIDGE}/{address}");
    tree.link_to(format!("sys/bus/pci/devices/{address}"), &at);
    tree.line(format!("{at}/class"), class);
    if let Some(driver) = driver {
        tree.link_to(format!("{at}/driver"), format!("sys/bus/pci/drivers/{driver}"));
        tree.link_to(format!("sys/bus/pci/drivers/{driver}/{address}"), &at);
    }
}

fn pf(tree: &mut Tree, index: usize) {
    let (address, name) = (PFS[index], ["ib0", "eth0"][index]);
    let at = format!("{BRIDGE}/{address}");
    function(tree, address, Some("mlx5_core"), ["0x020700", "0x020000"][index]);
    let count = VFS.iter().filter(|vf| vf.0 == index).count();
    tree.line(format!("{at}/sriov_totalvfs"), 8);
    tree.line(format!("{at}/sriov_numvfs"), count);
    tree.line(format!("{at}/net/{name}/type"), [32, 1][index]);
    tree.line(format!("{at}/net/{name}/operstate"), "up");
    let device = format!("{at}/infiniband/mlx5_{index}");
    tree.link_to(format!("sys/class/infiniband/mlx5_{index}"), &device);
    tree.link_to(format!("{device}/device"), &at);
}

fn vf(tree: &mut Tree, vf: &Vf) {
    let (address, at, group) = (vf.address(), vf.directory(), vf.group());
    function(tree, &address, vf.2, ["0x020700", "0x020000"][vf.0]);
    let pf = format!("{BRIDGE}/{}", vf.pf());
    tree.link_to(format!("{pf}/virtfn{}", vf.1), &at);
    tree.link_to(format!("{at}/physfn"), &pf);
    tree.line(format!("{at}/driver_override"), vf.2.filter(|_| vf.is_given_away()).unwrap_or("(null)"));
    tree.link_to(format!("{at}/iommu_group"), format!("sys/kernel/iommu_groups/{group}"));
    tree.link_to(format!("sys/kernel/iommu_groups/{group}/devices/{address}"), &at);
    tree.line(format!("{at}/msi_irqs/{}", 100 + group), "msix");
    let files = format!("{pf}/sriov/{}", vf.1);
    if vf.0 == 0 {
        tree.line(format!("{files}/node"), format!("0c:42:a1:03:00:01:00:{group:02x}"));
        tree.line(format!("{files}/port"), format!("0c:42:a1:03:00:02:00:{group:02x}"));
        tree.line(format!("{files}/policy"), "Follow");
    } else {
        let n = vf.1;
        let config = format!("VF : {n}\nMAC : 02:00:00:00:42:0{n}\nVLAN : 0\nTrust : OFF\nLinkState : Follow\n");
        tree.file(format!("{files}/config"), config);
        tree.file(format!("{files}/stats"), "tx_packets : 5\ntx_bytes : 320\nrx_packets : 6\nrx_bytes : 384\n");
    }
}

fn process(tree: &mut Tree, pid: u32, name: &str, namespace: u32, descriptors: &[(u32, &str)]) {
    tree.line(format!("proc/{pid}/comm"), name);
    tree.link(format!("proc/{pid}/ns/net"), format!("net:[{namespace}]"));
    tree.link(format!("proc/{pid}/fd/0"), "/dev/null");
    for (number, target) in descriptors {
        tree.link(format!("proc/{pid}/fd/{number}"), *target);
    }
}

fn host() -> Arc<Faulty> {
    let mut tree = Tree::default();
    (0..PFS.len()).for_each(|index| pf(&mut tree, index));
    for one in &VFS {
        vf(&mut tree, one);
    }
    // This host's own.
    tree.line(format!("{}/net/ib0v1/type", VFS[1].directory()), 32);
    tree.directory(format!("{}/infiniband/mlx5_9", VFS[1].directory()));
    tree.directory(format!("{}/vfio-dev/vfio3", VFS[4].directory()));
    tree.directory(format!("{}/uio/uio2", VFS[6].directory()));
    tree.link("proc/self/ns/net", "net:[1]");
    process(&mut tree, 1, "systemd", 1, &[]);
    process(&mut tree, 700, "qemu-system-x86", 1, &[(30, "/dev/vfio/60")]);
    tree.file("proc/700/cmdline", "/usr/bin/qemu-system-x86_64\0-name\0guest=vm7\0");
    process(&mut tree, 800, "dpdk-testpmd", 1, &[(9, "/dev/vfio/devices/vfio3"), (10, "anon_inode:[vfio-device]")]);
    let pod = "0::/kubepods.slice/kubepods-pod0a1b2c3d_0000.slice/cri-1.scope\n";
    tree.file("proc/800/fdinfo/10", format!("pos: 0\nvfio-device-syspath: /{}\n", VFS[4].directory()));
    tree.file("proc/800/cgroup", pod);
    process(&mut tree, 801, "vpp", 1, &[(5, "/dev/uio2")]);
    process(&mut tree, 900, "nginx", 9, &[]);
    let interface = format!("../../devices/pci0000:40/{}/net/eth0", VFS[5].address());
    tree.link(Path::new("proc/900").join("root").join("sys/class/net/eth0"), interface);
    tree.file("proc/900/net/dev", "Inter-|\n face |\n  eth0: 1 2\n");
    tree.file("proc/900/cgroup", "0::/user.slice\n");
    let domain = "<domain type='kvm' id='7'><name>vm7</name><devices><hostdev type='pci'><source><address domain='0x0000' \
                  bus='0x41' slot='0x00' function='0x1'/></source></hostdev></devices></domain>";
    let status = format!("<domstatus state='running' reason='booted' pid='700'>{domain}</domstatus>");
    tree.file("run/libvirt/qemu/vm7.xml", status);
    tree.file("etc/libvirt/qemu/vm7.xml", domain);
    Faulty::new(&tree)
}

/// The VFs of which something may change when a path is spoilt; none for all of them and their PFs.
fn concerned(path: &Path) -> Option<Vec<&'static Vf>> {
    let all = |of: &dyn Fn(&Vf) -> bool| Some(VFS.iter().filter(|vf| of(vf)).collect());
    let text = path.to_str().unwrap();
    if text.starts_with("/proc") || text.starts_with("/run") || text.starts_with("/etc") {
        let pid = text.split('/').nth(2).and_then(|part| part.parse::<u32>().ok());
        return match pid {
            // Of one that cannot be looked into it is not known whether it has what nobody else has.
            Some(pid) => all(&|vf| vf.3 == Some(pid) || vf.3.is_none()),
            None => all(&|_| true),
        };
    }
    let parts: Vec<&str> = text.split('/').collect();
    let named = |vf: &Vf| {
        let pf = format!("/{BRIDGE}/{}", vf.pf());
        parts.contains(&&*vf.address())
            || text.starts_with(&format!("/sys/kernel/iommu_groups/{}/", vf.group()))
            || text == format!("{pf}/virtfn{}", vf.1)
            || path.starts_with(format!("{pf}/sriov/{}", vf.1))
    };
    if VFS.iter().any(named) {
        return all(&named);
    }
    if parts.get(4) == Some(&"drivers") {
        return all(&Vf::is_given_away);
    }
    None
}

/// The PF that alone is concerned by a path, where one is.
fn pf_of(path: &Path) -> Option<&'static str> {
    PFS.into_iter().find(|pf| {
        path.ancestors().any(|above| above.file_name().is_some_and(|name| name == *pf))
            || path.to_str().unwrap().starts_with(&format!("/sys/class/infiniband/mlx5_{}", usize::from(*pf == PFS[1])))
    })
}

/// Whether a sample may change with a path.
fn may_change(path: &Path, sample: &Sample) -> bool {
    let label = |name: &str| sample.labels.get(name).map(String::as_str).unwrap_or_default();
    if label("check").starts_with("vf_") && sample.name == "lanewatch_check_subjects" {
        return true;
    }
    if sample.name == "lanewatch_collector_success" {
        return COLLECTORS.contains(&label("collector"));
    }
    let Some(vfs) = concerned(path) else {
        let pf = pf_of(path);
        return pf.is_none_or(|pf| label("pf") == pf || label("subject").starts_with(pf));
    };
    let keys: BTreeSet<String> = vfs.iter().map(|vf| vf.key()).collect();
    let addresses: BTreeSet<String> = vfs.iter().map(|vf| vf.address()).collect();
    let counts = matches!(&*sample.name, "lanewatch_sriov_vfs")
        || (["lanewatch_finding", "lanewatch_pending_finding"].contains(&&*sample.name)
            && label("check") == "vf_count_mismatch");
    keys.contains(&format!("{}/vf{}", label("pf"), label("vf")))
        || keys.contains(label("subject"))
        || addresses.contains(label("pci_address"))
        || addresses.contains(label("subject"))
        || (counts && vfs.iter().any(|vf| label("pf") == vf.pf() || label("subject") == vf.pf()))
}

/// What counts the map's changes: that something came and went is right. And what hangs on `sriov_numvfs`, which on a
/// machine that is busy comes too late for a pass.
fn of_changes(sample: &Sample) -> bool {
    let label = |name: &str| sample.labels.get(name).map(String::as_str).unwrap_or_default();
    let late = label("kind") == "configured" || label("check") == "vf_count_mismatch";
    late || ["lanewatch_vf_map_", "lanewatch_migration"].iter().any(|start| sample.name.starts_with(start))
}

/// Reasons with which a fault may be counted.
fn reasons(fault: &str) -> &'static [ReadError] {
    match fault {
        "ENOENT" | "dangling" => &[],
        // What is no link, or no directory, says so with EINVAL.
        "EINVAL" | "EOPNOTSUPP" => &[ReadError::NotSupported, ReadError::Malformed],
        "EIO" | "looping" => &[ReadError::Io],
        "a directory" => &[ReadError::Io, ReadError::Malformed],
        "ENODEV" => &[ReadError::Gone],
        "EACCES" => &[ReadError::Permission],
        "ETIMEDOUT" => &[ReadError::Timeout],
        _ => &[ReadError::Malformed],
    }
}

/// What was wrong with a path, and how many faults were tried.
fn try_all(bench: &Bench, clean: &[HashSet<String>; 2], path: &Path, kind: Kind) -> (Vec<String>, usize) {
    let (mut wrong, mut judged): (Vec<String>, Vec<Seen>) = (Vec::new(), Vec::new());
    let faults = table::faults(kind);
    for (name, fault) in &faults {
        bench.io.spoil(path, fault);
        let mut trial = bench.trial(Some(path));
        let spoilt = trial.read(FIRST);
        bench.io.mend(path);
        let mut found: Vec<String> = Vec::new();
        let asking = bench.who_asks(path, &super::common::faulty::Op::ALL);
        // A VF that is not listed has no holder that could be told of.
        let sights: Vec<Rule> = asking.keys().copied().chain(["holders"]).map(Rule::of_sight).collect();
        for ((collector, reason), count) in &spoilt.errors {
            if !asking.contains_key(collector) || !reasons(name).contains(reason) || *count > 2 {
                found.push(format!("{collector} counted {} {count} times", reason.as_str()));
            }
        }
        if !judged.contains(&spoilt) {
            found.extend(unexpected(&trial.say(&spoilt), &clean[0], |sample| {
                may_change(path, sample) || of_changes(sample) || sights.iter().any(|rule| rule.names(sample))
            }));
            // Processes that could not be looked into are tried again every fourth time.
            (0..3).for_each(|_| drop(trial.read(AGAIN)));
            let mended = trial.read(AGAIN);
            // A function without this file is no PF as long as it is there.
            let is_none = path.ends_with("sriov_totalvfs") && *name == "ENOENT";
            let left = unexpected(&trial.say(&mended), &clean[1], |sample| is_none || of_changes(sample));
            found.extend(left.into_iter().map(|line| format!("afterwards: {line}")));
            judged.push(spoilt);
        }
        if !found.is_empty() {
            wrong.push(format!("{name} at {}:\n  {}", path.display(), found.join("\n  ")));
        }
    }
    (wrong, faults.len())
}

#[test]
fn one_odd_file_costs_the_vfs_that_it_concerns() {
    share_out(|worker| {
        let bench = Bench::of(host(), &COLLECTORS);
        let clean = clean(&bench);
        for holder in
            ["vm\",holder=\"vm7", "host\",holder=\"ib0v1", "pod\"", "process\",holder=\"vpp", "netns\"", "none\""]
        {
            let wanted = format!("holder_kind=\"{holder}");
            assert!(clean[0].iter().any(|line| line.contains(&wanted)), "{wanted}");
        }
        let (mut wrong, mut tried) = (Vec::new(), 0);
        for (path, kind) in paths(&bench).skip(worker).step_by(WORKERS) {
            let (found, faults) = try_all(&bench, &clean, &path, kind);
            wrong.extend(found);
            tried += faults;
        }
        (wrong, tried)
    });
}
