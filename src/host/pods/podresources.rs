//! Messages of the kubelet's PodResources API, version 1 (`pkg/apis/podresources/v1/api.proto` of Kubernetes), as far as they are
//! used. Fields that are not here are skipped. The API has no UIDs.

use prost::Message;

/// `List` takes nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListPodResourcesRequest {}

/// Every pod on the node.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListPodResourcesResponse {
    /// Pods; before Kubernetes 1.34 also those that have ended.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// A container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Devices of device plugins: an entry for each device and NUMA node.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Claims of dynamic resource allocation.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of a resource.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerDevices {
    /// The resource (`nvidia.com/mlnxnics`).
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// Devices, as their plugin names them.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

/// A claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DynamicResource {
    /// What it was given.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// A device of a claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClaimResource {
    /// The driver (`sriovnetwork.k8snetworkplumbingwg.io`).
    #[prost(string, tag = "2")]
    pub driver_name: String,
    /// The device, as its driver names it.
    #[prost(string, tag = "4")]
    pub device_name: String,
}
