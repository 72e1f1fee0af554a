//! Temperatures of network cards (`<function>/hwmon/hwmon*/temp*`, `Documentation/hwmon/sysfs-interface.rst`). Readable
//! by anyone, for InfiniBand and Ethernet, also while the link is down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Spec};
use super::file::read_once;
use super::function::DeviceInventory;
use super::text;
use crate::model::health::NicTemperature;
use crate::model::ids::PciAddress;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::units::Celsius;

/// The collector of temperatures.
pub const SPEC: Spec = Spec {
    name: "temperature",
    about: "Temperatures of network cards and their limits (hwmon)",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(TemperatureCollector { filter: setup.filter.clone(), functions: BTreeMap::new() }),
};

/// Most sensors of a function that are read: each may cost a firmware command.
const MOST_SENSORS: usize = 6;

struct TemperatureCollector {
    filter: Filter,
    functions: BTreeMap<Arc<str>, (PciAddress, PathBuf)>,
}

impl Collector for TemperatureCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        self.functions.clear();
        let mut found = Vec::new();
        for device in DeviceInventory::read(cx, &self.filter)?.allowed {
            // A VF shows what its PF shows, if anything.
            if cx.host.io.link(&device.function.join("physfn")).is_ok() {
                continue;
            }
            let key: Arc<str> = Arc::from(device.address.to_string());
            let function = (device.address, device.function.join("hwmon"));
            if self.functions.insert(Arc::clone(&key), function).is_none() {
                found.push(Discovered { key, device: Some(device.name) });
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.functions.get(&found.key) {
            Some((pci_address, directory)) => {
                Box::new(TemperatureReader { pci_address: *pci_address, directory: directory.clone() })
            }
            None => Box::new(GoneReader),
        }
    }
}

/// Reads the sensors of one function. Their directories are numbered anew with each load of the driver, so they are
/// listed on every pass.
struct TemperatureReader {
    pci_address: PciAddress,
    directory: PathBuf,
}

impl DeviceReader for TemperatureReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let mut chips = cx.list(&self.directory).unwrap_or_default();
        chips.retain(|name| name.starts_with("hwmon"));
        chips.sort();
        let mut sensors: Vec<(PathBuf, String)> = Vec::new();
        for chip in chips {
            let directory = self.directory.join(chip);
            let names = cx.list(&directory).unwrap_or_default();
            let mut numbers: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
            numbers.sort_unstable();
            sensors.extend(numbers.into_iter().map(|number| (directory.clone(), format!("temp{number}"))));
        }
        sensors.truncate(MOST_SENSORS);
        let mut labels = BTreeSet::new();
        let mut facts: Vec<Fact> = Vec::new();
        for (directory, name) in sensors {
            let file = |suffix: &str| directory.join(format!("{name}_{suffix}"));
            // A sensor that is there and says nothing now (a module that was unplugged) has no temperature.
            let Some(value) = quietly(cx, &file("input")) else { continue };
            let label = read_once(cx, &file("label"), text::label);
            let label = label.filter(|label| !label.trim().is_empty()).unwrap_or_else(|| Arc::from(&*name));
            let sensor = if labels.insert(Arc::clone(&label)) { label } else { Arc::from(&*name) };
            // A limit of nothing is none.
            let critical = quietly(cx, &file("crit")).filter(|limit| limit.0 > 0.0);
            facts.push(Arc::new(NicTemperature { pci_address: self.pci_address, sensor, value, critical }));
        }
        facts
    }
}

/// The temperature in a file; `None` if it has none now. Only a text that is no temperature is a fault.
fn quietly(cx: &mut ReadContext<'_>, path: &Path) -> Option<Celsius> {
    let read = cx.host.io.open(path).and_then(|mut file| file.read(&mut cx.buffer[..])).ok()?;
    let reading = temperature(cx.buffer.get(..read).unwrap_or_default().trim_ascii());
    if let Reading::Unreadable(reason) = reading {
        cx.fault(path, reason);
    }
    reading.value()
}

/// The number of a sensor from its file's name: `temp2_input`.
fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("temp")?.strip_suffix("_input")?;
    u32::try_from(text::parse_decimal(digits.as_bytes())?).ok()
}

/// Thousandths of a degree.
fn temperature(bytes: &[u8]) -> Reading<Celsius> {
    let (below, digits) = bytes.strip_prefix(b"-").map_or((false, bytes), |digits| (true, digits));
    let Some(thousandths) = text::parse_decimal(digits).and_then(|number| u32::try_from(number).ok()) else {
        return Reading::Unreadable(ReadError::Malformed);
    };
    let degrees = f64::from(thousandths) / 1000.0;
    // No card works at such temperatures: a sensor that is broken or not there.
    if degrees > 300.0 {
        return Reading::Absent;
    }
    Reading::Value(Celsius(if below { -degrees } else { degrees }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;
    use crate::host::harness::{CARD, CollectorHarness, facts};

    fn harness() -> CollectorHarness {
        CollectorHarness::with_card(&SPEC)
    }

    fn set(harness: &CollectorHarness, file: &str, text: &str) {
        harness.memory.set(format!("{CARD}/hwmon/{file}"), format!("{text}\n"));
    }

    fn read(harness: &mut CollectorHarness) -> Vec<(String, f64, Option<f64>)> {
        harness.discover().unwrap();
        let read = harness.read();
        let sensors = facts::<NicTemperature>(&read).into_iter();
        sensors.map(|fact| (fact.sensor.to_string(), fact.value.0, fact.critical.map(|limit| limit.0))).collect()
    }

    #[test]
    fn sensors_by_label_with_their_limits() {
        let mut harness = harness();
        assert_eq!((read(&mut harness), harness.faults.len()), (vec![], 0), "a driver without sensors");
        for (file, text) in [
            ("hwmon4/name", "mlx5"),
            ("hwmon4/temp1_input", "61125"),
            ("hwmon4/temp1_label", "asic"),
            ("hwmon4/temp1_crit", "105000"),
            ("hwmon4/temp2_input", "48000"),
            ("hwmon4/temp2_label", "Module0"),
            ("hwmon4/temp2_crit", "0"),
            ("hwmon4/temp10_input", "-1500"),
            ("hwmon4/temp3_input", "49000"),
            ("hwmon4/temp3_label", "asic"),
            ("hwmon4/temp1_reset_history", ""),
        ] {
            set(&harness, file, text);
        }
        let expected = [("asic", 61.125, Some(105.0)), ("Module0", 48.0, None), ("temp3", 49.0, None)];
        let expected = expected.map(|(sensor, value, critical)| (sensor.to_owned(), value, critical)).to_vec();
        assert_eq!(read(&mut harness)[..3], expected);
        assert_eq!(read(&mut harness)[3], ("temp10".to_owned(), -1.5, None));
        // The driver was loaded again.
        harness.memory.remove(format!("{CARD}/hwmon/hwmon4"));
        set(&harness, "hwmon7/temp1_input", "50000");
        assert_eq!(read(&mut harness), [("temp1".to_owned(), 50.0, None)]);
    }

    #[test]
    fn a_sensor_that_says_nothing_now_is_absent_and_no_fault() {
        let mut harness = harness();
        set(&harness, "hwmon0/temp1_input", "61000");
        for errno in [Errno::IO, Errno::NODATA, Errno::OPNOTSUPP] {
            harness.memory.fail(format!("{CARD}/hwmon/hwmon0/temp2_input"), errno);
            assert_eq!(read(&mut harness).len(), 1, "{errno}");
            assert_eq!(harness.faults, []);
        }
        set(&harness, "hwmon0/temp2_input", "warm");
        assert_eq!((read(&mut harness).len(), harness.faults.len()), (1, 1));
    }

    #[test]
    fn few_sensors_of_a_function_and_none_of_a_vf() {
        let mut harness = harness();
        (1..20).for_each(|number| set(&harness, &format!("hwmon0/temp{number}_input"), "40000"));
        assert_eq!(read(&mut harness).len(), MOST_SENSORS);
        harness.memory.symlink(format!("{CARD}/physfn"), "../0000:3b:00.1");
        assert_eq!(harness.discover(), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16), name in any::<String>()) {
            let _ = number(&name);
            prop_assert!(temperature(&bytes).value().is_none_or(|value| value.0.abs() <= 300.0));
        }
    }
}
