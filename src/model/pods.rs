//! Pods of this node: their names by UID, and what the kubelet has given to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::holder::{Pod, PodName};

/// Names of pods and containers, from the names of their log directories and files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodNames {
    /// Pods by UID; those that ended stay until the kubelet removes their logs.
    pub pods: BTreeMap<Arc<str>, LoggedPod>,
    /// Names of containers by their identifiers in the runtime.
    pub containers: BTreeMap<Arc<str>, Arc<str>>,
}

/// A pod that has a log directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedPod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its containers, sorted; also those that ended.
    pub containers: Arc<[Arc<str>]>,
}

impl PodNames {
    /// The pod with this UID, with its name if that is known. The container is the one with this identifier, or the only
    /// one that there is.
    pub fn pod(&self, uid: &Arc<str>, container: Option<&Arc<str>>) -> Pod {
        let name = self.pods.get(uid).map(|pod| PodName {
            namespace: Arc::clone(&pod.namespace),
            pod: Arc::clone(&pod.name),
            container: container.and_then(|id| self.containers.get(id)).cloned().or_else(|| match &*pod.containers {
                [only] => Some(Arc::clone(only)),
                _ => None,
            }),
        });
        Pod { uid: Arc::clone(uid), name }
    }
}
