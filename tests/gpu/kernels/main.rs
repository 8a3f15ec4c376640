//! The kernels of `ptx/`, compiled for a CPU that steps 32 lanes together (`warp.h`), so that they
//! are tested where there is no GPU.

use std::path::{Path, PathBuf};
use std::process::Command;

use gphash_test_support::compiler::{compile, expect_success};
use gphash_test_support::setting;

/// Seeds of a run of the model that was not told one.
const BATCHES: u64 = 16;

/// The same for the sort of versions.
const SORTS: u64 = 16;

/// The same for lookups between whose steps changes come.
const READERS: u64 = 60;

fn program(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{name}"));
    compile(&format!("tests/gpu/kernels/{name}.cpp"), &target, &[]);
    target
}

fn run(program: &Path, arguments: &[u64]) {
    let arguments = arguments.iter().map(u64::to_string);
    let output = Command::new(program).args(arguments).output().unwrap();
    expect_success(&program.display().to_string(), &output);
}

/// Runs a program with so many seeds, or with the one that was given.
fn run_seeds(program: &Path, most: u64) {
    let (first, seeds) = match setting("GPHASH_TEST_SEED") {
        Some(seed) => (seed, 1),
        None => (rand::random::<u32>().into(), most),
    };
    println!("GPHASH_TEST_SEED={first} and the {} after it", seeds - 1);
    run(program, &[first, seeds]);
}

#[test]
fn random_batches() {
    run_seeds(&program("model"), BATCHES);
}

#[test]
fn readers() {
    run_seeds(&program("readers"), READERS);
}

#[test]
fn versions() {
    run_seeds(&program("versions"), SORTS);
}

#[test]
fn touches() {
    run(&program("touches"), &[]);
}

#[test]
fn hash_groups_have_no_long_runs_of_chosen_keys() {
    run(&program("groups"), &[]);
}
