//! What peers send: requests for a server, and the list of peers.

#![no_main]

use lanewatch::bench::peers::list::{parse, split};
use lanewatch::bench::peers::request::ServerRequest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = ServerRequest::parse(bytes) {
        // Nothing beyond the bounds becomes a plan.
        assert!(request.within_bounds().is_ok());
        let _ = (request.plan(), request.port_of(2));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let peers = parse(text).unwrap_or_default();
        assert!(peers.iter().all(|peer| split(peer).is_some()));
    }
});
