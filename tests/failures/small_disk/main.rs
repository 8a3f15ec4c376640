//! Disks that are full or may only be read: file systems in memory, mounted where the test may
//! mount, and skipped where it may not.

mod index;
mod store;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use tempfile::TempDir;

/// A program that one test starts holds, until it runs, the lock of any file that another test
/// has open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A small file system of its own, where the test may make one.
struct SmallDisk(
    TempDir,
    #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>,
);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let alone = ONE_AT_A_TIME
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        let folder = TempDir::new().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "gphash-test"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder, alone));
        }
        println!("skipped: no file system can be mounted here");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount")
            .args(["-o", &options])
            .arg(self.0.path())
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
