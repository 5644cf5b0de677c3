//! The command `ringfence`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence::cli::main()
}
