//! What tests and benches share: hosts to read, the program to run, and the programs that it is run against.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of this")]
#![allow(unreachable_pub, reason = "a module of several programs, none of which is a library")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

pub mod archive;
pub mod cage;
pub mod certs;
pub mod cost;
pub mod ethtool;
pub mod exposition;
pub mod faulty;
pub mod fleet;
pub mod hand;
pub mod host;
pub mod http;
pub mod iplink;
pub mod promql;
pub mod rules;
pub mod run;
pub mod stores;
pub mod tools;
pub mod toy;
pub mod tree;
pub mod vfs;
