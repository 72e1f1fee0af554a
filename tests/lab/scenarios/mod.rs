//! What is to be seen on a real kernel, a file a subject.

mod access;
mod alerts;
mod arm64;
mod captures;
mod cost;
mod ends;
mod errors;
mod hotplug;
mod interrupts;
mod kernel_log;
mod migration;
mod namespaces;
mod pcie;
mod ports;
mod probes;
mod replays;
mod sriov;
mod systemd;
mod unprivileged;
