//! The fleet: the capacity questions of one host, asked of a Prometheus that has scraped all of them.
//!
//! [`client`] asks, [`answer`] reads, [`facts`] are what one host's series say, [`stranded`] and [`host`] compute
//! (pure functions), [`tally`] adds up, [`audit`] leads through it in shards, and [`limit`] holds it against what a
//! pipeline allows. Memory is bounded by a shard and the lists that are kept, not by the fleet.

pub mod answer;
pub mod audit;
pub mod client;
pub mod facts;
pub mod host;
pub mod limit;
pub mod matchers;
pub mod peer_transport;
pub mod query;
pub mod stranded;
pub mod tally;
pub mod tls;
