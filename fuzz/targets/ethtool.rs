//! Names of statistics and counters, which drivers choose, and the blocks that the kernel writes names, offloads and
//! values into.

#![no_main]

use lanewatch::host::ethtool::{block, table};
use lanewatch::model::counter::{self, CounterDirectory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let words: Vec<u64> =
        data.chunks_exact(8).map(|word| word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))).collect();
    for count in [0, 1, 64, 1 << 16, usize::MAX] {
        let names = block::names(&words, count);
        assert!(names.len() <= data.len() / 32);
        assert_eq!(block::features(names.clone(), &words).len(), names.len());
    }
    assert!(block::values(&words).len() <= words.len());
    for name in String::from_utf8_lossy(data).lines() {
        let _ = table::meaning(name);
        if counter::is_counter(name) {
            let _ = (
                counter::class(name),
                counter::meaning(name, CounterDirectory::Pma),
                counter::meaning(name, CounterDirectory::Hardware),
            );
        }
    }
});
