//! The Debian package under a systemd that is PID 1: started, judged, reloaded, restarted, given more, stopped, purged.
//!
//! The machine boots the disk that `tests/packaging/tree.sh` makes; what it writes is forgotten. `slow` is a second disk,
//! which the keeper of the machine can bring to a stand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::common::http;
use crate::common::run::PROGRAM;
use crate::common::tools::{Tool, require, skip};
use crate::guest::{Guest, Kernel, on};

/// How long a step may take: a machine may have a tenth of a CPU.
const PATIENCE: Duration = Duration::from_secs(300);

const DROP_INS: &str = "/etc/systemd/system/lanewatch.service.d";

const PF: &str = "0000:41:00.0";
const VF: &str = "0000:41:10.2";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn succeed(command: &mut Command) {
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// What the machine gets: its PID 1, the service of the lab's commands, and the package of the program under test.
fn inject(to: &Path) -> Option<()> {
    let cargo_deb = require(Tool::CargoDeb)?;
    let program = std::env::var_os("LANEWATCH_LAB_PROGRAM").unwrap_or_else(|| PROGRAM.into());
    succeed(Command::new("bash").arg("packaging/stage.sh").arg(program));
    let deb = to.join("lanewatch.deb");
    succeed(Command::new(cargo_deb).args(["deb", "--no-build", "--no-strip", "--fast", "-o"]).arg(&deb));
    for name in ["init", "control"] {
        fs::copy(root().join("tests/lab/systemd").join(name), to.join(name)).unwrap();
    }
    Some(())
}

/// The machine, booted, without the package; the directory is that of its second disk.
fn booted() -> Option<(Guest, TempDir)> {
    let disk = root().join(".cache/debian-systemd.ext4");
    if !disk.exists() {
        skip("there is no disk with systemd (tests/packaging/tree.sh makes one)");
        return None;
    }
    let place = TempDir::new().unwrap();
    let (injected, files) = (place.path().join("inject"), place.path().join("files"));
    for folder in [&injected, &files] {
        fs::create_dir(folder).unwrap();
    }
    inject(&injected)?;
    // As the file `rate` has it, which it will stand for: the one that is read of a port in every pass, beside netlink.
    fs::write(files.join("value"), "25 Gb/sec (1X EDR)\n").unwrap();
    fs::write(files.join("ballast"), vec![7; 1 << 20]).unwrap();
    let slow = place.path().join("slow.ext4");
    succeed(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).args([&files, &slow]).arg("8M"));
    let drive = |name: &str, path: &Path| {
        let file = format!("file={},if=none,id={name},format=raw,snapshot=on", path.display());
        let device = format!("virtio-blk-pci,bus=pcie.0,drive={name},id={name}-disk");
        ["-drive".to_owned(), file, "-device".to_owned(), device]
    };
    let extra: Vec<String> = drive("root", &disk).into_iter().chain(drive("slow", &slow)).collect();
    let options = json!({
        "inject": injected, "extra": extra, "mem": 1024, "cmdline": "rdinit=/inject/init systemd.show_status=false",
        "boot_timeout": 300, "timeout": 300,
    });
    Some((Guest::boot_with(Kernel::V6_12, &options)?, place))
}

/// Waits until a command in the guest prints this.
fn until(guest: &mut Guest, command: &str, wanted: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (_, said) = guest.run(command);
        if said.trim() == wanted {
            return;
        }
        if Instant::now() > end {
            let log = guest.run("journalctl -u lanewatch --no-pager | tail -n 40").1;
            panic!("{command}: {said:?}, not {wanted:?}\n{log}");
        }
        thread::sleep(Duration::from_secs(1));
    }
}

fn property(guest: &mut Guest, name: &str) -> String {
    guest.sh(&format!("systemctl show -P {name} lanewatch")).trim().to_owned()
}

/// Restarts the agent with these drop-ins of the package, and waits until it answers.
fn restarted(guest: &mut Guest, drop_ins: &[&str]) {
    guest.sh(&format!("mkdir -p {DROP_INS}; find {DROP_INS} -type l -delete"));
    for name in drop_ins {
        guest.sh(&format!("ln -s /usr/share/lanewatch/systemd/{name}.conf {DROP_INS}/"));
    }
    guest.sh("systemctl daemon-reload; systemctl restart lanewatch");
    answers(guest);
}

fn answers(guest: &mut Guest) {
    let end = Instant::now() + PATIENCE;
    while !http::get(guest.address(), "/-/ready").is_ok_and(|answer| answer.status == 200) {
        assert!(Instant::now() < end, "{}", guest.run("journalctl -u lanewatch --no-pager | tail -n 40").1);
        thread::sleep(Duration::from_millis(500));
    }
}

/// Capabilities that the agent has, as the kernel writes them.
fn capabilities(guest: &mut Guest) -> String {
    guest.sh("sed -n 's/^CapEff:\\s*0*//p' /proc/$(systemctl show -P MainPID lanewatch)/status").trim().to_owned()
}

/// Stops a thread of the agent by its name, as a debugger would, or the whole of it; systemd must restart it.
fn is_restarted_when(guest: &mut Guest, stopped: &str) {
    let (process, before) = (property(guest, "MainPID"), property(guest, "NRestarts").parse::<u32>().unwrap());
    guest.sh(&stopped.replace("PID", &process));
    until(guest, "systemctl show -P NRestarts lanewatch", &(before + 1).to_string());
    until(guest, "systemctl is-active lanewatch", "active");
    assert_ne!(property(guest, "MainPID"), process);
    answers(guest);
    let log = guest.sh("journalctl -u lanewatch --no-pager");
    assert!(log.contains("Watchdog timeout (limit 30s)"), "{log}");
}

#[test]
#[ignore = "takes minutes; make lab runs it"]
fn the_package_under_systemd() {
    on(Kernel::V6_12, |_| {
        let Some((mut guest, _place)) = booted() else { return };
        assert_eq!(guest.sh("cat /proc/1/comm").trim(), "systemd");
        guest.sh("dpkg -i /lab/lanewatch.deb");
        starts_and_may_do_nothing(&mut guest);
        takes_another_configuration(&mut guest);
        each_drop_in_gives_what_it_says(&mut guest);
        systemd_keeps_the_socket(&mut guest);
        a_stuck_device_is_no_reason_for_a_restart_and_a_stuck_agent_is(&mut guest);
        goes_as_it_should(&mut guest);
    });
}

/// Installed is started, ready when it says so, without a capability, and scraped from outside.
fn starts_and_may_do_nothing(guest: &mut Guest) {
    assert_eq!(property(guest, "Type"), "notify");
    until(guest, "systemctl is-active lanewatch", "active");
    // systemd has it started when it has said that it is ready, not before.
    let order = guest.sh("journalctl -u lanewatch --no-pager -o cat | grep -E 'message=ready|^Started'");
    assert!(order.lines().count() == 2 && order.contains("message=ready"), "{order}");
    assert_eq!(guest.sh("ps -o user= -p $(systemctl show -P MainPID lanewatch)").trim(), "lanewatch");
    let status = guest.sh("cat /proc/$(systemctl show -P MainPID lanewatch)/status");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n"), "{status}");
    let (code, exposure) =
        guest.run("systemd-analyze security --no-pager --threshold=15 lanewatch | tail -n 1; exit ${PIPESTATUS[0]}");
    assert_eq!(code, 0, "{exposure}");
    let scrape = guest.scrape();
    let port = |sample: &&crate::common::exposition::Sample| {
        sample.name == "lanewatch_port_state" && sample.labels["device"] == "rxe0"
    };
    assert!(scrape.iter().any(|sample| port(&sample)), "{scrape:#?}");
}

/// `systemctl reload` takes the new configuration, and keeps the old where the new one is wrong.
fn takes_another_configuration(guest: &mut Guest) {
    let write = |guest: &mut Guest, text: &str| {
        guest.sh(&format!("cat > /etc/lanewatch/lanewatch.toml <<'END'\n{text}\nEND\nsystemctl reload lanewatch"));
    };
    assert!(guest.findings().iter().all(|finding| finding[0] != "device_missing"));
    write(guest, "[policy]\ndevices = [\"mlx5_7\"]");
    guest.wait_for_finding("device_missing", "mlx5_7", true);
    write(guest, "[policy]\ndevices = 7");
    guest.wait_for("lanewatch_config_last_reload_successful", &[], Some(0.0));
    guest.wait_for_finding("device_missing", "mlx5_7", true);
    write(guest, "");
    guest.wait_for_finding("device_missing", "mlx5_7", false);
    assert_eq!(property(guest, "NRestarts"), "0");
}

/// Without it hidden, with it seen; and no more than the capabilities it names.
fn each_drop_in_gives_what_it_says(guest: &mut Guest) {
    guest.sh(&format!(
        "echo 1 > /proc/sys/kernel/dmesg_restrict; echo 2 > /sys/bus/pci/devices/{PF}/sriov_numvfs; \
         cd /sys/bus/pci/devices/{VF}; echo vfio-pci > driver_override; \
         [ ! -e driver ] || echo {VF} > driver/unbind; echo {VF} > /sys/bus/pci/drivers_probe; \
         g=$(basename $(readlink iommu_group)); \
         (setsid bash -c \"exec 7<>/dev/vfio/$g; exec -a stand-in sleep 6000\" >/dev/null 2>&1 &)"
    ));
    restarted(guest, &[]);
    let holder = |kind: &'static str| [("pf", PF), ("vf", "1"), ("holder_kind", kind)];
    guest.wait_for("lanewatch_vf_holder_info", &holder("unknown"), Some(1.0));
    let hidden = guest.get("/api/v1/findings");
    assert!(hidden.contains("would show: holders of 1 VF"), "{hidden}");
    assert_ne!(visible(guest, "kmsg"), "seen");

    restarted(guest, &["kmsg"]);
    assert_eq!(capabilities(guest), "400000000");
    assert_eq!(visible(guest, "kmsg"), "seen");

    restarted(guest, &["holders"]);
    assert_eq!(capabilities(guest), "80004");
    guest.wait_for("lanewatch_vf_holder_info", &holder("process"), Some(1.0));
    assert_ne!(visible(guest, "kmsg"), "seen");

    restarted(guest, &["acs"]);
    assert_eq!(capabilities(guest), "200000");
    restarted(guest, &["libvirt"]);
    assert_eq!(capabilities(guest), "4");

    restarted(guest, &["probes"]);
    assert_eq!(capabilities(guest), "");
    let limits = guest.sh("grep 'Max locked memory' /proc/$(systemctl show -P MainPID lanewatch)/limits");
    assert!(limits.contains("unlimited"), "{limits}");
    guest.sh("nsenter -m -t $(systemctl show -P MainPID lanewatch) ls /dev/infiniband/uverbs0");

    // Two at once add up.
    restarted(guest, &["kmsg", "holders"]);
    assert_eq!(capabilities(guest), "400080004");
}

/// How much is seen of an area, as the metric says it.
fn visible(guest: &mut Guest, area: &str) -> String {
    let scrape = guest.scrape();
    let of_area = |sample: &&crate::common::exposition::Sample| {
        sample.name == "lanewatch_visibility_info" && sample.labels.get("area").is_some_and(|name| name == area)
    };
    let sample = scrape.iter().find(of_area).unwrap_or_else(|| panic!("{area}: {scrape:#?}"));
    sample.labels["visibility"].clone()
}

/// With the socket unit a restart of the agent refuses nobody.
fn systemd_keeps_the_socket(guest: &mut Guest) {
    // A loop that connects from within: outside, QEMU would accept first.
    let asked = "for i in $(seq 20); do exec 9<>/dev/tcp/127.0.0.1/10015 || echo refused; exec 9>&-; sleep 0.2; done";
    restarted(guest, &[]);
    let (_, said) = guest.run(&format!("systemctl stop lanewatch; ({asked}) 2>/dev/null; systemctl start lanewatch"));
    assert_eq!(said.matches("refused").count(), 20, "without it nobody listens: {said}");
    guest.sh("systemctl stop lanewatch; systemctl enable --now lanewatch.socket");
    restarted(guest, &["socket"]);
    let (_, said) = guest.run(&format!("(systemctl restart lanewatch &); {asked}"));
    assert_eq!(said.matches("refused").count(), 0, "{said}");
    until(guest, "systemctl is-active lanewatch", "active");
    answers(guest);
    let listens = guest.sh("ss -Hltnp 'sport = :10015'");
    assert!(listens.contains("\"systemd\",pid=1,"), "{listens}");
    guest.sh("systemctl disable --now lanewatch.socket");
}

/// The watchdog hears of the evaluation, not of devices.
fn a_stuck_device_is_no_reason_for_a_restart_and_a_stuck_agent_is(guest: &mut Guest) {
    guest.sh(&format!(
        "mkdir -p {DROP_INS}; printf '[Service]\\nWatchdogSec=30s\\nBindReadOnlyPaths=/slow/value:/sys/class/infiniband/rxe0/ports/1/rate\\n' \
         > {DROP_INS}/lab.conf"
    ));
    restarted(guest, &[]);
    let before = property(guest, "NRestarts");
    // From here the disk gives a byte a second: one read fills its account, and the next waits for weeks.
    guest.call("hmp", &json!({"line": "block_set_io_throttle slow 1 0 0 0 0 0"}));
    guest.sh("(dd if=/slow/ballast of=/dev/null bs=4k count=1 2>/dev/null &); sleep 2; dd if=/slow/value iflag=nocache count=0");
    guest.wait_for("lanewatch_collector_stuck", &[("collector", "rdma")], Some(1.0));
    thread::sleep(Duration::from_secs(75));
    assert_eq!((property(guest, "NRestarts"), property(guest, "ActiveState")), (before, "active".to_owned()));
    assert_eq!(guest.value("lanewatch_collector_stuck", &[("collector", "rdma")]), Some(1.0));
    guest.call("hmp", &json!({"line": "block_set_io_throttle slow 0 0 0 0 0 0"}));
    guest.wait_for("lanewatch_collector_stuck", &[("collector", "rdma")], Some(0.0));

    is_restarted_when(guest, "kill -STOP PID");
    // Only the thread that evaluates: scrapes are still served then.
    is_restarted_when(
        guest,
        "cd /proc/PID/task; t=$(grep -lx poller */comm); t=${t%/comm}; \
         (setsid perl -e '$t = shift; syscall(101, 16, $t + 0, 0, 0) == 0 or die $!; sleep 40' $t > /dev/null 2>&1 &); sleep 1; \
         grep -q '^State:.t' $t/status",
    );
}

/// A stop keeps the state; removal too; purge takes it.
fn goes_as_it_should(guest: &mut Guest) {
    guest.sh("systemctl stop lanewatch");
    assert_eq!(property(guest, "Result"), "success");
    assert_eq!(guest.sh("stat -c '%U %a' /var/lib/lanewatch").trim(), "lanewatch 750");
    assert!(guest.sh("ls /var/lib/lanewatch").contains("state"), "its state is kept");
    guest.sh("systemctl start lanewatch");
    guest.sh("DEBIAN_FRONTEND=noninteractive apt-get -y purge lanewatch");
    assert_ne!(guest.run("systemctl is-active lanewatch").0, 0);
    assert_eq!(guest.run("ls -d /var/lib/lanewatch /etc/lanewatch /usr/bin/lanewatch 2>/dev/null").1, "");
    assert_eq!(guest.run("pgrep lanewatch").1, "");
    guest.sh("getent passwd lanewatch");
}
