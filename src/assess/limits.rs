//! Hold times, clear times and thresholds of the checks, in one place: the rules use them and `docs/checks.md` lists them.

use std::time::Duration;

use crate::model::check::Check;
use crate::model::finding::Hold;
use crate::model::policy::Thresholds;
use crate::model::reason::FindingReason;

const MINUTE: u64 = 60;

/// A port that is down.
pub const PORT_DOWN_HOLD: Hold = Hold::For(Duration::from_secs(30));
/// A port whose link is up and that waits for its subnet manager.
pub const SUBNET_MANAGER_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// A port below its expected rate.
pub const PORT_RATE_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// A device that is missing, or off the bus.
pub const DEVICE_HOLD: Hold = Hold::Passes(3);
/// Longer than drivers take to load and probe.
pub const NO_DRIVER_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// A width below what both ends support is always real.
pub const WIDTH_HOLD: Hold = Hold::Passes(3);
/// A speed may be low for a while when a link retrains or saves power.
pub const SPEED_HOLD: Hold = Hold::For(Duration::from_secs(10 * MINUTE));
/// Longer than it takes to create VFs, to boot a guest, or to set up a pod's network.
pub const VF_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// A detach that has not finished after this time will not.
pub const DETACH_HOLD: Hold = Hold::For(Duration::from_secs(10 * MINUTE));
/// How often a guest's interface may lose its VF in an hour: servicing of the host takes it once or twice.
pub const VF_LOSSES: usize = 4;
/// Losses in an hour from which on the machine is unusable.
pub const VF_LOSSES_CRITICAL: usize = 30;
/// Servicing of a host gives a guest its VF back within this time.
pub const SYNTHETIC_TIME: Duration = Duration::from_secs(10 * MINUTE);
/// How long a bad placement of interrupts must last.
pub const IRQ_HOLD: Hold = Hold::For(Duration::from_secs(15 * MINUTE));
/// Interrupts from which on their share on a CPU or node is a verdict: fewer load nothing.
pub const LEAST_INTERRUPTS: u64 = 1_000;
/// How long RoCE traffic must be lost or stalled.
pub const ROCE_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// So much loss in so short a time is no burst.
pub const ROCE_HEAVY_HOLD: Hold = Hold::For(Duration::from_secs(30));
/// How long RoCE traffic must be clean before the finding clears.
pub const ROCE_CLEAR: Duration = Duration::from_secs(10 * MINUTE);
/// Lost or refused RoCE packets in five minutes that are too many.
pub const ROCE_LOST: u64 = 60;
/// How long error counters must be within their limits before the finding clears.
pub const ERRORS_CLEAR: Duration = Duration::from_secs(60 * MINUTE);
/// How long a lane must be worse than the others.
pub const LANE_HOLD: Hold = Hold::For(Duration::from_secs(30 * MINUTE));
/// How long a link must lose nothing before the finding clears.
pub const LOSS_CLEAR: Duration = Duration::from_secs(126 * MINUTE);
/// How long a module must have a fault or too little light: until its second reading.
pub const MODULE_HOLD: Hold = Hold::For(Duration::from_secs(5 * MINUTE));
/// How much less light than the median of the others a lane may have: 3 dB.
pub const LANE_DARKER: f64 = 2.0;
/// Degrees Celsius above which a module without limits of its own is hot (UFM's figure).
pub const MODULE_HOT: f64 = 70.0;
/// How long a card must be hot.
pub const HOT_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// Lost codewords in twelve minutes that are too many: of so few, the mean is above 0.8 with 95 % confidence.
pub const LOST: u64 = 3;
/// Share of bits that may be wrong before correction, on lines with PAM4 and optics or an unknown cable (UFM's table).
pub const RAW_OPTICAL: f64 = 1e-5;
/// The same for copper, and for lines with 25 Gb/s a lane.
pub const RAW_COPPER: f64 = 1e-6;
/// Share of wrong bits at which RS(544,514) is at its end (IEEE 802.3).
pub const RAW_END: f64 = 2.4e-4;
/// How much worse than the median of the others a lane may be.
pub const UNEVEN: f64 = 100.0;
/// Share of wrong bits below which an uneven lane does not matter.
pub const UNEVEN_LEAST: f64 = 1e-8;
/// Degrees below its limit at which a sensor is close to it.
pub const HOT_MARGIN: f64 = 5.0;
/// How long RDMA contexts or objects must be near their limit.
pub const RDMA_CGROUP_HOLD: Hold = Hold::For(Duration::from_secs(2 * MINUTE));
/// A driver that recovers by itself has a reporter in error only briefly.
pub const REPORTER_HOLD: Hold = Hold::For(Duration::from_secs(30));

/// What a check needs before it reports, and the configuration keys that change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckDetails {
    /// How long the condition must hold.
    pub hold: String,
    /// How long it must be gone before the finding clears.
    pub clear_after: String,
    /// The limit that is exceeded.
    pub threshold: String,
    /// Keys of the configuration file, besides `policy.severity` and `policy.hold`, which every check has.
    pub keys: &'static [&'static str],
}

fn time(time: Duration) -> String {
    if time.is_zero() { "at once".to_owned() } else { humantime::format_duration(time).to_string() }
}

fn held(hold: Hold) -> String {
    match hold {
        Hold::None => "none".to_owned(),
        Hold::For(duration) => time(duration),
        Hold::Passes(count) => format!("{count} readings"),
    }
}

/// Hold and threshold of the checks of physical links.
fn of_links(check: Check) -> (String, String) {
    match check {
        Check::LinkQuality => (
            format!("as in the limit; {} for a lane", held(LANE_HOLD)),
            format!(
                "{LOST} lost codewords in 12m, critical in 3 of 10 such windows or at 1 per second for 1m; raw bit error ratio above {RAW_OPTICAL:e} (25 Gb/s lanes, copper: {RAW_COPPER:e}) in the worst minute of 2 of 3 \
                 windows of 10m; codewords in the last third of what FEC corrects in 3 of 5 windows of 2m; a lane with {UNEVEN} times the errors of the others"
            ),
        ),
        Check::ModuleFault => {
            (held(MODULE_HOLD), "the module's state is ModuleFault, or its temperature beyond its alarm limits".to_owned())
        }
        Check::ModuleLight => (
            held(MODULE_HOLD),
            "a lane below the module's low alarm limit; below its low warning limit, or 3 dB below the other lanes, is info"
                .to_owned(),
        ),
        _ => {
            let sensor = format!("{HOT_MARGIN} K below the sensor's own limit; critical at the limit");
            (held(HOT_HOLD), format!("{sensor}; a module without limits: {MODULE_HOT} °C"))
        }
    }
}

fn of_guests(check: Check) -> (String, String) {
    if check == Check::VfFailover {
        let without = time(SYNTHETIC_TIME);
        let losses =
            format!("{VF_LOSSES} losses of the VF in 1h, critical from {VF_LOSSES_CRITICAL}; {without} without it");
        return (held(Hold::None), losses);
    }
    let detach = held(DETACH_HOLD);
    (format!("{}; {detach} for a detach", held(VF_HOLD)), "no traffic or benchmark since the event".to_owned())
}

fn of_interrupts(check: Check) -> String {
    match check {
        Check::IrqRemote => format!("any interrupt; warning above 20 % of at least {LEAST_INTERRUPTS}"),
        Check::IrqPiledUp => {
            format!("over 50 % of at least {LEAST_INTERRUPTS} interrupts on one CPU, with at least 4 active vectors")
        }
        _ => "10 % fewer vectors on the device's own node".to_owned(),
    }
}

/// The details of a check, with the default thresholds.
#[expect(clippy::too_many_lines, reason = "one arm for each check")]
pub fn details(check: Check) -> CheckDetails {
    let defaults = Thresholds::default();
    let (mut clear, mut keys): (Duration, &[&str]) = (Duration::ZERO, &[]);
    let mut clear_text = None;
    let (hold, threshold) = match check {
        Check::PortDown => {
            keys = &["policy.port.up"];
            let waiting = held(SUBNET_MANAGER_HOLD);
            (
                format!("{}; {waiting} in INIT or ARMED", held(PORT_DOWN_HOLD)),
                "not ACTIVE although expected up".to_owned(),
            )
        }
        Check::PortRateLow => {
            keys = &["policy.port.rate"];
            (held(PORT_RATE_HOLD), "below policy, baseline or most ports of the model".to_owned())
        }
        Check::PortFlapping => {
            keys = &["policy.threshold.flaps-critical", "policy.threshold.settle"];
            clear_text = Some("1h after the last flap".to_owned());
            let critical = defaults.flaps_critical;
            (
                held(Hold::None),
                format!(
                    "1 flap; critical from {critical} in 12h; not in the first {} after boot",
                    time(defaults.settle)
                ),
            )
        }
        Check::PortErrors => {
            (clear, keys) = (ERRORS_CLEAR, &["policy.threshold.errors"]);
            let common = defaults.errors.iter().filter(|limit| limit.reason != FindingReason::DriverCounter);
            let limits: Vec<String> = common.map(|limit| format!("{}: {}", limit.counter, limit.text)).collect();
            (held(Hold::None), format!("{}; counters of single drivers: drivers.md", limits.join("; ")))
        }
        Check::LinkQuality => {
            clear = ERRORS_CLEAR;
            clear_text = Some(format!("{}; {} after losses", time(ERRORS_CLEAR), time(LOSS_CLEAR)));
            of_links(check)
        }
        Check::PortCounterSaturated => (held(Hold::None), "counter at its maximum".to_owned()),
        Check::DeviceMissing => {
            keys = &["policy.devices"];
            (held(DEVICE_HOLD), "not listed by the kernel".to_owned())
        }
        Check::DeviceNoDriver => {
            (held(NO_DRIVER_HOLD), "an RDMA card without driver or RDMA device; bound to vfio-pci is fine".to_owned())
        }
        Check::NicHot | Check::ModuleFault | Check::ModuleLight => of_links(check),
        Check::GpuNicFar => (
            held(DEVICE_HOLD),
            "farther than in the baseline, or the only one of 4 without a card on its switch".to_owned(),
        ),
        Check::PcieOffBus => (held(DEVICE_HOLD), "configuration space reads all ones".to_owned()),
        Check::PcieBelowPortRate | Check::PcieDegraded | Check::PcieDrifted => {
            if check == Check::PcieDrifted {
                keys = &["policy.link.speed", "policy.link.width"];
            }
            let below = match check {
                Check::PcieBelowPortRate => "below the rates of the active ports",
                Check::PcieDegraded => "below what both ends support",
                _ => "below baseline or policy",
            };
            (format!("{}; {} if only the speed is low", held(WIDTH_HOLD), held(SPEED_HOLD)), below.to_owned())
        }
        Check::PcieLimitedBySlot => (held(WIDTH_HOLD), "the slot supports less than the card".to_owned()),
        Check::PcieAer => {
            keys = &["policy.threshold.correctable-aer-per-hour"];
            clear_text = Some("1h after the last error".to_owned());
            let most = defaults.correctable_aer_per_hour;
            (held(Hold::None), format!("1 error in 1h; warning above {most} correctable in 1h"))
        }
        Check::VfMapStale | Check::VfFailover => of_guests(check),
        Check::VfCountMismatch => {
            keys = &["policy.vfs.count"];
            (held(VF_HOLD), "counts differ, or fewer than the policy expects".to_owned())
        }
        Check::VfOrphan
        | Check::VfDangling
        | Check::VfIdentityZero
        | Check::VfIdentityDuplicate
        | Check::VfIdentityChanged
        | Check::VfDriverChanged
        | Check::VfLeftoverConfig
        | Check::VfPfDown
        | Check::VfLinkDisabled
        | Check::VfGroupShared
        | Check::VfConfigDrifted => (held(VF_HOLD), "any".to_owned()),
        Check::IrqRemote | Check::IrqPiledUp | Check::IrqDrifted => (held(IRQ_HOLD), of_interrupts(check)),
        Check::RoceLossy => {
            clear = ROCE_CLEAR;
            (held(ROCE_HOLD), format!("over {ROCE_LOST} packets, or 10 % of the time paused, in 5m"))
        }
        Check::RdmaCgroupLimitNear => (held(RDMA_CGROUP_HOLD), "90 % of a limit in rdma.max".to_owned()),
        Check::ProbeSlow => {
            (held(Hold::None), "3 of 5 runs below 85 % of the ceiling or 90 % of the usual value".to_owned())
        }
        Check::ProbeFailing => (held(Hold::None), "3 of 5 runs failed".to_owned()),
        Check::KernelMessage => {
            clear_text = Some("1h after the last message".to_owned());
            (
                format!("none; {} for a health reporter", held(REPORTER_HOLD)),
                "1 message; 3 link losses in 10m, 5 VF resets in 1m are a warning".to_owned(),
            )
        }
        Check::HostPosture => (held(Hold::None), "any".to_owned()),
    };
    CheckDetails { hold, clear_after: clear_text.unwrap_or_else(|| time(clear)), threshold, keys }
}
