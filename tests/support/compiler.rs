//! The sources in `ptx/` and `tests/gpu/kernels/`, compiled for the CPU. Needs a C++ compiler: `CXX`, or one
//! of the usual names.

use std::path::Path;
use std::process::{Command, Output};

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

/// Prints what a process printed.
///
/// # Panics
/// If it failed.
pub fn expect_success(what: &str, output: &Output) {
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}\n{complaints}",
        output.status
    );
}

/// Compiles a source of `tests/gpu/kernels/` to the file `target`.
///
/// # Panics
/// If there is no compiler, or it fails; what it printed tells why.
pub fn compile(source: &str, target: &Path, options: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let compiler = compiler();
    let output = Command::new(&compiler)
        // The kernels' pragmas are for NVRTC. Fortified, the C library forbids jumps between stacks.
        .args(["-std=c++20", "-O1", "-g1", "-Wno-unknown-pragmas"])
        .args(["-U_FORTIFY_SOURCE", "-I"])
        .arg(root.join("ptx"))
        .args(options)
        .arg(root.join("tests/gpu/kernels").join(source))
        .arg("-o")
        .arg(target)
        .output()
        .unwrap_or_else(|error| panic!("the C++ compiler {compiler} does not run: {error}"));
    expect_success(&compiler, &output);
}
