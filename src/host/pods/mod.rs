//! Pods of this node: their names, so that a VF's user is more than a UID.

mod kubelet;
mod logs;
pub mod podresources;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, GoneReader, ReadContext, Setup, Spec};
use crate::model::reading::ReadError;
use kubelet::KubeletReader;
use logs::LogReader;

/// The collector of pods.
pub const SPEC: Spec = Spec {
    name: "pods",
    about: "Names of pods and containers, from their log files; devices of pods, from the kubelet if configured",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup: &Setup| Box::new(PodCollector { kubelet: setup.host.roots.kubelet_socket.clone() }),
};

const LOGS: &str = "logs";
const KUBELET: &str = "kubelet";

struct PodCollector {
    /// The kubelet's socket, if it is configured.
    kubelet: Option<PathBuf>,
}

impl Collector for PodCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let found = |key: &str| Discovered { key: Arc::from(key), device: None };
        let has_logs = cx.host.io.stamp(&cx.host.roots.pod_logs).is_ok();
        let kubelet = self.kubelet.is_some().then(|| found(KUBELET));
        Ok(kubelet.into_iter().chain(has_logs.then(|| found(LOGS))).collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match (&*found.key, &self.kubelet) {
            (LOGS, _) => Box::new(LogReader::default()),
            (KUBELET, Some(socket)) => Box::new(KubeletReader::new(socket.clone())),
            _ => Box::new(GoneReader),
        }
    }
}
