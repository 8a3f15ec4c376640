//! Opens and mends arbitrary bytes, and real files and journals with arbitrary damage.

#![no_main]

mod damage;
mod files;
mod folder;

use std::path::Path;

use arbitrary::Arbitrary;
use damage::Damage;
use files::{CASES, Files, Held, Patches};
use gphash::{Error, ReportState, Result, recover};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>, Option<Vec<u8>>),
    Patches(Patches),
    Damage(Damage),
}

/// Looks at a file, which must not change it, then opens and mends it.
fn open_and_mend(path: &Path, files: &Files, open: fn(&Path) -> Result<()>) {
    files.write(path);
    let _ = recover(path, gphash::Repair::Check, &|_| {});
    assert!(Files::read(path) == *files, "a check has changed the file");
    // A journal is brought home before the items are looked at.
    if open(path).is_err() && files.journal.is_none() {
        assert!(
            Files::read(path) == *files,
            "a refusal has changed the file"
        );
    }
    if recover(path, gphash::Repair::Salvage, &|_| {}).is_err() {
        return;
    }
    let report = recover(path, gphash::Repair::Check, &|_| {}).expect("it was mended");
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    match open(path) {
        Ok(()) | Err(Error::SizeMismatch { .. } | Error::WrongKind { .. }) => {}
        Err(error) => panic!("it was mended: {error}"),
    }
}

/// Damages what a checksum covers: what opens, or is mended, holds what it did.
fn spoil(path: &Path, damage: &Damage) {
    let (files, holds) = (damage.files(), damage.case().holds);
    files.write(path);
    match holds(path) {
        Ok(held) => assert_eq!(held, Held::All, "opened"),
        Err(_) if files.journal.is_some() => {}
        Err(_) => assert!(Files::read(path) == files, "a refusal has changed the file"),
    }
    files.write(path);
    if let Ok(report) = recover(path, gphash::Repair::Recover, &|_| {})
        && report.recovery.damage.is_empty()
    {
        let held = holds(path).expect("it was mended");
        assert_eq!(held, Held::All, "{report:?}");
    }
    let _ = std::fs::remove_file(files::journal_of(path));
    files.write(path);
    if let Ok(report) = recover(path, gphash::Repair::Salvage, &|_| {}) {
        let held = holds(path).expect("it was salvaged");
        let is_named = report.state == ReportState::Damaged;
        assert!(
            held == Held::All || held == Held::Part && is_named,
            "{held:?}, {report:?}"
        );
        assert!(
            held == Held::All || report.recovery.items_lost > 0,
            "{report:?}"
        );
    }
}

fuzz_target!(|input: Input| {
    let folder = folder::new();
    let path = folder.path().join("index");
    match input {
        Input::Bytes(home, journal) => {
            open_and_mend(&path, &Files { home, journal }, CASES[0].open);
        }
        Input::Patches(patches) => open_and_mend(&path, &patches.files(), patches.case().open),
        Input::Damage(damage) => spoil(&path, &damage),
    }
});
