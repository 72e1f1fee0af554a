//! Nodes with pods that use VFs: processes in pods' control groups, and the kubelet's log directories.

use std::path::Path;
use std::sync::Arc;

use lanewatch::host::Host;
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;

use super::common::tree::Tree;
use super::common::vfs::VfHost;

/// A node with one PF. A process of its own has each VF open, in the pod of the same number as far as there are so many.
pub(crate) struct PodHost {
    pub(crate) vfs: u32,
    pub(crate) pods: u32,
}

impl PodHost {
    pub(crate) fn uid(pod: u32) -> String {
        format!("3b1f0a52-1111-4222-8333-{pod:012x}")
    }

    pub(crate) fn write(&self, root: &Path) -> std::io::Result<()> {
        VfHost { pfs: 1, vfs: self.vfs, here: false }.write(root)?;
        std::fs::remove_dir_all(root.join("proc/1000"))?;
        let mut tree = Tree::default();
        for vf in 0..self.vfs {
            let pid = 2000 + vf;
            tree.line(format!("proc/{pid}/comm"), "testpmd");
            tree.file(format!("proc/{pid}/cmdline"), "/app/testpmd\0");
            tree.link(format!("proc/{pid}/ns/net"), "net:[1]");
            tree.link(format!("proc/{pid}/fd/10"), format!("/dev/vfio/{vf}"));
            let uid = Self::uid(vf).replace('-', "_");
            let pod = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
            let group = if vf < self.pods { pod } else { "/system.slice".to_owned() };
            tree.line(format!("proc/{pid}/cgroup"), format!("0::{group}/cri-containerd-{vf:064x}.scope"));
        }
        for pod in 0..self.pods {
            let directory = format!("var/log/pods/ml_train-{pod}_{}", Self::uid(pod));
            for container in ["worker", "sidecar"] {
                tree.line(format!("{directory}/{container}/0.log"), "");
            }
            let link = format!("var/log/containers/train-{pod}_ml_worker-{pod:064x}.log");
            tree.link_to(link, format!("{directory}/worker/0.log"));
        }
        tree.write(root)
    }

    /// The node as collectors see it.
    pub(crate) fn host(root: &Path) -> Host {
        Host {
            io: Arc::new(Fs::new()),
            sysfs: root.join("sys"),
            procfs: root.join("proc"),
            roots: Roots::below(root),
            route: None,
            ethtool: None,
            live: false,
        }
    }
}
