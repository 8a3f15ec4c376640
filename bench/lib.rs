//! What the benches share: workloads and how they are timed, orders of places, limits, charts.

pub use gphash_bench_reckoning::{chart, limit, order};

#[cfg(feature = "bench-peers")]
pub mod rocks;
pub mod workload;

use std::io::{self, Write};
use std::process::ExitCode;

use workload::target::Failure;

/// The status of a bench of this name, which has said why if it failed. Whoever reads that may be gone.
pub fn status(name: &str, done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}
