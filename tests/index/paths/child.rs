//! The process that dies, and the fault layer that kills it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gphash::pm::{Call, Faults};

/// What the child does, and where; tells the test binary that it is the child.
const TASK: &str = "GPHASH_PATHS_TASK";
const FOLDER: &str = "GPHASH_PATHS_FOLDER";
/// At which of its calls it dies.
const AT: &str = "GPHASH_PATHS_AT";

/// The name of the test that is the child.
const TEST: &str = "child::child_does_its_task";

/// A way to do something in a folder, with a fault layer that ends the process.
type Task = fn(&Path, Arc<Dying>);

const TASKS: [(&str, Task); 8] = [
    ("plain", crate::checkpoints::plain),
    ("chdir", crate::checkpoints::after_chdir),
    ("symlink", crate::checkpoints::through_a_link),
    ("renamed folder", crate::checkpoints::in_a_renamed_folder),
    ("renamed file", crate::checkpoints::of_a_renamed_file),
    ("hard link", crate::checkpoints::through_a_hard_link),
    ("creation", crate::creation::create),
    ("store", crate::stores::work_after_chdir),
];

/// Ends the process, as a kill does, at a call once it is armed.
#[derive(Debug)]
pub struct Dying {
    left: AtomicI64,
    counts: fn(Call, &Path) -> bool,
}

impl Dying {
    /// Dies at the call that comes after `left` others which count.
    pub fn at(left: i64, counts: fn(Call, &Path) -> bool) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicI64::new(left),
            counts,
        })
    }
}

impl Faults for Dying {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        if (self.counts)(call, path) && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            std::process::abort();
        }
        Ok(())
    }

    /// Pages go home one by one.
    fn most_bytes(&self) -> usize {
        4096
    }
}

/// The number of the call at which this process is to die.
pub fn fatal_call() -> i64 {
    std::env::var(AT).unwrap().parse().unwrap()
}

/// Whether a call writes to the file of an index, and not to its journal.
pub fn writes_home(call: Call, path: &Path) -> bool {
    call == Call::Write && path.extension().is_none()
}

#[test]
fn child_does_its_task() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let (_, run) = TASKS.iter().find(|(name, _)| *name == task).unwrap();
    let counts = match task.as_str() {
        "creation" => |_: Call, _: &Path| true,
        _ => writes_home,
    };
    run(&folder, Dying::at(fatal_call(), counts));
}

/// Runs a task in a process of its own; whether that died.
pub fn dies(task: &str, folder: &Path, at: i64) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(TASK, task)
        .env(FOLDER, folder)
        .env(AT, at.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    use std::os::unix::process::ExitStatusExt;
    match output.status.signal() {
        Some(libc::SIGABRT) => true,
        _ => {
            assert!(output.status.success(), "{task}: {text}");
            false
        }
    }
}
