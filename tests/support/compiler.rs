//! The kernels of `ptx/`, compiled for the CPU. Needs a C++ compiler: `CXX`, or one
//! of the usual names.

use std::path::Path;
use std::process::{Command, Output};

const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];

/// Where sources find what they include.
const INCLUDED: [&str; 3] = ["ptx/emulator", "ptx/kernels", "ptx/include"];

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

/// Compiles `source`, a path in the repository, to the file `target`, with the kernels and the emulator of a
/// device where it can include them.
///
/// # Panics
/// If there is no compiler, or it fails; what it printed tells why.
pub fn compile(source: &str, target: &Path, options: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    compile_in(&root, source, target, options);
}

/// As [`compile`], in a copy of the repository.
///
/// # Panics
/// As there.
pub fn compile_in(root: &Path, source: &str, target: &Path, options: &[&str]) {
    let compiler = compiler();
    let output = Command::new(&compiler)
        // The kernels' pragmas are for NVRTC. Fortified, the C library forbids jumps between stacks.
        .args(["-std=c++20", "-O1", "-g1", "-Wno-unknown-pragmas"])
        .arg("-U_FORTIFY_SOURCE")
        .args(INCLUDED.map(|dir| format!("-I{}", root.join(dir).display())))
        .args(options)
        .arg(root.join(source))
        .arg("-o")
        .arg(target)
        .output()
        .unwrap_or_else(|error| panic!("the C++ compiler {compiler} does not run: {error}"));
    expect_success(&compiler, &output);
}
