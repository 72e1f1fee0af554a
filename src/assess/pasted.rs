//! What outputs of other tools mean: the same limits as for what is read here, and for each problem what to do first.

use super::limits::{MODULE_HOT, RAW_OPTICAL};
use super::links::meaning;
use super::modules::{dimmest, fault_of};
use crate::host::pasted::Pasted;
use crate::model::firmware_link::FirmwareLink;
use crate::model::line::LOSS_WINDOW;
use crate::model::module::{ModuleLimits, ModuleValues};

/// A sentence on what an output says, and whether it is a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Whether something should be done.
    pub is_problem: bool,
    /// One sentence.
    pub text: String,
}

impl Remark {
    fn problem(text: impl Into<String>) -> Self {
        Self { is_problem: true, text: text.into() }
    }

    fn fine(text: impl Into<String>) -> Self {
        Self { is_problem: false, text: text.into() }
    }
}

/// Everything that an output says.
pub fn remarks(pasted: &Pasted) -> Vec<Remark> {
    match pasted {
        Pasted::Firmware(link) => firmware(link),
        Pasted::Module(module) => {
            let (_, limits, values) = &**module;
            of_module(limits, values)
        }
        Pasted::Statistics(statistics) => of_statistics(statistics),
        Pasted::Nothing(why) => vec![Remark::problem(why.clone())],
    }
}

fn of_module(limits: &ModuleLimits, values: &ModuleValues) -> Vec<Remark> {
    let mut out = Vec::new();
    out.extend(
        fault_of(limits, values).map(|(_, text)| Remark::problem(format!("{text}: reseat it, then replace it"))),
    );
    if let Some(temperature) = values.temperature.filter(|value| limits.temperature.is_none() && value.0 > MODULE_HOT) {
        out.push(Remark::problem(format!("the module is hot ({temperature}): check airflow and fans")));
    }
    out.extend(dimmest(limits, values).map(|dim| {
        Remark::problem(format!("{}: clean the connectors at both ends, then check the other end's module", dim.text))
    }));
    if out.is_empty() && !values.lanes.is_empty() {
        let within = if limits.receive.is_some() {
            "light is within the module's limits"
        } else {
            "the module has no usable limits for light"
        };
        out.push(Remark::fine(within));
    }
    out
}

fn firmware(link: &FirmwareLink) -> Vec<Remark> {
    let mut out = Vec::new();
    let is_up = link.state.as_deref().is_some_and(|state| state.eq_ignore_ascii_case("active"));
    let said = link.recommendation.as_deref().unwrap_or("no recommendation");
    match (link.opcode, link.cause()) {
        (Some(0) | None, _) if is_up => {}
        (_, Some(cause)) => {
            let (_, text) = meaning(cause);
            out.push(Remark::problem(format!("no link: {}", text.replace("{}", said))));
        }
        (Some(opcode), None) if opcode != 0 => {
            out.push(Remark::problem(format!("the firmware reports: {said} (code {opcode})")));
        }
        _ => out.push(Remark::problem(format!(
            "no link ({}), and the firmware gives no reason: check cable, module and the other end",
            link.state.as_deref().unwrap_or("state unknown")
        ))),
    }
    let lost = link.symbol_errors.or(link.effective_errors).unwrap_or(0);
    match link.observed_seconds {
        // In less time a few errors do not say how often they happen.
        Some(seconds) if seconds < LOSS_WINDOW.as_secs_f64() => {
            out.push(Remark::fine(format!("errors were counted for {seconds:.0} s only: look again after 12 minutes")));
        }
        _ if !is_up => {}
        _ => {
            if lost > 0 {
                out.push(Remark::problem(format!(
                    "{lost} errors after correction: data was lost; reseat and clean the connectors, then replace the cable"
                )));
            }
            match link.raw_ratio {
                Some(raw) if raw > RAW_OPTICAL => out.push(Remark::problem(format!(
                    "{raw:.0e} of the bits are wrong before correction, allowed are {RAW_OPTICAL:e}: clean or replace cable or module"
                ))),
                Some(raw) => {
                    out.push(Remark::fine(format!("errors before correction {raw:.0e}, allowed are {RAW_OPTICAL:e}")));
                }
                None => {}
            }
        }
    }
    if let Some(values) = link.values.as_ref().filter(|_| link.identity.is_some()) {
        out.extend(of_module(&link.limits, values));
    }
    out
}

/// Statistics that mean something alone, with what to do; names of mlx5 and bnxt_en.
const TELLING: [(&str, &str); 8] = [
    (
        "rx_pcs_symbol_err_phy",
        "symbols were wrong after correction: data was lost; reseat and clean, then replace the cable",
    ),
    (
        "rx_pcs_symbol_err",
        "symbols were wrong after correction: data was lost; reseat and clean, then replace the cable",
    ),
    ("rx_fec_uncorrectable_blocks", "codewords were lost; reseat and clean, then replace the cable"),
    ("link_down_events_phy", "times the link was lost since the driver was loaded: compare with the other end"),
    ("module_bus_stuck", "times the module's bus was stuck: reseat the module, then replace it"),
    ("module_high_temp", "times the module was too hot: check airflow and fans"),
    ("module_bad_shorted", "times the cable or module was bad or shorted: replace it"),
    ("module_unplug", "times the module was unplugged: if nobody did it, reseat it"),
];

fn of_statistics(statistics: &[(String, u64)]) -> Vec<Remark> {
    let value = |name: &str| statistics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let mut out: Vec<Remark> = TELLING
        .iter()
        .filter_map(|(name, meaning)| {
            let count = value(name).filter(|count| *count > 0)?;
            Some(Remark::problem(format!("{name} is {count}: {meaning}")))
        })
        .collect();
    let lanes: Vec<u64> = (0..8).map_while(|lane| value(&format!("rx_err_lane_{lane}_phy"))).collect();
    if let Some((lane, most)) = lanes.iter().enumerate().max_by_key(|(_, errors)| **errors) {
        let others: u64 = lanes.iter().sum::<u64>().saturating_sub(*most);
        if *most > 10_000 && *most > others.saturating_mul(10) {
            out.push(Remark::problem(format!(
                "lane {lane} has {most} of {} corrected errors: reseat and clean that cable",
                most.saturating_add(others)
            )));
        }
    }
    if let Some(bits) = value("rx_corrected_bits_phy").or_else(|| value("rx_corrected_bits")) {
        out.push(Remark::fine(format!(
            "{bits} bits corrected since the driver was loaded: take a second output a minute later to judge that"
        )));
    }
    if out.is_empty() {
        out.push(Remark::fine("nothing in these statistics points at the cable or module"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::pasted::read;

    fn problems(text: &str) -> Vec<String> {
        let remarks = remarks(&read(text));
        remarks.into_iter().filter(|remark| remark.is_problem).map(|remark| remark.text).collect()
    }

    fn mstlink(operational: &str, troubleshooting: &str, errors: &str) -> String {
        format!(
            r#"{{"result":{{"output":{{"Operational Info":{{{operational}}},"Troubleshooting Info":{{{troubleshooting}}},"Physical Counters and BER Info":{{{errors}}}}}}},"status":{{"code":0}}}}"#
        )
    }

    #[test]
    fn a_firmwares_reason_has_the_first_thing_to_do() {
        let text =
            mstlink(r#""State":"Polling""#, r#""Status Opcode":"1024","Recommendation":"Cable is unplugged""#, "");
        assert!(problems(&text)[0].starts_with("no link: no cable detected. Plug it in or reseat it"));
        let text =
            mstlink(r#""State":"Polling""#, r#""Status Opcode":"15","Recommendation":"Bad signal integrity""#, "");
        assert_eq!(
            problems(&text)[0],
            "no link: the signal is bad (Bad signal integrity). Reseat and clean both ends, then change cable or modules"
        );
        let text = mstlink(r#""State":"Polling""#, r#""Status Opcode":"1054","Recommendation":"Low power""#, "");
        assert_eq!(problems(&text), ["the firmware reports: Low power (code 1054)"]);
    }

    #[test]
    fn errors_need_time() {
        let up = r#""State":"Active""#;
        let fine = r#""Status Opcode":"0""#;
        let errors = |minutes: &str| {
            format!(
                r#""Time Since Last Clear [Min]":"{minutes}","Raw Physical BER":"3E-5","Effective Physical Errors":"7""#
            )
        };
        assert_eq!(problems(&mstlink(up, fine, &errors("0.5"))), [""; 0]);
        let found = problems(&mstlink(up, fine, &errors("60.0")));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("7 errors after correction") && found[1].starts_with("3e-5 of the bits"));
        let good = r#""Time Since Last Clear [Min]":"600","Raw Physical BER":"2E-9","Symbol Errors":"0""#;
        assert_eq!(problems(&mstlink(up, fine, good)), [""; 0]);
    }

    #[test]
    fn modules_and_statistics() {
        let module = "\tIdentifier : 0x11 (QSFP28)\n\tRcvr signal avg optical power(Channel 1) : 0.5 mW / -3 dBm\n\
                      \tRcvr signal avg optical power(Channel 2) : 0.0 mW / -inf dBm\n\
                      \tLaser rx power high alarm threshold : 2.0 mW\n\tLaser rx power low alarm threshold : 0.1 mW\n\
                      \tLaser rx power high warning threshold : 1.5 mW\n\tLaser rx power low warning threshold : 0.15 mW\n";
        assert!(
            problems(module)[0]
                .starts_with("lane 1 receives no light, below the module's alarm limit of -10.0 dBm: clean")
        );
        let statistics = "NIC statistics:\n     rx_pcs_symbol_err_phy: 3\n     module_unplug: 0\n     rx_err_lane_0_phy: 5\n\
                          \x20    rx_err_lane_1_phy: 900000\n     rx_corrected_bits_phy: 900005\n";
        let found = problems(statistics);
        assert_eq!(found.len(), 2);
        assert!(found[1].starts_with("lane 1 has 900000 of 900005 corrected errors"));
    }
}
