//! The kernels of `ptx/`, compiled for a CPU that steps 32 lanes together (`warp.h`), so that they
//! are tested where there is no GPU. Needs a C++ compiler: `CXX`, or one of the usual names.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seeds of a run that was not told one.
const SEEDS: u64 = 16;

const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];

/// The C++ compiler of this machine.
fn compiler() -> String {
    if let Ok(named) = std::env::var("CXX") {
        return named;
    }
    let works = |name: &&str| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    let found = COMPILERS.into_iter().find(works);
    found
        .unwrap_or_else(|| panic!("no C++ compiler: set CXX, or install one of {COMPILERS:?}"))
        .into()
}

/// What a process printed, on its failure too.
fn expect_success(what: &str, output: &Output) {
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}\n{complaints}",
        output.status
    );
}

/// Compiles a program of this folder.
fn compile(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{name}"));
    let compiler = compiler();
    let output = Command::new(&compiler)
        // The kernels' pragmas are for NVRTC. Fortified, the C library forbids jumps between stacks.
        .args(["-std=c++20", "-O1", "-g1", "-Wno-unknown-pragmas"])
        .args(["-U_FORTIFY_SOURCE", "-I"])
        .arg(root.join("ptx"))
        .arg(root.join("tests/kernels").join(format!("{name}.cpp")))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("the C++ compiler {compiler} does not run: {error}"));
    expect_success(&compiler, &output);
    program
}

fn run(program: &Path, arguments: &[u64]) {
    let arguments = arguments.iter().map(u64::to_string);
    let output = Command::new(program).args(arguments).output().unwrap();
    expect_success(&program.display().to_string(), &output);
}

#[test]
fn random_batches() {
    let (first, seeds) = match std::env::var("GPHASH_TEST_SEED") {
        Ok(seed) => (seed.parse().expect("GPHASH_TEST_SEED"), 1),
        Err(_) => (rand::random::<u32>().into(), SEEDS),
    };
    println!("GPHASH_TEST_SEED={first} and the {} after it", seeds - 1);
    run(&compile("model"), &[first, seeds]);
}

#[test]
fn touches() {
    run(&compile("touches"), &[]);
}
