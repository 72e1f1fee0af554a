//! A host is recorded, and the record is asked what the host was asked.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use common::host::{Card, GEN3, GEN4, HostTree, Layer, LinkEnd};
use common::run::{Output, lanewatch, lanewatch_in};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

/// Four cards: well, degraded, dual RoCE behind a switch with VFs, and down.
fn host(directory: &Path) {
    let mut host = HostTree::new(4);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let rate = "100 Gb/sec (4X EDR)";
    host.cards[2] = Card { functions: 2, switch: true, layer: Layer::Ethernet, rate, vfs: 3, ..Card::default() };
    (host.cards[3].state, host.cards[3].phys_state) = ("1: DOWN", "2: Polling");
    let devices = host.devices();
    let mut tree = host.tree();
    tree.unreadable(devices[0].port.join("counters/symbol_error"));
    tree.unreadable(devices[1].port.join("phys_state"));
    tree.line(devices[0].function.join("vpd"), "serial MT2039X00001");
    tree.write(directory).unwrap();
}

/// What `check` finds, without what is not the host's.
fn findings(root: &Path) -> Value {
    let output = lanewatch(&["check", "--format", "json", "--path.rootfs", root.to_str().unwrap()]);
    let mut document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let map = document.as_object_mut().unwrap();
    map.remove("host").unwrap();
    map.remove("evaluated").unwrap();
    for finding in map["findings"].as_array_mut().unwrap() {
        finding.as_object_mut().unwrap().remove("since").unwrap();
    }
    document
}

fn record(root: &Path, directory: &Path, more: &[&str]) -> Output {
    record_as(root, directory, "host.tar.gz", more)
}

fn record_as(root: &Path, directory: &Path, name: &str, more: &[&str]) -> Output {
    let mut arguments = vec!["snapshot", "-o", name, "--path.rootfs", root.to_str().unwrap()];
    arguments.extend(more);
    lanewatch_in(directory, &arguments)
}

fn unpacked(archive: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(archive).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_record_gives_the_same_findings_and_no_identifier() {
    let (root, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    host(root.path());
    let output = record(root.path(), out.path(), &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.starts_with("wrote host.tar.gz: "), "{}", output.stdout);
    assert!(output.stdout.contains("2 files that could not be read\nidentifiers were replaced"), "{}", output.stdout);
    let archive = out.path().join("host.tar.gz");
    let bytes = unpacked(&archive);
    for identifier in ["b83f:d203", "b8:3f:d2", "node17", "MT2039X00001", "6f1c2a54"] {
        assert!(!contains(&bytes, identifier), "{identifier} is in the archive");
    }
    for kept in ["MT_0000000223", "20.39.3004", "0000:0c:00.0", "mlx5_3", "host-1"] {
        assert!(contains(&bytes, kept), "{kept} is not in the archive");
    }
    let replayed = TempDir::new().unwrap();
    tar::Archive::new(&bytes[..]).unpack(replayed.path()).unwrap();
    assert!(replayed.path().join("README.txt").is_file());
    let link = fs::read_link(replayed.path().join("sys/class/infiniband/mlx5_0")).unwrap();
    assert!(link.is_relative() && replayed.path().join("sys/class/infiniband").join(link).is_dir());
    let (before, after) = (findings(root.path()), findings(replayed.path()));
    assert_eq!(before, after);
    let found = before["findings"].as_array().unwrap();
    let has = |check: &str| found.iter().any(|finding| finding["check"] == check);
    assert!(has("pcie_degraded") && has("pcie_below_port_rate") && has("port_down"), "{found:#?}");
}

#[test]
fn identifiers_are_kept_on_request_and_files_are_never_overwritten() {
    let (root, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    host(root.path());
    let output = record(root.path(), out.path(), &["--keep-identifiers"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let archive = out.path().join("host.tar.gz");
    let bytes = unpacked(&archive);
    assert!(contains(&bytes, "b83f:d203:0000:0000") && contains(&bytes, "node17"));
    assert!(!contains(&bytes, "MT2039X00001"));
    let before = fs::read(&archive).unwrap();
    let again = record(root.path(), out.path(), &[]);
    assert_eq!(again.code, Some(2));
    assert_eq!(again.stderr, "lanewatch: host.tar.gz already exists and is not overwritten\n");
    assert_eq!(fs::read(&archive).unwrap(), before);
    let rootfs = root.path().to_str().unwrap();
    let nowhere = lanewatch(&["snapshot", "-o", "none/x.tar.gz", "--path.rootfs", rootfs]);
    assert_eq!(nowhere.code, Some(1));
    assert!(nowhere.stderr.starts_with("lanewatch: cannot write none/x.tar.gz: "), "{}", nowhere.stderr);
}

/// What `metrics` says of a host, without what is the program's own: times, and how long a reading took.
fn series(root: &Path) -> Vec<String> {
    let output = lanewatch(&["metrics", "--path.rootfs", root.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let own = |line: &&str| {
        line.starts_with('#') || line.starts_with("process_") || line.contains("_seconds") || line.contains("timestamp")
    };
    output.stdout.lines().filter(|line| !own(line)).map(str::to_owned).collect()
}

/// Turns every link below a directory into a file with its target.
fn forget_links(directory: &Path) -> usize {
    let mut links = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            fs::remove_file(&path).unwrap();
            fs::write(&path, target.to_str().unwrap()).unwrap();
            links += 1;
        } else if path.is_dir() {
            links += forget_links(&path);
        }
    }
    links
}

#[test]
fn an_archive_that_knows_no_links_loses_nothing() {
    let root = TempDir::new().unwrap();
    host(root.path());
    let whole = series(root.path());
    for name in ["lanewatch_port_gids{", "lanewatch_vf_info{", "lanewatch_irq_vectors{", "lanewatch_pcie_path_info{"] {
        assert!(whole.iter().any(|line| line.starts_with(name)), "{name} in {whole:#?}");
    }
    assert!(forget_links(&root.path().join("sys")) > 20);
    let without = series(root.path());
    let lost: Vec<&String> = whole.iter().filter(|line| !without.contains(line)).collect();
    let new: Vec<&String> = without.iter().filter(|line| !whole.contains(line)).collect();
    assert!(lost.is_empty() && new.is_empty(), "lost {lost:#?}, new {new:#?}");
}

/// Identifiers that nothing else contains, by kind.
const CANARIES: &[&str] = &[
    "canaryhost",
    "canarydomain",
    "CANARYSERIAL",
    "ca9a:1234:5678:9abc",
    "ca9a123456789abc",
    "ca:9a:12:34:56:78",
    "ca9a12345678",
    "203.0.113.77",
    "2001:db8:ca9a",
    "2001:0db8:ca9a",
    "cb00:714d",
    "ca9a4c4c-4544-4010-8058-b6c04f564e32",
    "ca9a4c4c_4544_4010_8058_b6c04f564e32",
    "ca9ab000-1111-4222-8333-944444444444",
    "canaryguest",
    "canarypod",
    "canaryuser",
    "canarypassword",
    "canarynamespace",
    "canaryprogram",
    "canaryvolume",
    "canaryprofile",
];

/// Whoever has functions: a machine, a pod's program, and a namespace.
fn holders(tree: &mut common::tree::Tree) {
    tree.link(Path::new("sys/bus/pci/drivers/vfio-pci/0000:98:00.1"), "../../../../devices/pci0000:97/0000:98:00.1");
    let pod = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podca9ab000_1111_4222_8333_944444444444.slice/\
               cri-containerd-canarypod.scope\n";
    let line = "/usr/bin/qemu-system-x86_64\0-name\0guest=canaryguest,debug-threads=on\0-uuid\0\
                ca9a4c4c-4544-4010-8058-b6c04f564e32\0-drive\0file=/srv/canaryuser/canaryvolume.img\0-smbios\0\
                type=1,serial=CANARYSERIAL\0-netdev\0tap,mac=ca:9a:12:34:56:78\0-device\0vfio-pci,host=0000:98:00.1\0";
    for (pid, name, line, group, fd) in [
        (1, "systemd", "/sbin/init", "0::/init.scope\n", "/srv/canaryuser/log"),
        (20, "qemu-system-x86", line, "0::/machine.slice/machine-qemu\\x2d1\\x2dcanaryguest.scope\n", "/dev/vfio/40"),
        (30, "canaryprogram", "/srv/canaryuser/canaryprogram\0--token\0canarypassword\0", pod, "/dev/vfio/41"),
        (40, "canaryprogram", "/srv/canaryuser/canaryprogram\0", pod, "/srv/canaryuser/x"),
        (50, "bash", "bash\0canarypassword\0", "0::/user.slice/user-canaryuser.slice\n", "/srv/canaryuser/x"),
    ] {
        let process = Path::new("proc").join(pid.to_string());
        tree.file(process.join("comm"), format!("{name}\n"));
        tree.file(process.join("cmdline"), line);
        tree.file(process.join("environ"), "PASSWORD=canarypassword\0");
        tree.file(process.join("cgroup"), group);
        tree.file(process.join("status"), format!("Name:\t{name}\nUid:\tcanaryuser\n"));
        tree.file(process.join("stat"), format!("{pid} (canaryprogram) S{} 1234 5\n", " 0".repeat(18)));
        tree.link(process.join("fd/3"), fd);
        tree.link(process.join("ns/net"), if pid == 40 { "net:[200]" } else { "net:[100]" });
    }
    let class = Path::new("proc/40").join("root").join("sys/class/net");
    tree.link(class.join("eth1"), "../../devices/pci0000:97/0000:98:00.2/net/eth1");
    tree.file(Path::new("proc/40/net/dev"), "Inter-|   Receive\n face |bytes\n  eth1: 203 0 113 77\n");
}

/// A host with a canary in everything that is read, and in much that is not.
fn canaries(directory: &Path) {
    let host = HostTree::new(2);
    let devices = host.devices();
    let mut tree = host.tree();
    let file = |tree: &mut common::tree::Tree, path: &str, text: &str| tree.file(Path::new(path), text);
    let port = devices[0].port.clone();
    let function = devices[0].function.clone();
    let class = function.join("infiniband/mlx5_0");
    for (name, text) in [
        ("node_desc", "canaryhost mlx5_0 rack of canaryuser\n"),
        ("node_guid", "ca9a:1234:5678:9abc\n"),
        ("sys_image_guid", "ca9a:1234:5678:9abc\n"),
        ("board_id", "canary profile: canaryprofile of canaryuser <x>\n"),
        ("fw_ver", "20.39.3004\n"),
    ] {
        tree.file(class.join(name), text);
    }
    tree.line(port.join("gids/0"), "fe80:0000:0000:0000:ca9a:1234:5678:9abc");
    tree.line(port.join("gids/1"), "0000:0000:0000:0000:0000:ffff:cb00:714d");
    tree.line(port.join("gids/2"), "2001:0db8:ca9a:0001:ca9a:1234:5678:9abc");
    for index in 0..3 {
        tree.line(port.join(format!("gid_attrs/types/{index}")), "RoCE v2");
        tree.line(port.join(format!("gid_attrs/ndevs/{index}")), "eth2");
    }
    tree.line(function.join("vpd"), "SN CANARYSERIAL");
    tree.line(function.join("serial_number"), "ca-9a-12-34-56-78-9a-bc CANARYSERIAL");
    file(&mut tree, "sys/class/dmi/id/sys_vendor", "Canary canaryuser Inc. QEMU\n");
    file(&mut tree, "sys/class/dmi/id/product_name", "Server for canaryuser\n");
    file(&mut tree, "sys/class/dmi/id/product_uuid", "ca9a4c4c-4544-4010-8058-b6c04f564e32\n");
    file(&mut tree, "sys/class/dmi/id/product_serial", "CANARYSERIAL\n");
    file(&mut tree, "sys/class/dmi/id/board_serial", "CANARYSERIAL\n");
    file(
        &mut tree,
        "sys/module/mlx5_core/version",
        "24.10-1.1.4 built by canaryuser on canaryhost in /srv/canaryuser\n",
    );
    file(&mut tree, "proc/sys/kernel/hostname", "canaryhost.canarydomain.example\n");
    file(&mut tree, "proc/sys/kernel/domainname", "canarydomain.example\n");
    file(&mut tree, "proc/sys/kernel/osrelease", "6.12.0-canaryhost\n");
    file(&mut tree, "proc/sys/kernel/random/boot_id", "ca9a4c4c-4544-4010-8058-b6c04f564e32\n");
    file(
        &mut tree,
        "proc/cmdline",
        "BOOT_IMAGE=/canaryvolume root=UUID=ca9a4c4c-4544-4010-8058-b6c04f564e32 ip=203.0.113.77::203.0.113.1:255.255.255.0:canaryhost \
         rd.iscsi.username=canaryuser rd.iscsi.password=canarypassword inst.ks=https://canaryuser:canarypassword@canaryhost/ks \
         intel_iommu=on iommu=pt pci=canarypassword;x isolcpus=2-3 iommu=203.0.113.77\n",
    );
    file(&mut tree, "proc/cpuinfo", "processor\t: 0\nmodel name\t: canaryuser\nflags\t\t: fpu vme canaryuser\n");
    file(
        &mut tree,
        "proc/interrupts",
        "            CPU0       CPU1\n  24:          0          0  PCI-MSI 524288-edge      canaryhost\n",
    );
    file(&mut tree, "proc/self/cgroup", "0::/user.slice/user-canaryuser.slice/canaryuser.scope\n");
    file(&mut tree, "proc/self/attr/current", "canaryprofile (enforce)\n");
    file(&mut tree, "proc/self/status", "Name:\tcanaryprogram\nCapEff:\t000001ffffffffff\n");
    file(&mut tree, "sys/fs/cgroup/user.slice/user-canaryuser.slice/canaryuser.scope/memory.max", "67108864\n");
    tree.link(Path::new("proc/self/ns/net"), "net:[100]");
    holders(&mut tree);
    file(&mut tree, "run/netns/canarynamespace", "");
    file(
        &mut tree,
        "etc/libvirt/qemu/canaryguest.xml",
        "<domain type='kvm'><name>canaryguest</name><uuid>ca9a4c4c-4544-4010-8058-b6c04f564e32</uuid><title>canaryuser</title>\
         <devices><interface type='hostdev'><mac address='ca:9a:12:34:56:78'/><source><address type='pci' domain='0x0000' \
         bus='0x98' slot='0x00' function='0x1'/></source></interface><disk><source file='/srv/canaryuser/canaryvolume'/></disk>\
         <graphics passwd='canarypassword' listen='203.0.113.77'/></devices></domain>\n",
    );
    file(&mut tree, "etc/libvirt/qemu/canaryguest2.xml", "canarypassword\n");
    file(&mut tree, "etc/libvirt/qemu/networks/canaryguest.xml", "<network><name>canaryguest</name></network>\n");
    let address = function.file_name().unwrap().to_str().unwrap();
    let log = format!(
        "5,1,1000000,-;Kernel command line: rd.iscsi.password=canarypassword\n\
         6,2,2000000,-;systemd[1]: Hostname set to <canaryhost>.\n\
         6,3,3000000,-;mlx5_core {address}: firmware of canaryuser in canaryhost\n\
         3,4,4000000,-;mlx5_core {address}: Port module event[error]: module 0, Cable error, High Temperature, by canaryhost at \
         203.0.113.77, 2001:db8:ca9a::7, ca:9a:12:34:56:78, ca9a:1234:5678:9abc\n SUBSYSTEM=pci\n DEVICE=+pci:{address}\n\
         3,5,5000000,-;mlx5_core {address}: print_health_info:385:(pid 0): synd 0x7: irisc not responding\n\
         3,6,6000000,-;nfs: server canaryhost not responding\n"
    );
    file(&mut tree, "kmsg", &log);
    file(&mut tree, "proc/uptime", "10.00 20.00\n");
    tree.write(directory).unwrap();
}

#[test]
fn no_canary_is_in_an_archive() {
    let (root, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    canaries(root.path());
    let output = record(root.path(), out.path(), &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let archive = out.path().join("host.tar.gz");
    let bytes = unpacked(&archive);
    let lower = String::from_utf8_lossy(&bytes).to_lowercase();
    let found: Vec<&&str> = CANARIES.iter().filter(|canary| lower.contains(&canary.to_lowercase())).collect();
    assert!(found.is_empty(), "{found:?} are in the archive");
    // What was understood of each source is there.
    for kept in [
        "host-1\n",
        "intel_iommu=on",
        "Cable error",
        "<name>domain-1</name>",
        "guest=domain-1",
        "vfio-pci,host=0000:98:00.1",
        "program-1",
        "kubepods-pod00000000_0000_4000_8000",
        "/dev/vfio/41",
        "net:[200]",
        "run/netns/netns-1",
        "CapEff:\t000001ffffffffff",
        "67108864",
    ] {
        assert!(contains(&bytes, kept), "{kept} is not in the archive");
    }
    for left_out in ["proc/50", "environ", "vpd", "product_serial", "networks"] {
        assert!(!contains(&bytes, left_out), "{left_out} is in the archive");
    }
    let replayed = TempDir::new().unwrap();
    tar::Archive::new(&bytes[..]).unpack(replayed.path()).unwrap();
    let (before, after) = (findings(root.path()), findings(replayed.path()));
    let short = |document: &Value| -> Vec<String> {
        let of = |finding: &Value| format!("{} {} {}", finding["check"], finding["reason"], finding["severity"]);
        document["findings"].as_array().unwrap().iter().map(of).collect()
    };
    assert_eq!(short(&before), short(&after));
    assert!(short(&before).iter().any(|finding| finding.contains("kernel_message")), "{before:#}");
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    // The same without the identifiers replaced has no more than what was understood.
    let kept = record_as(root.path(), out.path(), "kept.tar.gz", &["--keep-identifiers"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let bytes = unpacked(&out.path().join("kept.tar.gz"));
    assert!(contains(&bytes, "canaryguest") && contains(&bytes, "ca9a:1234:5678:9abc"));
    for secret in ["canarypassword", "CANARYSERIAL", "canaryvolume", "canarypod"] {
        assert!(!contains(&bytes, secret), "{secret} is in the archive");
    }
}

#[test]
fn an_archive_is_listed_by_source() {
    let (root, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    canaries(root.path());
    assert_eq!(record(root.path(), out.path(), &[]).code, Some(0));
    let listed = lanewatch_in(out.path(), &["snapshot", "--list", "host.tar.gz"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for part in [
        "  etc/libvirt/qemu/domain-1.xml\n",
        "  proc/30/fd/3 -> /dev/vfio/41\n",
        "  kmsg\n",
        "\nkernel log: 1 entry, ",
        "\nlibvirt: 2 entries, ",
        "\nprocesses: ",
        "\nsys: ",
        "\nnetlink, ethtool, namespaces and what could not be read: 1 entry, ",
    ] {
        assert!(listed.stdout.contains(part), "{part:?} is not in\n{}", listed.stdout);
    }
    let none = lanewatch_in(out.path(), &["snapshot", "--list", "none.tar.gz"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    fs::write(out.path().join("other"), "x").unwrap();
    let other = lanewatch_in(out.path(), &["snapshot", "--list", "other"]);
    assert!(other.stderr.starts_with("lanewatch: other is not a snapshot: "), "{other:?}");
}

/// What a finding says, without the times and shares of a host that goes on living.
fn said(root: Option<&Path>) -> (Vec<String>, Value) {
    let mut arguments = vec!["check", "--format", "json", "--storage.path", "/nonexistent"];
    arguments.extend(root.iter().flat_map(|root| ["--path.rootfs", root.to_str().unwrap()]));
    let output = lanewatch(&arguments);
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let parts = ["check", "reason", "severity", "subject"];
    let of = |finding: &Value| parts.map(|part| finding[part].to_string()).join(" ");
    (document["findings"].as_array().unwrap().iter().map(of).collect(), document["checks"].clone())
}

/// The machine that runs the test, whatever it has.
#[test]
fn a_record_of_the_running_host_says_the_same() {
    let out = TempDir::new().unwrap();
    let before = said(None);
    let output = lanewatch_in(out.path(), &["snapshot", "-o", "host.tar.gz"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let replayed = TempDir::new().unwrap();
    tar::Archive::new(&unpacked(&out.path().join("host.tar.gz"))[..]).unpack(replayed.path()).unwrap();
    let after = said(Some(replayed.path()));
    println!("{} findings: {:?}", before.0.len(), before.0);
    assert_eq!(after, before);
}
