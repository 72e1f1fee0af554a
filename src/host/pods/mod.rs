//! Pods of this node: their names, so that a VF's user is more than a UID.

mod logs;

use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, GoneReader, ReadContext, Setup, Spec};
use crate::model::reading::ReadError;
use logs::LogReader;

/// The collector of pods.
pub const SPEC: Spec = Spec {
    name: "pods",
    about: "names of pods and containers, from the names of their logs",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |_: &Setup| Box::new(PodCollector),
};

const LOGS: &str = "logs";

struct PodCollector;

impl Collector for PodCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let found = |key: &str| Discovered { key: Arc::from(key), device: None };
        let has_logs = cx.host.io.stamp(&cx.host.roots.pod_logs).is_ok();
        Ok(has_logs.then(|| found(LOGS)).into_iter().collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match &*found.key {
            LOGS => Box::new(LogReader::default()),
            _ => Box::new(GoneReader),
        }
    }
}
