//! Modules and cables in the cages of ports: what they are, how they do, and their own limits.

use std::sync::Arc;

use super::ids::PciAddress;
use super::labels::label_enum;
use super::rdma::Port;
use super::snapshot::Snapshot;
use super::time::BootTime;
use super::units::Celsius;

label_enum! {
    /// The shape of a module (SFF-8024, identifier).
    ModuleForm {
        /// SFP, SFP28, SFP56.
        Sfp = "sfp",
        /// QSFP.
        Qsfp = "qsfp",
        /// QSFP+.
        QsfpPlus = "qsfp+",
        /// QSFP28.
        Qsfp28 = "qsfp28",
        /// QSFP56, QSFP112.
        Qsfp112 = "qsfp112",
        /// QSFP-DD.
        QsfpDd = "qsfp-dd",
        /// OSFP.
        Osfp = "osfp",
        /// DSFP.
        Dsfp = "dsfp",
        /// SFP-DD.
        SfpDd = "sfp-dd",
    }
}

label_enum! {
    /// What carries the signal.
    CableTechnology {
        /// A copper cable without electronics.
        PassiveCopper = "passive_copper",
        /// A copper cable with electronics.
        ActiveCopper = "active_copper",
        /// Light: a module, or a cable with fibre.
        Optical = "optical",
    }
}

impl CableTechnology {
    /// Words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::PassiveCopper => "passive copper",
            Self::ActiveCopper => "active copper",
            Self::Optical => "optical",
        }
    }
}

label_enum! {
    /// The state of a module with CMIS.
    ModuleState {
        /// It waits to be switched on.
        LowPower = "low_power",
        /// It switches on.
        PoweringUp = "powering_up",
        /// It works.
        Ready = "ready",
        /// It switches off.
        PoweringDown = "powering_down",
        /// It has a fault.
        Fault = "fault",
    }
}

impl ModuleState {
    /// Whether it stays so: a module must not be read while it changes its state.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::PoweringUp | Self::PoweringDown)
    }
}

/// What a module is. A field that is empty or unreadable is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleIdentity {
    /// Its shape.
    pub form: ModuleForm,
    /// What carries the signal.
    pub technology: CableTechnology,
    /// Vendor's name.
    pub vendor: Option<Arc<str>>,
    /// Vendor's part number.
    pub part_number: Option<Arc<str>>,
    /// Serial number.
    pub serial_number: Option<Arc<str>>,
    /// Revision.
    pub revision: Option<Arc<str>>,
    /// Version of the active firmware: `3.1`.
    pub firmware_version: Option<Arc<str>>,
    /// Length of the cable, or of the fibre that it is made for, in metres.
    pub length: Option<f64>,
}

/// A module's own limits of one value, in the value's unit: ordered from `low_alarm` to `high_alarm`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Below it the module is out of order.
    pub low_alarm: f64,
    /// Below it something is wrong.
    pub low_warning: f64,
    /// Above it something is wrong.
    pub high_warning: f64,
    /// Above it the module is out of order.
    pub high_alarm: f64,
}

impl Limits {
    /// Limits from the numbers of a module; `None` if they are missing, equal or not in order, as some modules have them.
    pub fn new(low_alarm: f64, low_warning: f64, high_warning: f64, high_alarm: f64) -> Option<Self> {
        let ordered = low_alarm <= low_warning && low_warning <= high_warning && high_warning <= high_alarm;
        let finite = [low_alarm, high_alarm].into_iter().all(f64::is_finite);
        (finite && ordered && low_alarm < high_alarm).then_some(Self {
            low_alarm,
            low_warning,
            high_warning,
            high_alarm,
        })
    }

    /// The limits by the names of their levels.
    pub fn levels(&self) -> [(&'static str, f64); 4] {
        [
            ("low_alarm", self.low_alarm),
            ("low_warning", self.low_warning),
            ("high_warning", self.high_warning),
            ("high_alarm", self.high_alarm),
        ]
    }
}

/// A module's own limits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModuleLimits {
    /// Temperature, degrees Celsius.
    pub temperature: Option<Limits>,
    /// Supply voltage, volts.
    pub voltage: Option<Limits>,
    /// Received light of a lane, watts.
    pub receive: Option<Limits>,
    /// Sent light of a lane, watts.
    pub transmit: Option<Limits>,
    /// Current of a lane's laser, amperes.
    pub bias: Option<Limits>,
}

/// One lane of a module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModuleLane {
    /// Received light, watts; 0 is no light.
    pub receive: Option<f64>,
    /// Sent light, watts.
    pub transmit: Option<f64>,
    /// Current of the laser, amperes.
    pub bias: Option<f64>,
}

/// How a module does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModuleValues {
    /// Its state; `None` if it has none (before CMIS).
    pub state: Option<ModuleState>,
    /// Temperature.
    pub temperature: Option<Celsius>,
    /// Supply voltage, volts.
    pub voltage: Option<f64>,
    /// Lanes in use, from 0; empty for copper.
    pub lanes: Vec<ModuleLane>,
}

/// The module in the cage of an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// The interface.
    pub netdev: Arc<str>,
    /// Its function.
    pub pci_address: PciAddress,
    /// What it is.
    pub identity: Arc<ModuleIdentity>,
    /// Its limits.
    pub limits: ModuleLimits,
    /// How it does; `None` while that could not be read.
    pub values: Option<ModuleValues>,
    /// When the values were read; when the identity was, without values.
    pub at: BootTime,
}

impl Module {
    /// The module of a port, if modules are read.
    pub fn of<'a>(snapshot: &'a Snapshot, port: &Port) -> Option<&'a Self> {
        let netdev = port.netdev.as_deref()?;
        snapshot.all::<Self>().find(|module| *module.netdev == *netdev)
    }
}

/// Light that is none: below -30 dBm.
pub const NO_LIGHT_WATTS: f64 = 1e-6;

/// Light in the unit of people: `-2.1 dBm`, `no light`.
pub fn dbm(watts: f64) -> String {
    if watts < NO_LIGHT_WATTS { "no light".to_owned() } else { format!("{:.1} dBm", 10.0 * (watts * 1e3).log10()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_missing_or_reversed_are_none() {
        assert!(Limits::new(-5.0, 0.0, 70.0, 75.0).is_some());
        assert!(Limits::new(0.0, 0.0, 0.0, 0.0).is_none());
        assert!(Limits::new(75.0, 70.0, 0.0, -5.0).is_none());
        assert!(Limits::new(-5.0, 80.0, 70.0, 75.0).is_none());
        assert!(Limits::new(f64::NAN, 0.0, 70.0, 75.0).is_none());
    }

    #[test]
    fn light_as_people_say_it() {
        assert_eq!([dbm(1e-3), dbm(0.02e-3), dbm(0.0), dbm(1e-7)], ["0.0 dBm", "-17.0 dBm", "no light", "no light"]);
    }
}
