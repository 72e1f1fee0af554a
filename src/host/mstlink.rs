//! What `mstlink` (or `mlxlink`) says of a port, as `--json` prints it: the firmware's own reasons and error ratios, which
//! no kernel interface has. The tools need root; this reads what somebody else made them print.

use std::sync::Arc;

use serde_json::Value;

use crate::model::firmware_link::FirmwareLink;
use crate::model::module::{
    CableTechnology, Limits, ModuleForm, ModuleIdentity, ModuleLane, ModuleLimits, ModuleState, ModuleValues,
};
use crate::model::units::Celsius;

/// Longest document that is read, in bytes.
pub const LONGEST: usize = 64 * 1024;

/// Longest text of a field that is kept.
const LONGEST_TEXT: usize = 120;

/// Most lanes.
const MOST_LANES: usize = 16;

/// Why a document says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// It is no JSON, or not of these tools, or too long.
    Malformed,
    /// The tool failed, with this message.
    Failed(String),
}

/// Whether a text looks like the output of these tools.
pub fn is_mstlink(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"result\"") && text.contains("\"output\"")
}

/// Reads a document. A field that is unknown there (`N/A`), or that makes no sense, is absent.
///
/// # Errors
/// Why it says nothing.
pub fn parse(text: &str) -> Result<FirmwareLink, Rejected> {
    if text.len() > LONGEST {
        return Err(Rejected::Malformed);
    }
    let document: Value = serde_json::from_str(text).map_err(|_| Rejected::Malformed)?;
    let output = document.pointer("/result/output").filter(|output| output.is_object());
    let status = document.get("status");
    let code = status.and_then(|status| status.get("code")).and_then(Value::as_i64);
    if let Some(code) = code.filter(|code| *code != 0) {
        let message = status.and_then(|status| status.get("message")).and_then(Value::as_str).unwrap_or("no message");
        return Err(Rejected::Failed(format!("{} (status {code})", clean(message))));
    }
    let sections = Sections(output.ok_or(Rejected::Malformed)?);
    let minutes = sections.number("Time Since Last Clear [Min]");
    Ok(FirmwareLink {
        state: sections.text("State"),
        speed: sections.text("Speed"),
        fec: sections.text("FEC"),
        opcode: sections.text("Status Opcode").and_then(|text| text.parse().ok()),
        recommendation: sections.text("Recommendation"),
        observed_seconds: minutes.filter(|minutes| *minutes >= 0.0).map(|minutes| minutes * 60.0),
        raw_ratio: sections.ratio("Raw Physical BER"),
        effective_ratio: sections.ratio("Effective Physical BER"),
        symbol_ratio: sections.ratio("Symbol BER"),
        effective_errors: sections.count("Effective Physical Errors"),
        symbol_errors: sections.count("Symbol Errors"),
        lane_errors: sections
            .list("Raw Physical Errors Per Lane")
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
        link_downs: sections.count("Link Down Counter"),
        identity: sections.identity().map(Arc::new),
        limits: sections.limits(),
        values: sections.values(),
    })
}

/// The sections of a document; a key is looked for in all of them, as versions of the tool move keys about.
struct Sections<'a>(&'a Value);

impl Sections<'_> {
    fn find(&self, key: &str) -> Option<&Value> {
        let mut sections = self.0.as_object()?.values();
        sections.find_map(|section| {
            section.as_object()?.iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value)
        })
    }

    fn text(&self, key: &str) -> Option<Arc<str>> {
        let text = clean(self.find(key)?.as_str()?);
        (!text.is_empty() && text != "N/A").then(|| Arc::from(text))
    }

    /// The elements of a list, or of a text with commas.
    fn list(&self, key: &str) -> Vec<String> {
        let mut found: Vec<String> = match self.find(key) {
            Some(Value::String(text)) => text.split(',').map(clean).collect(),
            Some(Value::Object(list)) => {
                let values = list.get("values").and_then(Value::as_array);
                values.into_iter().flatten().filter_map(|value| value.as_str().map(clean)).collect()
            }
            _ => Vec::new(),
        };
        found.truncate(MOST_LANES);
        found
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.text(key)?.split_whitespace().next()?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    fn count(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// An error ratio; `15E-255` is how the tools write none.
    fn ratio(&self, key: &str) -> Option<f64> {
        let ratio = self.number(key).filter(|ratio| (0.0..=1.0).contains(ratio))?;
        Some(if ratio < 1e-100 { 0.0 } else { ratio })
    }

    /// Values before the bracket, and the limits in it: `1.1,1.3,-40.0 [-8.5..6]`.
    fn monitored(&self, key: &str) -> (Vec<Option<f64>>, Option<(f64, f64)>) {
        let text = match self.find(key) {
            Some(Value::String(text)) => clean(text),
            Some(Value::Object(_)) => self.list(key).join(","),
            _ => return (Vec::new(), None),
        };
        let (values, limits) = text.split_once('[').unwrap_or((&text, ""));
        let values = values.split(',').map(|value| value.trim().parse().ok().filter(|value: &f64| value.is_finite()));
        let limits = limits.split(']').next().and_then(|limits| limits.split_once(".."));
        let limits = limits.and_then(|(low, high)| low.trim().parse().ok().zip(high.trim().parse().ok()));
        (values.take(MOST_LANES).collect(), limits)
    }

    fn identity(&self) -> Option<ModuleIdentity> {
        let form = match self.text("Identifier")?.to_ascii_uppercase() {
            text if text.contains("OSFP") => ModuleForm::Osfp,
            text if text.contains("QSFP-DD") => ModuleForm::QsfpDd,
            text if text.contains("QSFP28") => ModuleForm::Qsfp28,
            text if text.contains("QSFP_CMIS") || text.contains("QSFP CMIS") || text.contains("QSFP112") => {
                ModuleForm::Qsfp112
            }
            text if text.contains("QSFP+") => ModuleForm::QsfpPlus,
            text if text.contains("QSFP") => ModuleForm::Qsfp,
            text if text.contains("SFP-DD") => ModuleForm::SfpDd,
            text if text.contains("DSFP") => ModuleForm::Dsfp,
            text if text.contains("SFP") => ModuleForm::Sfp,
            _ => return None,
        };
        let cable = [self.text("Cable Type"), self.text("Cable Technology")].into_iter().flatten();
        let cable = cable.map(|text| text.to_ascii_lowercase()).collect::<Vec<_>>().join(" ");
        let technology = if cable.contains("passive") {
            CableTechnology::PassiveCopper
        } else if cable.contains("copper") {
            CableTechnology::ActiveCopper
        } else {
            CableTechnology::Optical
        };
        Some(ModuleIdentity {
            form,
            technology,
            vendor: self.text("Vendor Name"),
            part_number: self.text("Vendor Part Number"),
            serial_number: self.text("Vendor Serial Number"),
            revision: self.text("Rev"),
            firmware_version: self.text("FW Version"),
            length: self.number("Transfer Distance [m]").filter(|length| *length > 0.0),
        })
    }

    fn limits(&self) -> ModuleLimits {
        let limits = |key: &str, scale: fn(f64) -> f64| {
            let (low, high) = self.monitored(key).1?;
            Limits::new(scale(low), scale(low), scale(high), scale(high))
        };
        ModuleLimits {
            temperature: limits("Temperature [C]", |degrees| degrees),
            voltage: limits("Voltage [mV]", |millivolts| millivolts / 1e3),
            receive: limits("Rx Power Current [dBm]", watts),
            transmit: limits("Tx Power Current [dBm]", watts),
            bias: limits("Bias Current [mA]", |milliamperes| milliamperes / 1e3),
        }
    }

    fn values(&self) -> Option<ModuleValues> {
        let one = |key: &str| self.monitored(key).0.into_iter().next().flatten();
        let temperature = one("Temperature [C]").map(Celsius);
        let sides = ["Rx Power Current [dBm]", "Tx Power Current [dBm]", "Bias Current [mA]"];
        let [receive, transmit, bias] = sides.map(|key| self.monitored(key).0);
        let lanes = receive.len().max(transmit.len());
        let at = |list: &[Option<f64>], lane: usize| list.get(lane).copied().flatten();
        let lane = |lane: usize| ModuleLane {
            receive: at(&receive, lane).map(watts),
            transmit: at(&transmit, lane).map(watts),
            bias: at(&bias, lane).map(|milliamperes| milliamperes / 1e3),
        };
        let state = self.text("Module State").map(|text| text.to_ascii_lowercase());
        let state = match state.as_deref() {
            Some(text) if text.contains("ready") => Some(ModuleState::Ready),
            Some(text) if text.contains("fault") => Some(ModuleState::Fault),
            Some(text) if text.contains("low") => Some(ModuleState::LowPower),
            _ => None,
        };
        let lanes: Vec<ModuleLane> = (0..lanes).map(lane).collect();
        let some = temperature.is_some() || state.is_some() || !lanes.is_empty();
        some.then(|| ModuleValues { state, temperature, voltage: one("Voltage [mV]").map(|value| value / 1e3), lanes })
    }
}

/// dBm to watts; what is below -40 dBm is none.
fn watts(dbm: f64) -> f64 {
    if dbm <= -40.0 { 0.0 } else { 10f64.powf(dbm / 10.0) * 1e-3 }
}

/// A text without colour codes and control characters, and not too long.
fn clean(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            // `ESC [ ... m`
            let _ = chars.by_ref().find(char::is_ascii_alphabetic);
        } else if !char.is_control() {
            out.push(char);
        }
    }
    out.trim().chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn document(output: &Value) -> String {
        json!({ "result": { "output": output }, "status": { "code": 0, "message": "success" } }).to_string()
    }

    #[test]
    fn a_link_that_is_up() {
        let link = parse(&document(&json!({
            "Operational Info": { "State": "Active", "Speed": "IB-NDR", "FEC": "RS-FEC - (544,514) + PLR" },
            "Troubleshooting Info": {
                "Status Opcode": "0", "Group Opcode": "N/A", "Recommendation": "\u{1b}[32mNo issue was observed\u{1b}[0m",
            },
            "Physical Counters and BER Info": {
                "Time Since Last Clear [Min]": "1440.0", "Symbol Errors": "0", "Symbol BER": "15E-255",
                "Effective Physical Errors": "3", "Effective Physical BER": "4E-15", "Raw Physical BER": "2E-9",
                "Raw Physical Errors Per Lane": { "values": ["120", "94", "88", "4051"] }, "Link Down Counter": "1",
            },
            "Module Info": {
                "Identifier": "OSFP", "Cable Type": "Optical Module (separated)", "Vendor Name": "ACME OPTICS",
                "Vendor Part Number": "AO-400DR4", "Vendor Serial Number": "SN0004", "Rev": "A2",
                "Transfer Distance [m]": "500", "Temperature [C]": "51 [-5..75]", "Voltage [mV]": "3228.9 [2970..3630]",
                "Rx Power Current [dBm]": "1.1,1.3,-40.0,0.9 [-8.5..6]", "Module State": "Ready state",
                "Tx Power Current [dBm]": { "values": ["1.0", "1.1", "1.2", "1.3 [-6..5]"] },
                "Bias Current [mA]": "80.1,79.9,N/A,80.2 [20..150]",
            },
        })))
        .unwrap();
        assert_eq!((link.state.as_deref(), link.opcode), (Some("Active"), Some(0)));
        assert_eq!(link.recommendation.as_deref(), Some("No issue was observed"));
        assert_eq!((link.raw_ratio, link.symbol_ratio, link.effective_errors), (Some(2e-9), Some(0.0), Some(3)));
        assert_eq!((link.observed_seconds, link.lane_errors), (Some(86_400.0), vec![120, 94, 88, 4051]));
        let identity = link.identity.unwrap();
        assert_eq!((identity.form, identity.technology), (ModuleForm::Osfp, CableTechnology::Optical));
        assert_eq!((identity.length, identity.part_number.as_deref()), (Some(500.0), Some("AO-400DR4")));
        let values = link.values.unwrap();
        assert_eq!((values.temperature, values.state), (Some(Celsius(51.0)), Some(ModuleState::Ready)));
        assert_eq!((values.lanes.len(), values.lanes[2].receive, values.lanes[2].bias), (4, Some(0.0), None));
        assert!((values.lanes[0].transmit.unwrap() - 1.2589e-3).abs() < 1e-6);
        assert!((link.limits.receive.unwrap().low_alarm - 1.4125e-4).abs() < 1e-7);
    }

    #[test]
    fn a_link_without_a_cable() {
        let link = parse(&document(&json!({
            "Operational Info": { "State": "Polling", "Speed": "N/A", "FEC": "N/A" },
            "Troubleshooting Info": { "Status Opcode": "1024", "Recommendation": "Cable is unplugged" },
            "Module Info": { "Identifier": "N/A", "Temperature [C]": "N/A" },
        })))
        .unwrap();
        assert_eq!((link.opcode, link.speed, link.identity, link.values), (Some(1024), None, None, None));
    }

    #[test]
    fn what_failed_or_is_something_else_says_nothing() {
        let failed = r#"{"result":{"output":{}},"status":{"code":1,"message":"FW burn: ICMD semaphore"}}"#;
        assert_eq!(parse(failed), Err(Rejected::Failed("FW burn: ICMD semaphore (status 1)".to_owned())));
        for text in ["", "\u{1b}[0m", "-E- Failed to open device", "{}", "[]", r#"{"result":{"output":"x"}}"#] {
            assert_eq!(parse(text), Err(Rejected::Malformed), "{text:?}");
        }
        assert_eq!(parse(&" ".repeat(LONGEST + 1)), Err(Rejected::Malformed));
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), value in ".{0,40}", key in "(State|Identifier|Temperature \\[C\\]|Rx Power Current \\[dBm\\]|Raw Physical BER|Status Opcode)") {
            let _ = parse(&text);
            let link = parse(&document(&json!({ "Section": { key: value } }))).unwrap();
            prop_assert!(link.raw_ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)));
        }
    }
}
