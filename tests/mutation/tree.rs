//! A copy of the tree in which faults are planted, and the tests that are run there.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gphash_test_support::compiler::compile_in;

use crate::list::{Mutation, Suite};

/// Seconds that the tests of a suite may take. One that hangs has found nothing.
const LIMIT: &str = "900";

/// The source of this name.
pub fn original(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a suite said.
pub struct Outcome {
    /// All of its tests ran and passed.
    pub passed: bool,
    /// The tests that failed.
    pub failed: Vec<String>,
    /// All that was printed.
    pub output: String,
}

/// The copy, with folders for its builds beside it.
pub struct Tree {
    folder: PathBuf,
}

impl Tree {
    /// Copies all files under version control.
    pub fn copy() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
        let tree = folder.join("tree");
        let _ = fs::remove_dir_all(&tree);
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(root())
            .output()
            .expect("git");
        assert!(listed.status.success(), "git ls-files: {}", listed.status);
        let names = String::from_utf8(listed.stdout).expect("names of files");
        for name in names.split_terminator('\0') {
            let to = tree.join(name);
            fs::create_dir_all(to.parent().expect("a folder")).unwrap();
            fs::copy(root().join(name), to).unwrap();
        }
        Self { folder }
    }

    /// Does something while the fault is there.
    pub fn with<T>(&self, mutation: &Mutation, run: impl FnOnce() -> T) -> T {
        let path = self.folder.join("tree").join(mutation.file);
        let source = original(mutation.file);
        fs::write(&path, mutation.apply(&source)).unwrap();
        let result = run();
        fs::write(&path, source).unwrap();
        result
    }

    /// Builds and runs a suite on the tree as it is.
    pub fn run(&self, suite: Suite) -> Outcome {
        if let Suite::Emulated(_) | Suite::EmulatedBadInput(_) = suite {
            self.compile_device();
        }
        let (built, output) = self.cargo(suite, &["--no-run"]);
        assert!(built, "{suite:?} does not build:\n{output}");
        let (passed, output) = self.cargo(suite, &["--no-fail-fast"]);
        // Sources that a test compiles by itself.
        assert!(!output.contains(": error: "), "{suite:?}:\n{output}");
        let failed = output
            .lines()
            .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
            .map(String::from)
            .collect();
        Outcome {
            passed: passed && output.contains("test result: ok"),
            failed,
            output,
        }
    }

    /// Compiles the emulated device with the kernels of the tree.
    fn compile_device(&self) {
        let library = self.device().join("libcuda.so.1");
        fs::create_dir_all(self.device()).unwrap();
        let options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        let source = "ptx/emulator/driver.cpp";
        compile_in(&self.folder.join("tree"), source, &library, &options);
    }

    /// Where the emulated device is.
    fn device(&self) -> PathBuf {
        self.folder.join("device")
    }

    /// Runs cargo for a suite: whether it succeeded, and what it printed.
    fn cargo(&self, suite: Suite, options: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.args([OsStr::new(LIMIT), env!("CARGO").as_ref(), "test".as_ref()]);
        command.args(options).args(suite.arguments());
        let output = command
            .current_dir(self.folder.join("tree"))
            .env("CARGO_TARGET_DIR", self.folder.join(suite.target()))
            .env("CARGO_INCREMENTAL", "1")
            .envs(suite.variables().iter().copied())
            .envs(match suite {
                Suite::Emulated(_) | Suite::EmulatedBadInput(_) => {
                    Some(("LD_LIBRARY_PATH", self.device()))
                }
                _ => None,
            })
            .env_remove("GPHASH_TEST_SEED")
            .output()
            .expect("timeout");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}
