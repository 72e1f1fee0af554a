//! The `lanewatch` program.

fn main() {}
