//! The `tfc` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tfc::cli::main(std::env::args_os()))
}
