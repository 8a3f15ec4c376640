//! The kernels of `ptx/`, compiled for a CPU that steps 32 lanes together (`warp.h`), so that they
//! are tested where there is no GPU.

mod compiler;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Seeds of a run that was not told one.
const SEEDS: u64 = 16;

fn program(name: &str) -> PathBuf {
    compiler::compile(&format!("{name}.cpp"), &format!("kernels-{name}"), &[])
}

fn run(program: &Path, arguments: &[u64]) {
    let arguments = arguments.iter().map(u64::to_string);
    let output = Command::new(program).args(arguments).output().unwrap();
    compiler::expect_success(&program.display().to_string(), &output);
}

#[test]
fn random_batches() {
    let (first, seeds) = match std::env::var("GPHASH_TEST_SEED") {
        Ok(seed) => (seed.parse().expect("GPHASH_TEST_SEED"), 1),
        Err(_) => (rand::random::<u32>().into(), SEEDS),
    };
    println!("GPHASH_TEST_SEED={first} and the {} after it", seeds - 1);
    run(&program("model"), &[first, seeds]);
}

#[test]
fn touches() {
    run(&program("touches"), &[]);
}
