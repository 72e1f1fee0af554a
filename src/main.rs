//! The `lanewatch` program.

fn main() -> std::process::ExitCode {
    lanewatch::cli::main(std::env::args_os())
}
