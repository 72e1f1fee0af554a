//! Benchmarks: runs perftest and iperf3 when the host is idle, and reads the output of runs that others made.

pub mod context;
pub mod guard;
pub mod iperf;
pub mod memory;
pub mod nccl;
pub mod peers;
pub mod perftest;
pub mod probe;
pub mod process;
pub mod rdma;
pub mod reading;
pub mod schedule;
pub mod scheduler;
pub mod target;
