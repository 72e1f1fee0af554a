//! The configuration file, up to the policy that it makes.

#![no_main]

use std::path::Path;

use lanewatch::cli::config::error::ErrorList;
use lanewatch::cli::config::{parse, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file = Path::new("lanewatch.toml");
    let errors = ErrorList::default();
    let config = parse(file, text, &errors);
    validate(file, &config, &errors);
    if let Err(errors) = errors.into_result(()) {
        assert!(errors.iter().all(|error| !error.to_string().is_empty()));
    }
});
