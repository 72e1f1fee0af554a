//! The configuration file, up to the policy that it makes.

#![no_main]

use std::path::Path;

use lanewatch::cli::config::parse;
use lanewatch::cli::settings::validate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file = Path::new("lanewatch.toml");
    match parse(file, text) {
        Ok(config) => drop(validate(file, &config)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
