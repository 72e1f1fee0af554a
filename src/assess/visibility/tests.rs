use std::sync::Arc;
use std::time::SystemTime;

use super::*;
use crate::model::snapshot::{Fact, Fault};
use crate::model::system::System;
use crate::model::time::{BootTime, Timestamp};

fn environment() -> Environment {
    Environment {
        sysfs: Arc::from("/sys"),
        has_sysfs: true,
        has_procfs: true,
        user_namespace: Some(false),
        capabilities: Some(0),
        ..Environment::default()
    }
}

fn collector(name: &'static str, listed: usize, denied: &[&str]) -> CollectorState {
    let fault = |source: &&str| Fault { source: Arc::from(*source), reason: ReadError::Permission };
    CollectorState {
        name,
        success: true,
        listed: Some((0..listed).map(|n| Arc::from(n.to_string())).collect()),
        faults: denied.iter().map(fault).collect(),
        ..CollectorState::default()
    }
}

fn areas(environment: Environment, facts: Vec<Fact>, collectors: Vec<CollectorState>) -> Vec<Visibility> {
    let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
    let facts = facts.into_iter().chain([Arc::new(environment) as Fact]);
    visibility(&Snapshot::new(taken, facts, collectors), &VfMap::default())
}

fn of<'a>(areas: &'a [Visibility], name: &str) -> (VisibilityLevel, &'a str, &'a str) {
    let area = areas.iter().find(|area| area.area == name).unwrap_or_else(|| panic!("{name}: {areas:#?}"));
    (area.seen, area.reason, area.remedy.as_deref().unwrap_or_default())
}

#[test]
fn a_host_without_a_card_hides_nothing() {
    let areas = areas(environment(), Vec::new(), vec![collector("rdma", 0, &[]), collector("pci", 0, &[])]);
    assert_eq!(of(&areas, "host"), (VisibilityLevel::Whole, "", ""));
    assert_eq!(of(&areas, "rdma"), (VisibilityLevel::Nothing, "", ""));
    assert_eq!(summary(&areas, &[]), "seen: host; nothing there: rdma, pci");
}

#[test]
fn a_container_without_the_hosts_sysfs_sees_nothing_and_is_told_what_to_mount() {
    let none = Environment { has_sysfs: false, ..environment() };
    let areas = areas(none, Vec::new(), vec![collector("rdma", 0, &[]), collector("kmsg", 1, &[])]);
    let (seen, reason, remedy) = of(&areas, "host");
    assert_eq!((seen, reason), (VisibilityLevel::Hidden, "no_sysfs"));
    assert!(remedy.contains("--path.sysfs"), "{remedy}");
    // Not: there is none.
    assert_eq!(of(&areas, "rdma").0, VisibilityLevel::Hidden);
    assert_eq!(of(&areas, "kmsg").0, VisibilityLevel::Whole);
    assert!(summary(&areas, &[]).contains("hidden host: there is no sysfs at /sys (fix: mount"));
}

#[test]
fn a_kernel_log_that_is_not_there_is_hidden_but_on_a_recorded_host() {
    let kmsg = || vec![collector("kmsg", 0, &[])];
    let live = areas(Environment { live: true, ..environment() }, Vec::new(), kmsg());
    let (seen, reason, remedy) = of(&live, "kmsg");
    assert_eq!((seen, reason), (VisibilityLevel::Hidden, "no_device"));
    assert!(remedy.contains("/dev/kmsg"), "{remedy}");
    assert_eq!(of(&areas(environment(), Vec::new(), kmsg()), "kmsg").0, VisibilityLevel::Nothing);
    // On a slow host the surroundings come after the first pass.
    let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
    let early = visibility(&Snapshot::new(taken, Vec::new(), kmsg()), &VfMap::default());
    assert_eq!(of(&early, "kmsg").0, VisibilityLevel::Hidden);
}

#[test]
fn what_is_denied_says_what_would_grant_it() {
    let denied =
        || vec![collector("kmsg", 1, &["/dev/kmsg"]), collector("pci", 4, &["/sys/a/config", "/sys/b/config"])];
    let plain = areas(environment(), Vec::new(), denied());
    assert_eq!(of(&plain, "kmsg"), (VisibilityLevel::Hidden, "permission", "CAP_SYSLOG"));
    assert_eq!(of(&plain, "pci"), (VisibilityLevel::Partly, "permission", "CAP_DAC_READ_SEARCH"));
    assert!(plain.iter().any(|area| area.text.ends_with("no permission for /sys/a/config and 1 more")));

    let user = Environment { user_namespace: Some(true), capabilities: Some(u64::MAX), ..environment() };
    let apart = areas(user, Vec::new(), denied());
    let (_, reason, remedy) = of(&apart, "kmsg");
    assert_eq!(reason, "user_namespace");
    assert!(remedy.contains("outside a user namespace"), "{remedy}");

    // A profile denies what the capability would allow; without the capability both may be to blame.
    let profile = Some(Arc::from("docker-default (enforce)"));
    let confined = Environment { confinement: profile, capabilities: Some(u64::MAX), ..environment() };
    let all = areas(confined.clone(), Vec::new(), denied());
    let (_, reason, remedy) = of(&all, "kmsg");
    assert_eq!(reason, "confinement");
    assert!(
        remedy.starts_with("the profile docker-default (enforce), if it allowed the access (CAP_SYSLOG is granted)"),
        "{remedy}"
    );
    let weak = areas(Environment { capabilities: Some(0), ..confined }, Vec::new(), denied());
    assert_eq!(of(&weak, "kmsg").1, "permission");
}

#[test]
fn what_permissions_hide_is_said_once_for_each_that_would_show_it() {
    let denied = |environment: Environment, kmsg: &[&str]| {
        let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
        let collectors = vec![
            collector("kmsg", 1, kmsg),
            collector("pci", 4, &["/sys/a/config", "/sys/b/config"]),
            collector("irq", 2, &["/proc/irq/3/smp_affinity"]),
            collector("gids", 0, &["/sys/c"]),
            collector("rdma", 2, &[]),
        ];
        let snapshot = Snapshot::new(taken, vec![Arc::new(environment) as Fact], collectors);
        let areas = visibility(&snapshot, &VfMap::default());
        let missing = missing(&snapshot, &VfMap::default());
        (missing.clone(), summary(&areas, &missing))
    };
    let (said, line) = denied(environment(), &["/dev/kmsg"]);
    let files = "CAP_DAC_READ_SEARCH would show: PCI functions and links (2 files), interrupts (1 file), how ports are \
                 addressed (1 file)";
    assert_eq!(said, [Arc::from(files), Arc::from("CAP_SYSLOG would show: kernel messages")]);
    assert_eq!(line, format!("seen: host, rdma; {files}; CAP_SYSLOG would show: kernel messages"));
    assert_eq!(denied(environment(), &[]).0.len(), 1);
    let apart = Environment { user_namespace: Some(true), ..environment() };
    let log =
        "CAP_SYSLOG outside a user namespace (inside one it does not apply to the host) would show: kernel messages";
    assert_eq!(denied(apart, &["/dev/kmsg"]).0[1], Arc::from(log));
}

#[test]
fn other_namespaces_old_kernels_and_little_memory_are_said() {
    let little = Environment { memory_limit_bytes: Some(16 << 20), ..environment() };
    let posture = Posture { foreign_netns: Some(true), rdma_netns_mode: Some("exclusive"), ..Posture::default() };
    let system = System { kernel: Some(Arc::from("4.17.19-generic")), ..System::default() };
    let areas = areas(little, vec![Arc::new(posture), Arc::new(system)], Vec::new());
    assert_eq!(of(&areas, "memory"), (VisibilityLevel::Partly, "memory_limit", "a limit of 32 MiB"));
    assert_eq!(of(&areas, "kernel"), (VisibilityLevel::Partly, "old_kernel", "a newer kernel"));
    let (_, reason, remedy) = of(&areas, "namespace");
    assert_eq!(reason, "network_namespace");
    assert!(remedy.contains("hostNetwork"), "{remedy}");
    assert!(areas.iter().any(|area| area.text.contains("RDMA devices are those of another network namespace")));
}

#[test]
fn enough_of_everything_is_no_row() {
    let enough = Environment { memory_limit_bytes: Some(64 << 20), ..environment() };
    for kernel in ["4.18.0-553.el8_10.x86_64", "6.12.0-1-amd64", "5.15", "next"] {
        let system = System { kernel: Some(Arc::from(kernel)), ..System::default() };
        let posture = Posture { foreign_netns: Some(false), ..Posture::default() };
        let areas = areas(enough.clone(), vec![Arc::new(system), Arc::new(posture)], Vec::new());
        assert_eq!(areas.len(), 1, "{kernel}: {areas:#?}");
    }
}
