//! What other tools print of a link, as people paste it into tickets: `mstlink --json`, `ethtool -m`, `ethtool -S`.

use std::sync::Arc;

use super::module::eeprom;
use super::mstlink::{self, Rejected};
use crate::model::firmware_link::FirmwareLink;
use crate::model::module::{
    CableTechnology, Limits, ModuleIdentity, ModuleLane, ModuleLimits, ModuleState, ModuleValues,
};
use crate::model::units::Celsius;

/// Most lanes that are read.
const MOST_LANES: usize = 16;

/// What a text is.
#[derive(Debug, Clone, PartialEq)]
pub enum Pasted {
    /// `mstlink --json` or `mlxlink --json`.
    Firmware(Box<FirmwareLink>),
    /// `ethtool -m`.
    Module(Box<(ModuleIdentity, ModuleLimits, ModuleValues)>),
    /// `ethtool -S`: statistics by name.
    Statistics(Vec<(String, u64)>),
    /// Nothing of these, with the reason.
    Nothing(String),
}

/// Reads a text of one of the tools.
pub fn read(text: &str) -> Pasted {
    if mstlink::is_mstlink(text) {
        return match mstlink::parse(text) {
            Ok(link) => Pasted::Firmware(Box::new(link)),
            Err(Rejected::Failed(message)) => Pasted::Nothing(format!("the tool failed: {message}")),
            Err(Rejected::Malformed) => Pasted::Nothing("the document is damaged or too long".to_owned()),
        };
    }
    if let Some(module) = module(text) {
        return Pasted::Module(Box::new(module));
    }
    let statistics: Vec<(String, u64)> = text.lines().filter_map(statistic).collect();
    if text.contains("NIC statistics") && !statistics.is_empty() {
        return Pasted::Statistics(statistics);
    }
    if text.contains("-E-") {
        let line = text.lines().find(|line| line.contains("-E-")).unwrap_or_default().trim();
        return Pasted::Nothing(format!("the tool failed: {line}"));
    }
    Pasted::Nothing("not the output of mstlink --json, ethtool -m or ethtool -S".to_owned())
}

/// A line of `ethtool -S`.
fn statistic(line: &str) -> Option<(String, u64)> {
    let (name, value) = line.trim().rsplit_once(": ")?;
    let plain = !name.is_empty() && !name.contains(' ');
    value.trim().parse().ok().filter(|_| plain).map(|value| (name.to_owned(), value))
}

/// A line of `ethtool -m`: key and value.
fn field(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(" : ").or_else(|| line.trim_end().strip_suffix(" :").map(|key| (key, "")))?;
    Some((key.trim(), value.trim()))
}

/// The first number of a value: `0.4500 mW / -3.47 dBm`.
fn number(value: &str) -> Option<f64> {
    let end =
        value.find(|char: char| !char.is_ascii_digit() && !matches!(char, '.' | '-' | '+')).unwrap_or(value.len());
    value.get(..end)?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn module(text: &str) -> Option<(ModuleIdentity, ModuleLimits, ModuleValues)> {
    let fields: Vec<(&str, &str)> = text.lines().filter_map(field).collect();
    let find = |key: &str| fields.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    let identifier = find("Identifier")?.strip_prefix("0x")?.get(..2)?;
    let mut first = eeprom::Eeprom::default();
    first.set(eeprom::KIND, vec![u8::from_str_radix(identifier, 16).ok()?, 0, 0]);
    let form = first.form()?;
    let technology = find("Transmitter technology").unwrap_or_default().to_ascii_lowercase();
    let passive =
        find("Passive Cu cmplnce.").is_some() || technology.contains("unequalized") || technology.contains("passive");
    let technology = if passive {
        CableTechnology::PassiveCopper
    } else if technology.contains("copper") || find("Active Cu cmplnce.").is_some() {
        CableTechnology::ActiveCopper
    } else {
        CableTechnology::Optical
    };
    let text_of = |key: &str| find(key).filter(|value| !value.is_empty()).map(Arc::from);
    let lengths =
        ["Cable assembly length", "Length (Copper or Active cable)", "Length (Copper)", "Length (OM4)", "Length (OM3)"];
    let length = lengths.into_iter().find_map(|key| number(find(key)?).filter(|length| *length > 0.0));
    let kilometres = || number(find("Length (SMF,km)")?).filter(|length| *length > 0.0).map(|length| length * 1000.0);
    let identity = ModuleIdentity {
        form,
        technology,
        vendor: text_of("Vendor name"),
        part_number: text_of("Vendor PN"),
        serial_number: text_of("Vendor SN"),
        revision: text_of("Vendor rev"),
        firmware_version: None,
        length: length.or_else(kilometres),
    };
    let limits = |what: &str, scale: f64| {
        let level = |level: &str| number(find(&format!("{what} {level} threshold"))?).map(|value| value * scale);
        Limits::new(level("low alarm")?, level("low warning")?, level("high warning")?, level("high alarm")?)
    };
    let limits = ModuleLimits {
        temperature: limits("Module temperature", 1.0),
        voltage: limits("Module voltage", 1.0),
        receive: limits("Laser rx power", 1e-3),
        transmit: limits("Laser output power", 1e-3),
        bias: limits("Laser bias current", 1e-3),
    };
    let state = find("Module State").map(|state| match state {
        state if state.contains("Ready") => Some(ModuleState::Ready),
        state if state.contains("Fault") => Some(ModuleState::Fault),
        state if state.contains("LowPwr") => Some(ModuleState::LowPower),
        _ => None,
    });
    let values = ModuleValues {
        state: state.flatten(),
        temperature: find("Module temperature").and_then(number).map(Celsius),
        voltage: find("Module voltage").and_then(number),
        lanes: lanes(&fields),
    };
    Some((identity, limits, values))
}

fn lanes(fields: &[(&str, &str)]) -> Vec<ModuleLane> {
    let mut lanes: Vec<ModuleLane> = Vec::new();
    for (key, value) in fields {
        let (what, lane) = match key.split_once("(Channel ") {
            Some((what, channel)) => {
                let channel: Option<usize> = channel.trim_end_matches(')').trim().parse().ok();
                (what.trim(), channel.and_then(|channel| channel.checked_sub(1)))
            }
            None => (*key, Some(0)),
        };
        let Some(lane) = lane.filter(|lane| *lane < MOST_LANES) else { continue };
        let milli = number(value).map(|value| value * 1e-3);
        let set = |lanes: &mut Vec<ModuleLane>, put: fn(&mut ModuleLane, Option<f64>)| {
            if lanes.len() <= lane {
                lanes.resize(lane + 1, ModuleLane::default());
            }
            if let Some(values) = lanes.get_mut(lane) {
                put(values, milli);
            }
        };
        match what {
            "Rcvr signal avg optical power" | "Receiver signal average optical power" | "Receiver signal OMA" => {
                set(&mut lanes, |lane, value| lane.receive = value);
            }
            "Transmit avg optical power" | "Laser output power" => set(&mut lanes, |lane, value| lane.transmit = value),
            "Laser tx bias current" | "Laser bias current" => set(&mut lanes, |lane, value| lane.bias = value),
            _ => {}
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::module::ModuleForm;

    const QSFP: &str = "\
\tIdentifier                                : 0x11 (QSFP28)
\tExtended identifier                       : 0xcc
\tTransmitter technology                    : 0x40 (1310 nm DFB)
\tLength (SMF,km)                           : 10km
\tLength (OM3)                              : 0m
\tVendor name                               : ACME OPTICS
\tVendor PN                                 : AO-100LR4
\tVendor rev                                : 1A
\tVendor SN                                 : SN0002
\tModule temperature                        : 48.25 degrees C / 118.85 degrees F
\tModule voltage                            : 3.2900 V
\tAlarm/warning flags implemented           : Yes
\tLaser tx bias current (Channel 1)         : 40.000 mA
\tLaser tx bias current (Channel 2)         : 40.200 mA
\tTransmit avg optical power (Channel 1)    : 0.9000 mW / -0.46 dBm
\tRcvr signal avg optical power(Channel 1)  : 0.5000 mW / -3.01 dBm
\tRcvr signal avg optical power(Channel 2)  : 0.0000 mW / -inf dBm
\tLaser bias current high alarm   (Chan 1)  : Off
\tModule temperature high alarm             : Off
\tLaser rx power high alarm threshold       : 2.0000 mW / 3.01 dBm
\tLaser rx power low alarm threshold        : 0.1000 mW / -10.00 dBm
\tLaser rx power high warning threshold     : 1.5000 mW / 1.76 dBm
\tLaser rx power low warning threshold      : 0.1500 mW / -8.24 dBm
";

    #[test]
    fn a_module_as_ethtool_prints_it() {
        let Pasted::Module(module) = read(QSFP) else { panic!() };
        let (identity, limits, values) = *module;
        assert_eq!(
            (identity.form, identity.technology, identity.length),
            (ModuleForm::Qsfp28, CableTechnology::Optical, Some(10_000.0))
        );
        assert_eq!(
            (identity.vendor.as_deref(), identity.serial_number.as_deref()),
            (Some("ACME OPTICS"), Some("SN0002"))
        );
        assert_eq!((values.temperature, values.lanes.len()), (Some(Celsius(48.25)), 2));
        assert_eq!((values.lanes[0].receive, values.lanes[1].receive), (Some(0.5e-3), Some(0.0)));
        assert_eq!((limits.receive.map(|limits| limits.low_alarm), limits.temperature), (Some(0.1e-3), None));
        let copper = "\tIdentifier : 0x0d (QSFP+)\n\tTransmitter technology : 0xa0 (Copper cable unequalized)\n";
        let Pasted::Module(module) = read(copper) else { panic!() };
        assert_eq!(module.0.technology, CableTechnology::PassiveCopper);
    }

    #[test]
    fn statistics_and_everything_else() {
        let text =
            "NIC statistics:\n     rx_packets: 12\n     rx_pcs_symbol_err_phy: 3\n     odd line\n     [0]: rx: 5\n";
        let expected = vec![("rx_packets".to_owned(), 12), ("rx_pcs_symbol_err_phy".to_owned(), 3)];
        assert_eq!(read(text), Pasted::Statistics(expected));
        for (text, why) in [
            (
                "-E- Failed to open device: \"mlx5_0\", Permission denied\n",
                "the tool failed: -E- Failed to open device",
            ),
            ("hello", "not the output of"),
            ("", "not the output of"),
            ("{\"result\":{\"output\":{}},\"status\":{\"code\":1}}", "the tool failed: no message (status 1)"),
        ] {
            let Pasted::Nothing(reason) = read(text) else { panic!("{text}") };
            assert!(reason.starts_with(why), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>(), like in "(\tIdentifier : 0x[01][0-9a-f]|\tModule temperature : [0-9.-]{0,6} C|\tRcvr signal avg optical power\\(Channel [0-9]{0,3}\\) : [0-9.]{0,5} mW|\n|NIC statistics:|  [a-z_]{0,5}: [0-9]{0,25}){0,12}") {
            for text in [text, like] {
                if let Pasted::Module(module) = read(&text) {
                    prop_assert!(module.2.lanes.len() <= MOST_LANES);
                }
            }
        }
    }
}
