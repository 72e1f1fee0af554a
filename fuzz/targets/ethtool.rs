//! Names of statistics and counters, which drivers choose.

#![no_main]

use lanewatch::host::ethtool::table;
use lanewatch::model::counter::{self, Group};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for name in String::from_utf8_lossy(data).lines() {
        let _ = table::meaning(name);
        if counter::is_counter(name) {
            let _ = (counter::class(name), counter::meaning(name, Group::Pma), counter::meaning(name, Group::Hardware));
        }
    }
});
