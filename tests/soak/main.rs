//! A day of work in minutes (`make soak`): hosts that change under the agent, and an agent that is treated badly. At the
//! end memory and descriptors are what they were, and no event is lost.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(unreachable_pub, dead_code, reason = "modules of several programs, none of which is a library")]

#[path = "../web/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod day;
#[path = "../web/fixture.rs"]
mod fixture;
mod journal;
mod service;
