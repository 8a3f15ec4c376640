//! Recovers index files and the directories of stores, or checks whether they need it.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use gphash_recover::{Arguments, run};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ExitCode::from(run(&arguments, &mut io::stdout(), &mut io::stderr()))
}
