//! Probes between hosts: who measures with whom, and how one asks the other to start a server.
//!
//! There is no coordinator. Every host reads the same list and works out the same pairs; a host that measures asks its
//! partner over HTTP (`POST /api/v1/probe-server`). A request names a program and bounded numbers, nothing else, and is
//! signed with a key that the hosts share, or comes over a connection with a client certificate that was verified.

pub mod caller;
pub mod gate;
pub mod key;
pub mod list;
pub mod pairing;
pub mod party;
pub mod request;
pub mod servers;
pub mod words;
