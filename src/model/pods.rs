//! Pods of this node: their names by UID, and what the kubelet has given to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::holder::{Holder, Pod, PodName};
use super::ids::PciAddress;

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

    /// The UID of the pod of this name; `None` if there is none, or several: one that is gone, and one that has its name now.
    pub fn uid(&self, namespace: &str, pod: &str) -> Option<&Arc<str>> {
        let mut named = self.pods.iter().filter(|(_, known)| *known.namespace == *namespace && *known.name == *pod);
        let (uid, _) = named.next()?;
        named.next().is_none().then_some(uid)
    }
}

/// What the kubelet has given to pods, by its own account: an intent, which a process need not use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Each device with its pod, sorted.
    pub all: Vec<Allocation>,
}

/// A device of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allocation {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub pod: Arc<str>,
    /// The container.
    pub container: Arc<str>,
    /// The resource of a device plugin, or the driver of a claim.
    pub resource: Arc<str>,
    /// What it was given.
    pub device: AllocatedDevice,
}

/// A device as its plugin names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocatedDevice {
    /// A PCI function.
    Pci(PciAddress),
    /// An auxiliary device, such as a sub-function.
    Auxiliary(Arc<str>),
    /// A place in a pool that several pods share: which device is not said.
    Shared,
    /// A GPU, a partition of one, or anything else that is no PCI function by name.
    Other,
}

impl Allocations {
    /// What a function was given to. Where two pods have it, as kubelets before 1.34 list those that ended, it is the one that
    /// holds it; `None` if that is neither.
    pub fn of(&self, address: PciAddress, holder: &Holder) -> Option<&Allocation> {
        let given = || self.all.iter().filter(|allocation| allocation.device == AllocatedDevice::Pci(address));
        let first = given().next()?;
        let same_pod = |other: &Allocation| other.namespace == first.namespace && other.pod == first.pod;
        if given().all(same_pod) {
            return Some(first);
        }
        let Holder::Pod(Pod { name: Some(name), .. }) = holder else { return None };
        given().find(|allocation| allocation.namespace == name.namespace && allocation.pod == name.pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pod: &str, address: &str) -> Allocation {
        Allocation {
            namespace: Arc::from("ml"),
            pod: Arc::from(pod),
            container: Arc::from("worker"),
            resource: Arc::from("nvidia.com/vf"),
            device: AllocatedDevice::Pci(address.parse().unwrap()),
        }
    }

    #[test]
    fn a_device_that_two_pods_have_is_the_holders() {
        let at = "0000:03:00.1".parse().unwrap();
        let name = |pod: &str| PodName { namespace: Arc::from("ml"), pod: Arc::from(pod), container: None };
        let holder = |pod: &str| Holder::Pod(Pod { uid: Arc::from("u"), name: Some(name(pod)) });
        let one = Allocations { all: vec![given("a", "0000:03:00.1"), given("b", "0000:03:00.2")] };
        assert_eq!(one.of(at, &Holder::None).map(|found| &*found.pod), Some("a"));
        let two = Allocations { all: vec![given("a", "0000:03:00.1"), given("b", "0000:03:00.1")] };
        assert_eq!(two.of(at, &holder("b")).map(|found| &*found.pod), Some("b"));
        assert_eq!((two.of(at, &Holder::None), two.of(at, &holder("c"))), (None, None));
    }

    #[test]
    fn a_name_that_two_pods_had_is_no_uid() {
        let logged = || LoggedPod { namespace: Arc::from("ml"), name: Arc::from("a"), containers: Arc::from([]) };
        let mut names = PodNames::default();
        names.pods.insert(Arc::from("1"), logged());
        assert_eq!(names.uid("ml", "a").map(|uid| &**uid), Some("1"));
        names.pods.insert(Arc::from("2"), logged());
        assert_eq!((names.uid("ml", "a"), names.uid("x", "a")), (None, None));
    }
}
