//! lanewatch on a real kernel: virtual machines under software emulation, with the kernel's own sysfs, procfs, netlink
//! and kernel log.
//!
//! `tests/lab/image.sh` makes the images; without them every scenario is skipped, and says so. What a failed scenario
//! leaves is in `target/lab`. `LANEWATCH_LAB_PROGRAM` names another build of the program than the tests' own.

#![allow(unreachable_pub, reason = "modules of one program, which is no library")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod guest;
mod kernels;
mod oracle;
mod prometheus;
mod scenarios;
mod watching;
