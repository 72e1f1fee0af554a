//! The memory of modules, what the module reader is asked and answers, and outputs of mstlink and ethtool that people paste.

#![no_main]

use lanewatch::assess::pasted::remarks;
use lanewatch::host::module::eeprom::{Eeprom, EepromPart, KIND};
use lanewatch::host::module::protocol::{Answer, Request};
use lanewatch::host::pasted::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let _ = remarks(&read(&text));
    if let Some(request) = Request::parse(&text) {
        assert_eq!(Request::parse(&request.line()), Some(request));
    }
    if let Some(answer) = Answer::parse(&text) {
        let _ = answer.text();
    }
    let Some((kind, mut rest)) = data.split_first_chunk::<3>() else { return };
    let mut eeprom = Eeprom::default();
    eeprom.set(KIND, kind.to_vec());
    for part in EepromPart::ALL {
        let blocks = eeprom.blocks_of(part);
        assert!(blocks.len() <= 4);
        for block in blocks {
            let (bytes, after) = rest.split_at(rest.len().min(usize::from(block.length)));
            eeprom.set(block, bytes.to_vec());
            rest = after;
        }
    }
    let _ = (eeprom.identity(), eeprom.limits(), eeprom.values());
});
