//! Processes that tests kill.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How long a child is waited for, which is far longer than a slow machine needs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until a child has made a file.
///
/// # Panics
/// If it has ended before, or takes too long.
pub fn wait_for_file(child: &mut Child, file: &Path) {
    let started = Instant::now();
    while !file.exists() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the child did not begin: {ended:?}");
        assert!(started.elapsed() < PATIENCE, "the child does not begin");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Kills a child.
///
/// # Panics
/// If it has ended by itself.
pub fn kill(child: &mut Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        status.signal(),
        Some(9),
        "the child ended by itself: {status}"
    );
}
