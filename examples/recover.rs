//! Recovery after a crash: a process dies without closing its index, and the next one goes on.
//!
//! `cargo run --release --example recover`

use std::path::Path;
use std::process::{Command, abort};

use gphash::{Index, Options, Repair, Result, recover};

/// Fills an index and dies before it is closed.
fn crash(path: &Path) -> Result<()> {
    let index = Index::<u64, u64>::create(path, &Options::new())?;
    let keys: Vec<u64> = (0..10_000).collect();
    index.insert(&keys, &keys)?;
    index.sync()?;
    abort()
}

fn main() -> Result<()> {
    if let Some(path) = std::env::args_os().nth(1) {
        return crash(path.as_ref());
    }
    let dir = tempfile::tempdir().expect("a directory for the example");
    let path = dir.path().join("killed.gph");
    let program = std::env::current_exe().expect("this program");
    let status = Command::new(program)
        .arg(&path)
        .status()
        .expect("a process");
    println!("the child ended with {status}");

    // Looks and changes nothing; `gphash-recover --check` does the same.
    let report = recover(&path, Repair::Check, &|_| {})?;
    println!("the file: {:?}", report.state);

    let index = Index::<u64, u64>::open(&path, &Options::new())?;
    println!(
        "opened: {} items, clean: {}",
        index.len(),
        index.recovery().clean
    );
    assert_eq!((index.len(), index.recovery().clean), (10_000, false));
    index.close()
}
