//! Opens and mends arbitrary bytes, and real files and journals with arbitrary damage.

#![no_main]

mod files;

use std::path::Path;

use arbitrary::Arbitrary;
use files::{CASES, Files, Patches};
use gphash::{Error, ReportState, Result, recover};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>, Option<Vec<u8>>),
    Patches(Patches),
}

/// Looks at a file, which must not change it, then opens and mends it.
fn open_and_mend(path: &Path, files: &Files, open: fn(&Path) -> Result<()>) {
    files.write(path);
    let _ = recover(path, true, &|_| {});
    assert!(Files::read(path) == *files, "a check has changed the file");
    // A journal is brought home before the items are looked at.
    if open(path).is_err() && files.journal.is_none() {
        assert!(
            Files::read(path) == *files,
            "a refusal has changed the file"
        );
    }
    if recover(path, false, &|_| {}).is_err() {
        return;
    }
    let report = recover(path, true, &|_| {}).expect("it was mended");
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    match open(path) {
        Ok(()) | Err(Error::SizeMismatch { .. } | Error::WrongKind { .. }) => {}
        Err(error) => panic!("it was mended: {error}"),
    }
}

fuzz_target!(|input: Input| {
    let folder = files::folder();
    let path = folder.path().join("index");
    match input {
        Input::Bytes(home, journal) => {
            open_and_mend(&path, &Files { home, journal }, CASES[0].open);
        }
        Input::Patches(patches) => open_and_mend(&path, &patches.files(), patches.case().open),
    }
});
