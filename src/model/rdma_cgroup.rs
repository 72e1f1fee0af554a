//! Use of RDMA devices by control group (`rdma.current`, `rdma.max`): the pods and jobs that have contexts and objects open.

use std::sync::Arc;

use super::holder::CgroupOwner;
use super::labels::label_enum;

label_enum! {
    /// What the kernel counts (`kernel/cgroup/rdma.c`): the `resource` label.
    RdmaResource {
        /// Opened contexts.
        Handle = "hca_handle",
        /// Protection domains, completion queues, queue pairs, memory regions and the like.
        Object = "hca_object",
    }
}

/// What a pod or job has of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaUse {
    /// The device.
    pub device: Arc<str>,
    /// What is counted.
    pub resource: RdmaResource,
    /// How much it has.
    pub current: u64,
    /// How much it may have; `None` without a limit.
    pub limit: Option<u64>,
}

/// A pod or job with what it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaCgroup {
    /// The pod or job.
    pub owner: CgroupOwner,
    /// What it uses, and what is limited; without devices that it does not use.
    pub uses: Vec<RdmaUse>,
}
