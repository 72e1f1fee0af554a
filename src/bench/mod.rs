//! Measures it: probes that run other people's benchmarks without disturbing anybody, and say what came of it.

pub mod child;
pub mod classify;
pub mod context;
pub mod folder;
pub mod guard;
pub mod iperf;
pub mod lock;
pub mod memory;
pub mod peers;
pub mod perftest;
pub mod probe;
pub mod rdma;
pub mod reading;
pub mod schedule;
pub mod scheduler;
pub mod target;
pub mod tcp;
pub mod tools;
