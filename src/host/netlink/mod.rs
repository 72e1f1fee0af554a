//! Netlink clients of the running kernel. A recorded host has no netlink.

pub mod client;
pub mod generic;
pub mod message;
pub mod nldev;
pub mod routing;
pub mod socket;
