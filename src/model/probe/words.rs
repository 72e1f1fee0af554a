//! The closed sets of words that probes speak in.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[doc = $doc])+ #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// All, in the order of the metrics.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The label value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

words! {
    /// What is measured.
    Probe {
        /// RDMA writes between two processes over one port: PCIe, card and memory, no cable.
        RdmaLoopback = "rdma_loopback",
        /// RDMA writes to another host: cable and fabric too.
        RdmaPeer = "rdma_peer",
        /// TCP to another host, for comparison.
        TcpPeer = "tcp_peer",
        /// Copies in memory, on the CPUs' own NUMA node and to another.
        Memory = "memory",
    }
}

words! {
    /// How a run ended.
    Outcome {
        /// It measured what it should.
        Ok = "ok",
        /// It measured less than it should.
        Slow = "slow",
        /// Data could not be moved, for a reason of the device, its port or the way.
        Failed = "failed",
        /// The tool got into trouble: nothing is known of the device.
        Inconclusive = "inconclusive",
        /// It did not run, so as not to disturb.
        Skipped = "skipped",
    }
}

words! {
    /// Which way data went: the `direction` label.
    Direction {
        /// One way.
        OneWay = "one_way",
        /// Both ways at once; the value is their sum.
        Both = "both",
        /// Memory of the CPUs' own NUMA node.
        Local = "local",
        /// Memory of another NUMA node.
        Remote = "remote",
        /// Latency of a write.
        Write = "write",
        /// Latency of a read, there and back.
        Read = "read",
    }
}

words! {
    /// What of many values: the `statistic` label.
    Statistic {
        /// The least.
        Minimum = "minimum",
        /// The median.
        Typical = "typical",
        /// The mean.
        Average = "average",
        /// 99 of 100 are not above it.
        P99 = "p99",
        /// 999 of 1000 are not above it.
        P999 = "p99.9",
        /// The greatest.
        Maximum = "maximum",
    }
}

words! {
    /// Why a probe did not run: the `reason` label of skipped runs.
    SkipReason {
        /// A program that it needs is not installed.
        Unavailable = "unavailable",
        /// The port is not ACTIVE.
        PortDown = "port_down",
        /// The port carries traffic.
        PortBusy = "port_busy",
        /// A process holds the device.
        DeviceHeld = "device_held",
        /// The job scheduler says that the host works, or does not answer.
        JobRunning = "job_running",
        /// The host is in maintenance.
        Maintenance = "maintenance",
        /// The CPUs are busy.
        CpuBusy = "cpu_busy",
        /// Another probe runs on this host.
        Locked = "locked",
        /// The budget of the day is used up.
        Budget = "budget",
        /// Both addresses are this host's own: the data would not leave it.
        LocalRoute = "local_route",
        /// What must be known before is not known.
        Unknown = "unknown",
    }
}

words! {
    /// Why data could not be moved: the reason of a failed run.
    Failure {
        /// The port is not ACTIVE.
        PortDown = "port_down",
        /// The device is not there.
        DeviceMissing = "device_missing",
        /// The two ends cannot talk over TCP to set the test up: no fault of the fabric.
        TcpSetup = "tcp_setup",
        /// The queue pairs could not be connected.
        QpSetup = "qp_setup",
        /// A work request ended in an error.
        Completion = "completion_error",
        /// Memory could not be registered with the card.
        MemoryRegistration = "memory_registration",
        /// Something that the test needs could not be made on the device.
        Resources = "resources",
    }
}
