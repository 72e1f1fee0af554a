//! The snippets for other people's health checks, each run as its program runs it, on a host that is well, one whose
//! link degraded, and one that does not show how a port is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::host::{GEN3, GEN4, HostTree, LinkEnd};
use crate::common::run::{Output, PROGRAM};
use crate::{root, run};

const SNIPPETS: &str = "packaging/snippets";

fn well() -> TempDir {
    let folder = TempDir::new().unwrap();
    HostTree::new(2).write(folder.path()).unwrap();
    folder
}

fn degraded() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut host = HostTree::new(2);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.write(folder.path()).unwrap();
    folder
}

/// Links whose width alone is what the policy does not want: no more than a warning.
fn warned() -> TempDir {
    let folder = degraded();
    fs::write(
        folder.path().join("policy.toml"),
        "[[policy.exception]]\nmatch = \".*\"\nchecks = [\"pcie_degraded\", \"pcie_below_port_rate\"]\nreason = \"known\"\n\
         [[policy.link]]\nmatch = \"mlx5_1\"\nwidth = 16\n",
    )
    .unwrap();
    folder
}

/// A port's state cannot be read: nobody can tell.
fn unknown() -> TempDir {
    let folder = TempDir::new().unwrap();
    let host = HostTree::new(2);
    let mut tree = host.tree();
    let port = host.devices()[1].port.clone();
    for file in ["state", "phys_state"] {
        tree.remove(port.join(file));
        tree.unreadable(port.join(file));
    }
    tree.write(folder.path()).unwrap();
    folder
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join(SNIPPETS).join(name)).unwrap()
}

/// A command that looks at this host and keeps no state.
fn looking(command: &mut Command, host: &Path) -> Output {
    command.env("LANEWATCH_PATH_ROOTFS", host).env("LANEWATCH_STORAGE_PATH", host.join("state"));
    if host.join("policy.toml").exists() {
        command.env("LANEWATCH_CONFIG_FILE", host.join("policy.toml"));
    }
    run(command.env("LANEWATCH", PROGRAM))
}

#[test]
fn nagios_gets_a_status_line_and_its_exit_code() {
    let text = text("nagios.cfg");
    let line = text.lines().find_map(|line| line.trim().strip_prefix("command_line")).unwrap().trim();
    let nrpe = text.lines().find_map(|line| line.strip_prefix("#   command[check_lanewatch]=")).unwrap();
    assert_eq!(line, nrpe);
    let line = line.replace("/usr/bin/lanewatch", PROGRAM);
    let ask = |host: &TempDir| looking(Command::new("sh").args(["-c", &line]), host.path());
    let (good, bad, none) = (ask(&well()), ask(&degraded()), ask(&unknown()));
    assert_eq!((good.code, bad.code, none.code), (Some(0), Some(2), Some(3)), "{good:?}\n{bad:?}\n{none:?}");
    assert!(good.stdout.starts_with("OK") && good.stdout.lines().next().unwrap().contains(" | "), "{}", good.stdout);
    assert!(bad.stdout.starts_with("CRITICAL: mlx5_1/1 "), "{}", bad.stdout);
    assert!(none.stdout.starts_with("UNKNOWN"), "{}", none.stdout);
}

#[test]
fn nhc_fails_a_node_for_what_is_critical_only_unless_told_otherwise() {
    // `die` is what NHC gives its checks: it prints the reason and ends the run.
    let ask = |host: &TempDir, check: &str| {
        let script = format!(
            "die() {{ echo \"ERROR:  nhc:  Health check failed:  ${{@:2}}\"; exit $1; }}\n. {SNIPPETS}/lanewatch.nhc\n{check}\n"
        );
        looking(Command::new("bash").args(["-c", &script]), host.path())
    };
    let good = ask(&well(), "check_lanewatch");
    assert_eq!((good.code, good.stdout.as_str()), (Some(0), ""));
    let bad = ask(&degraded(), "check_lanewatch");
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(
        bad.stdout.starts_with("ERROR:  nhc:  Health check failed:  check_lanewatch:  CRITICAL: mlx5_1/1 "),
        "{}",
        bad.stdout
    );
    assert_eq!(bad.stdout.lines().count(), 1);
    assert!(!bad.stdout.contains('|'), "{}", bad.stdout);
    assert_eq!(ask(&warned(), "check_lanewatch").code, Some(0));
    assert_eq!(ask(&warned(), "check_lanewatch warning").code, Some(1));
    assert_eq!(ask(&unknown(), "check_lanewatch warning").code, Some(0), "unknown drains nobody");
}

/// Slurm's `scontrol`, for one node that it keeps in a file.
struct Slurm(TempDir);

impl Slurm {
    fn new(state: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("scontrol");
        fs::write(
            &program,
            "#!/bin/bash\ncd \"$(dirname \"$0\")\"\n\
             [[ $1 == show ]] && { echo \"NodeName=$3 Arch=x86_64 $(cat state)\"; exit; }\n\
             echo \"$*\" >>said\nfor word in \"$@\"; do case $word in\n\
             state=drain) state='State=IDLE+DRAIN' ;;\nstate=resume) state='State=IDLE' ;;\n\
             reason=*) reason=\" Reason=${word#*=} [root@2026-11-29T10:00:00]\" ;;\nesac; done\n\
             echo \"$state ThreadsPerCore=1$reason\" >state\n",
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("state"), format!("{state}\n")).unwrap();
        Self(folder)
    }

    /// Runs the program and gives what it has told Slurm to do by now.
    fn health(&self, host: &TempDir) -> String {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(root().join(SNIPPETS).join("slurm-health.sh"));
        let output = looking(command.env("PATH", path).env("SLURMD_NODENAME", "n17"), host.path());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        fs::read_to_string(self.0.path().join("said")).unwrap_or_default()
    }
}

#[test]
fn slurm_drains_what_is_critical_and_resumes_only_that() {
    let slurm = Slurm::new("State=IDLE ThreadsPerCore=1");
    let (good, bad) = (well(), degraded());
    assert_eq!(slurm.health(&good), "");
    let drained = slurm.health(&bad);
    assert!(drained.starts_with("update nodename=n17 state=drain reason=lanewatch: CRITICAL: mlx5_1/1 "), "{drained}");
    assert_eq!(slurm.health(&bad), drained, "once is enough");
    assert_eq!(slurm.health(&unknown()), drained, "unknown changes nothing");
    assert_eq!(slurm.health(&good), format!("{drained}update nodename=n17 state=resume\n"));

    let other = Slurm::new("State=IDLE+DRAIN ThreadsPerCore=1 Reason=disk [root@2026-11-29T10:00:00]");
    assert_eq!((other.health(&bad), other.health(&good)), (String::new(), String::new()), "others' reasons are theirs");
}

#[test]
fn node_problem_detector_gets_one_short_line() {
    let monitor: Value = serde_json::from_str(&text("node-problem-detector.json")).unwrap();
    let rule = &monitor["rules"][0];
    assert_eq!((&monitor["plugin"], &rule["path"]), (&"custom".into(), &"/usr/bin/lanewatch".into()));
    assert_eq!(rule["condition"], monitor["conditions"][0]["type"]);
    let longest = usize::try_from(monitor["pluginConfig"]["max_output_length"].as_u64().unwrap()).unwrap();
    let arguments: Vec<&str> = rule["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    for (host, code) in [(well(), 0), (degraded(), 1), (unknown(), 2)] {
        let output = looking(Command::new(PROGRAM).args(&arguments), host.path());
        assert_eq!(output.code, Some(code), "{output:?}");
        assert_eq!(output.stdout.lines().count(), 1, "{}", output.stdout);
        assert!(output.stdout.trim_end().chars().count() <= longest, "{}", output.stdout);
    }
}
