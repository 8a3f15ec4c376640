use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::Error;
use crate::index::fault_tests::faults::Failing;
use crate::pm::{Call, Dir, Faults};
use crate::store::mvcc::old_versions::OldVersion;

/// Enough keys for several runs.
const KEYS: u32 = 5000;

fn spill(faults: Option<Arc<dyn Faults>>) -> (tempfile::TempDir, VersionSpill) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::at(root.path().to_path_buf(), faults);
    (root, VersionSpill::new(dir, 0))
}

fn key(nth: u32) -> Vec<u8> {
    format!("key {nth}").into_bytes()
}

fn read(keys: std::ops::Range<u32>, spill: &VersionSpill) -> ReadKeys {
    let mut read = ReadKeys::default();
    keys.for_each(|nth| read.note(&key(nth), Some(spill)));
    read
}

/// Whether what was read has changed if another has changed the key `nth`.
fn has_changed(read: &ReadKeys, nth: u32) -> Result<bool> {
    let key = key(nth);
    let none = OldVersions::default();
    let beside = read.have_changed(&none, 1, &BTreeSet::from([key.as_slice()]));
    let mut old_versions = OldVersions::default();
    old_versions.keep(&key, 2, OldVersion::Kept(Ok(None)));
    let later = read.have_changed(&old_versions, 2, &BTreeSet::new());
    assert!(!later.unwrap());
    let before = read.have_changed(&old_versions, 1, &BTreeSet::new());
    assert_eq!(before.as_ref().ok(), beside.as_ref().ok());
    before
}

#[test]
fn change_of_a_key_that_was_read_is_noticed_wherever_it_is() {
    let (root, spill) = spill(None);
    let read = read(0..KEYS, &spill);
    let spilled = read.spilled.as_ref().unwrap();
    assert!(spilled.runs.len() > 3 && read.bytes <= spill.read_bytes_max);
    for nth in (0..KEYS).step_by(7).chain(KEYS - 3..KEYS) {
        assert!(has_changed(&read, nth).unwrap(), "{nth}");
    }
    for nth in KEYS..2 * KEYS {
        assert!(!has_changed(&read, nth).unwrap(), "{nth}");
    }
    assert_eq!(root.path().read_dir().unwrap().count(), 0);
}

#[test]
fn keys_that_cannot_be_written_stay_in_memory() {
    for call in [Call::Create, Call::Write] {
        let fails: fn(Call, &std::path::Path) -> bool = match call {
            Call::Create => |call, _| call == Call::Create,
            _ => |call, _| call == Call::Write,
        };
        let faults = Failing::only(fails, libc::ENOSPC);
        let (_root, spill) = spill(Some(faults.clone()));
        faults.cure(false);
        let mut read = read(0..KEYS, &spill);
        assert!(faults.was_met() && read.bytes > spill.read_bytes_max);
        assert!(has_changed(&read, 0).unwrap() && !has_changed(&read, KEYS).unwrap());
        faults.cure(true);
        // Tried again once there is twice as much.
        let all = 3 * KEYS;
        (KEYS..all).for_each(|nth| read.note(&key(nth), Some(&spill)));
        assert!(read.spilled.is_some() && read.bytes <= spill.read_bytes_max);
        for nth in [0, 1, KEYS - 1, KEYS, all - 1] {
            assert!(has_changed(&read, nth).unwrap(), "{nth}");
        }
    }
}

/// A disk on which no call succeeds that writes, and how many were tried.
#[derive(Debug, Default)]
struct Refusing(AtomicU32);

impl Faults for Refusing {
    fn before(&self, call: Call, _: &Path) -> io::Result<()> {
        if call != Call::Write {
            return Ok(());
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
}

#[test]
fn disk_that_refuses_keys_is_rarely_asked_again() {
    let faults = Arc::new(Refusing::default());
    let (_root, spill) = spill(Some(faults.clone()));
    let read = read(0..20 * KEYS, &spill);
    assert_eq!(read.keys.len(), 20 * KEYS as usize);
    let tries = faults.0.load(Ordering::Relaxed);
    assert!((1..16).contains(&tries), "{tries}");
}

#[test]
fn keys_that_cannot_be_read_again_are_an_error() {
    let faults = Failing::only(|call, _| call == Call::Read, libc::EIO);
    let (_root, spill) = spill(Some(faults.clone()));
    let read = read(0..KEYS, &spill);
    faults.cure(false);
    assert!(matches!(has_changed(&read, 0), Err(Error::Io { .. })));
    faults.cure(true);
    assert!(has_changed(&read, 0).unwrap());
    let spilled = read.spilled.as_ref().unwrap();
    let file = &spilled.file.file;
    file.write(&[7], spilled.runs[1].at).unwrap();
    let damaged = has_changed(&read, KEYS).unwrap_err();
    let found = (spilled.runs[1].at, "keys that a transaction has read");
    assert!(matches!(damaged, Error::Damaged { at, what, .. } if (at, what) == found));
}
