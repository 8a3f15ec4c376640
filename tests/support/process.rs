//! Processes that tests kill.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;

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
