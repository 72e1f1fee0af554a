//! The `lanewatch` program.

fn main() -> std::process::ExitCode {
    // The same program by its other name is the small one that reads modules, with a capability that this one lacks.
    if lanewatch::cli::module_reader::is_name(std::env::args_os().next().as_deref()) {
        return lanewatch::cli::module_reader::main(std::env::args_os());
    }
    lanewatch::cli::main(std::env::args_os())
}
