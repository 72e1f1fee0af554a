//! What is to be seen on a real kernel, a file a subject.

mod captures;
mod errors;
mod hotplug;
mod interrupts;
mod kernel_log;
mod migration;
mod pcie;
mod ports;
mod sriov;
mod unprivileged;
