use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::index::fault_tests::faults::Failing;
use crate::pm::{Call, Faults};
use crate::pool::snapshots::Snapshots;
use crate::store::mvcc::old_versions::OldVersions;
use crate::width::to_usize;

const VALUE_BYTES: usize = 1000;

/// A directory, and a spill into it that takes everything.
fn spill(faults: Option<Arc<dyn Faults>>) -> (TempDir, VersionSpill) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::at(root.path().to_path_buf(), faults);
    (root, VersionSpill::new(dir, 0))
}

fn value(nth: u8, len: usize) -> OldVersion {
    OldVersion::Kept(Ok(Some(vec![nth; len])))
}

fn values(len: usize) -> Vec<OldVersion> {
    (0..4).map(|nth| value(nth, len)).collect()
}

fn has_file(spill: &VersionSpill) -> bool {
    spill.file.lock().strong_count() > 0
}

fn bytes_of(versions: &[OldVersion]) -> VersionBytes {
    let mut bytes = VersionBytes::default();
    for version in versions {
        bytes.add(b"key", version);
    }
    bytes
}

/// Spills versions, and says what they take then.
fn move_out(spill: &VersionSpill, versions: &mut [OldVersion]) -> VersionBytes {
    let mut bytes = bytes_of(versions);
    spill.spill(versions.iter_mut(), &mut bytes);
    assert_eq!(bytes, bytes_of(versions));
    bytes
}

fn is_spilled(version: &OldVersion) -> bool {
    matches!(version, OldVersion::Spilled(_))
}

#[test]
fn old_values_are_read_from_the_file() {
    let (root, spill) = spill(None);
    // Some are gathered, others are written from where they are.
    for len in [VALUE_BYTES, GATHERED_BYTES_MAX, GATHERED_BYTES_MAX + 1] {
        let mut versions = values(len);
        versions.push(value(9, SPILLED_VALUE_BYTES_MIN - 1));
        versions.push(OldVersion::Kept(Ok(None)));
        versions.push(value(4, VALUE_BYTES));
        let bytes = move_out(&spill, &mut versions);
        assert_eq!(bytes.spilled, (4 * len + VALUE_BYTES) as u64);
        let spilled: Vec<bool> = versions.iter().map(is_spilled).collect();
        assert_eq!(spilled, [true, true, true, true, false, false, true]);
        for (nth, version) in (0..).zip(&versions[..4]) {
            let read = version.clone().into_value().unwrap();
            assert_eq!(read, Some(vec![nth; len]));
        }
        let last = versions[6].clone().into_value().unwrap();
        assert_eq!(last, Some(vec![4; VALUE_BYTES]));
    }
    assert_eq!(root.path().read_dir().unwrap().count(), 0);
    assert!(!has_file(&spill));
}

#[test]
fn pruning_old_versions_ends_the_file() {
    let (_root, spill) = spill(None);
    let snapshots = Snapshots::default();
    let snapshot = snapshots.take_newest(|| 1);
    let mut old_versions = OldVersions::default();
    let mut versions = values(VALUE_BYTES);
    move_out(&spill, &mut versions);
    for (nth, version) in (0u8..).zip(versions) {
        old_versions.keep(&[nth], 2, version);
    }
    assert_eq!(old_versions.bytes().spilled, 4 * VALUE_BYTES as u64);
    drop(old_versions.sweep(&snapshots.live(), 5));
    assert!(has_file(&spill) && old_versions.value(&[3], 1).is_some());
    drop(snapshot);
    let pruned = old_versions.sweep(&snapshots.live(), 5);
    assert_eq!(old_versions.bytes(), VersionBytes::default());
    assert!(has_file(&spill));
    drop(pruned);
    assert!(!has_file(&spill));
}

/// What one old snapshot sees does not keep what others saw.
#[test]
fn room_beside_an_old_value_is_given_back() {
    let (_root, spill) = spill(None);
    let mut old = vec![value(1, VALUE_BYTES)];
    move_out(&spill, &mut old);
    let file = spill.file.lock().upgrade().unwrap();
    // Short ones, whose pieces are shared, and one of many pieces.
    for (count, len) in [(5000, VALUE_BYTES), (1, 4000 * VALUE_BYTES)] {
        let mut versions: Vec<_> = (0..count).map(|_| value(2, len)).collect();
        move_out(&spill, &mut versions);
        let copies = versions.split_off(count / 2).to_vec();
        drop(versions);
        assert!(file.file.allocated().unwrap() >= (count * len / 2) as u64);
        for copy in copies {
            assert_eq!(copy.into_value().unwrap(), Some(vec![2; len]));
        }
        assert!(file.file.allocated().unwrap() <= 2 * PIECE_BYTES);
    }
    let [old] = old.try_into().unwrap();
    assert_eq!(old.into_value().unwrap(), Some(vec![1; VALUE_BYTES]));
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn full_spill_file_is_followed_by_another() {
    let (_root, spill) = spill(None);
    let mut first = vec![value(1, VALUE_BYTES)];
    move_out(&spill, &mut first);
    let mut long = vec![value(2, to_usize(FILE_BYTES_MIN))];
    move_out(&spill, &mut long);
    let file = spill.file.lock().clone();
    let mut next = vec![value(3, VALUE_BYTES)];
    move_out(&spill, &mut next);
    assert!(!file.ptr_eq(&spill.file.lock()));
    drop((first, long));
    assert_eq!(file.strong_count(), 0);
    let [next] = next.try_into().unwrap();
    assert_eq!(next.into_value().unwrap(), Some(vec![3; VALUE_BYTES]));
}

#[test]
fn old_values_stay_in_memory_while_writes_fail() {
    for call in [Call::Create, Call::Write] {
        let fails: fn(Call, &Path) -> bool = match call {
            Call::Create => |call, _| call == Call::Create,
            _ => |call, _| call == Call::Write,
        };
        let faults = Failing::only(fails, libc::ENOSPC);
        let (_root, spill) = spill(Some(faults.clone()));
        faults.cure(false);
        let mut versions = values(VALUE_BYTES);
        let bytes = move_out(&spill, &mut versions);
        assert!(faults.was_met() && !has_file(&spill), "{call:?}");
        assert_eq!(bytes.spilled, 0);
        assert!(!versions.iter().any(is_spilled));
        faults.cure(true);
        move_out(&spill, &mut versions);
        assert!(versions.iter().all(is_spilled));
        let read = versions.swap_remove(2).into_value().unwrap();
        assert_eq!(read, Some(vec![2; VALUE_BYTES]));
    }
}

#[test]
fn half_written_old_values_give_their_room_back() {
    let faults = Failing::within(100_000);
    let (_root, spill) = spill(Some(faults.clone()));
    let mut first = vec![value(1, VALUE_BYTES)];
    move_out(&spill, &mut first);
    let mut others = values(40_000);
    assert_eq!(move_out(&spill, &mut others).spilled, 0);
    let file = spill.file.lock().upgrade().unwrap();
    assert_eq!(file.file.len().unwrap(), VALUE_BYTES as u64);
    faults.cure(true);
    move_out(&spill, &mut others);
    let read = others.swap_remove(3).into_value().unwrap();
    assert_eq!(read, Some(vec![3; 40_000]));
}

#[test]
fn old_value_that_cannot_be_read_is_an_error() {
    let faults = Failing::only(|call, _| call == Call::Read, libc::EIO);
    let (root, spill) = spill(Some(faults.clone()));
    let mut versions = values(VALUE_BYTES);
    move_out(&spill, &mut versions);
    faults.cure(false);
    let error = versions[1].clone().into_value().unwrap_err();
    faults.expect(&error, &root.path().join(NAME));
    faults.cure(true);
    assert!(versions[1].clone().into_value().is_ok());
}

#[test]
fn damage_of_spilled_old_values_is_detected() {
    let (_root, spill) = spill(None);
    let mut versions = values(VALUE_BYTES);
    move_out(&spill, &mut versions);
    let file = spill.file.lock().upgrade().unwrap();
    file.file.write(&[7], 2 * VALUE_BYTES as u64 + 5).unwrap();
    file.file.set_len(4 * VALUE_BYTES as u64 - 1).unwrap();
    for (nth, version) in versions.into_iter().enumerate() {
        match version.into_value() {
            Ok(_) => assert!(nth < 2),
            Err(Error::Damaged { what, at, .. }) => {
                assert_eq!((what, at), ("old version", (nth * VALUE_BYTES) as u64));
                assert!(nth >= 2);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn spill_file_needs_no_help_of_the_file_system() {
    // The first call is that which makes the file.
    let faults = Failing::at(0, libc::EOPNOTSUPP, false);
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::at(root.path().to_path_buf(), Some(faults.clone()));
    std::fs::write(root.path().join(NAME), "left by a crash").unwrap();
    let spill = VersionSpill::new(dir, 0);
    let mut versions = values(VALUE_BYTES);
    move_out(&spill, &mut versions);
    assert!(faults.was_met() && versions.iter().all(is_spilled));
    assert_eq!(root.path().read_dir().unwrap().count(), 0);
    let read = versions.swap_remove(3).into_value().unwrap();
    assert_eq!(read, Some(vec![3; VALUE_BYTES]));
}
