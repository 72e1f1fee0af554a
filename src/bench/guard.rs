//! When a benchmark must not run: whatever it would disturb comes first; and the lock that lets one run at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::Current as _;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::process::{Child, Invocation, Toolbox};
use crate::model::benchmark::{Benchmark, BenchmarkKey, SkipReason};
use crate::model::ids::PortKey;
use crate::model::rdma::RdmaResources;
use crate::watch::HostReport;

/// Share of a port's rate above which it is in use.
const IDLE: f64 = 0.01;

/// How long the job scheduler's command may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the operator says of when probes may run.
#[derive(Debug, Clone, PartialEq)]
pub struct IdleRules {
    /// The host works while one of these files is there.
    pub busy_files: Vec<PathBuf>,
    /// A command that succeeds where the host is free; anything else is busy.
    pub busy_command: Vec<String>,
    /// Load of the CPUs (of the last minute, by CPU) above which nothing runs.
    pub most_load: f64,
}

impl Default for IdleRules {
    fn default() -> Self {
        Self { busy_files: Vec::new(), busy_command: Vec::new(), most_load: 0.5 }
    }
}

/// Why a probe does not run, with one sentence.
pub type SkipCause = (SkipReason, String);

/// Looks at everything that does not cost a process, cheapest first.
///
/// # Errors
/// Why it must not run.
pub fn facts(report: &HostReport, key: &BenchmarkKey, rules: &IdleRules, load: Option<f64>) -> Result<(), SkipCause> {
    if let Some(why) = &report.maintenance {
        return Err((SkipReason::Maintenance, why.to_string()));
    }
    if let Some(file) = rules.busy_files.iter().find(|file| std::fs::symlink_metadata(file).is_ok()) {
        return Err((SkipReason::JobRunning, format!("the host is busy: {} exists", file.display())));
    }
    if let Some(load) = load.filter(|load| *load > rules.most_load) {
        return Err((SkipReason::CpuBusy, format!("the load average is {load:.2} per CPU")));
    }
    match &key.port {
        Some(port) => free(report, port, key.probe),
        None => Ok(()),
    }
}

/// Whether a port is up, silent and nobody's.
fn free(report: &HostReport, key: &PortKey, probe: Benchmark) -> Result<(), SkipCause> {
    let device = report.snapshot.device(&key.device);
    let Some(port) = device.and_then(|device| device.ports.iter().find(|port| port.number == key.port)) else {
        return Err((SkipReason::Unknown, format!("{key} does not exist")));
    };
    if !port.is_active() {
        return Err((SkipReason::PortDown, format!("{key} is not ACTIVE")));
    }
    let software = device.is_none_or(|device| device.identity.pci_address.is_none());
    let rate = report.lanes.ports.get(key).and_then(|lane| lane.rate);
    match report.traffic.get(key).zip(rate) {
        Some((traffic, rate)) if traffic.0 > rate.0 * IDLE => {
            return Err((SkipReason::PortBusy, format!("{key} is in use: {traffic}")));
        }
        // Software RDMA does not count its bytes in a way that can be trusted.
        None if !software && probe != Benchmark::Memory => {
            return Err((
                SkipReason::Unknown,
                format!("the traffic of {key} is unknown until its counters have been read twice"),
            ));
        }
        _ => {}
    }
    match contexts(report, key) {
        Some(0) => Ok(()),
        Some(count) => {
            let text = format!("programs have {count} open contexts on {} (`rdma resource show`)", key.device);
            Err((SkipReason::DeviceHeld, text))
        }
        None if software => Ok(()),
        None => Err((SkipReason::Unknown, format!("it is unknown which programs use {}", key.device))),
    }
}

/// How many contexts programs have open on a device; `None` if the kernel does not say.
fn contexts(report: &HostReport, key: &PortKey) -> Option<u64> {
    let resources = report.snapshot.all::<RdmaResources>().find(|resources| resources.device == key.device)?;
    resources.counts.iter().find(|(name, _)| &**name == "ctx").map(|(_, count)| *count)
}

/// Asks the job scheduler.
///
/// # Errors
/// It says that the host works, or says nothing in time.
pub fn ask_scheduler(tools: &Toolbox, rules: &IdleRules) -> Result<(), SkipCause> {
    let Some((name, arguments)) = rules.busy_command.split_first() else { return Ok(()) };
    let busy = |text| Err((SkipReason::JobRunning, text));
    let path = PathBuf::from(name);
    let program = if path.is_absolute() { Some(path) } else { tools.find(name) };
    let Some(program) = program else {
        return busy(format!("{name} is not installed, so it is unknown whether the host is busy"));
    };
    let Ok(directory) = tempfile::tempdir() else {
        return busy("there is no temporary directory for its output".to_owned());
    };
    let invocation = Invocation { program, arguments: arguments.to_vec() };
    let Ok(mut child) = Child::start(&invocation, directory.path(), None) else {
        return busy(format!("{name} cannot be started, so it is unknown whether the host is busy"));
    };
    let ended = child.wait(Instant::now() + TIMEOUT);
    match ended.code {
        Some(0) if !ended.timed_out => Ok(()),
        Some(code) => busy(format!("{name} reports that the host is busy (exit status {code})")),
        None => busy(format!("{name} did not finish in time")),
    }
}

/// The load of the last minute, by CPU.
pub fn load() -> Option<f64> {
    let cpus = std::thread::available_parallelism().ok()?.get();
    #[expect(clippy::cast_precision_loss, reason = "CPUs are few")]
    Some(f64::from(procfs::LoadAverage::current().ok()?.one) / cpus as f64)
}

const NAME: &str = "lanewatch-probe.lock";

/// The lock, held while this lives.
#[derive(Debug)]
pub struct HostLock(#[expect(dead_code, reason = "held open")] File);

impl HostLock {
    /// Where it is: all users of the host must find the same one.
    pub fn place() -> PathBuf {
        let folder = Path::new("/run/lock");
        if folder.is_dir() { folder.join(NAME) } else { std::env::temp_dir().join(NAME) }
    }

    /// Takes it; none when somebody else has it.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let open = |create| {
            let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let flags = i32::try_from(flags.bits()).unwrap_or(0);
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags);
            if create {
                options.write(true).create(true).truncate(false).mode(0o644);
            }
            options.open(path)
        };
        // One that another user made must not be opened for creation in a folder for everybody.
        let file = open(false)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { open(true) } else { Err(error) })?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // A lock needs no more than reading; who may not widen the mode did not make it.
        let _ = file.set_permissions(std::fs::Permissions::from_mode(0o644));
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod guard_tests {
    use super::*;

    fn asked(command: &[&str]) -> Option<SkipReason> {
        let rules =
            IdleRules { busy_command: command.iter().map(|&word| word.to_owned()).collect(), ..IdleRules::default() };
        ask_scheduler(&Toolbox::new(), &rules).err().map(|(reason, _)| reason)
    }

    #[test]
    fn only_success_is_free() {
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&["true"]), None);
        assert_eq!(asked(&["/bin/sh", "-c", "exit 0"]), None);
        assert_eq!(asked(&["/bin/sh", "-c", "exit 3"]), Some(SkipReason::JobRunning));
        assert_eq!(asked(&["no-such-scheduler"]), Some(SkipReason::JobRunning));
        assert_eq!(asked(&["/bin/sh", "-c", "kill -9 $$"]), Some(SkipReason::JobRunning));
    }

    #[test]
    fn there_is_a_load() {
        assert!(load().is_some_and(|load| load >= 0.0));
    }
}

#[cfg(test)]
mod lock_tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_none_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = HostLock::take(&path).unwrap();
        assert!(first.is_some() && HostLock::take(&path).unwrap().is_none());
        drop(first);
        assert!(HostLock::take(&path).unwrap().is_some());
    }

    #[test]
    fn a_link_or_a_folder_is_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &link).unwrap();
        assert!(HostLock::take(&link).is_err());
        assert!(!directory.path().join("elsewhere").exists());
        assert!(HostLock::take(directory.path()).is_err());
    }
}
