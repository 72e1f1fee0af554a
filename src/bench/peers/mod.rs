//! Probes between hosts: who measures with whom, and how one asks the other to start a server.
//!
//! There is no coordinator. Every host reads the same list and works out the same pairs; a host that measures asks its
//! partner over HTTP (`POST /api/v1/probe-server`). A request names a program and bounded numbers, nothing else, and is
//! signed with a key that the hosts share, or comes over a connection with a client certificate that was verified.

pub mod authentication;
pub mod http_peer;
pub mod list;
pub mod request;
pub mod runtime;
pub mod schedule;
pub mod servers;
