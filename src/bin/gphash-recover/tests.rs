//! What is said after a compaction that something is wrong after.

use gphash::Error;
use gphash::store::Store;

use super::*;

/// A closed store with an item, and the finding of a recovery.
fn recovered(folder: &Path) -> (PathBuf, Finding) {
    let path = folder.join("store");
    let store = Store::open(&path, &Default::default()).unwrap();
    store.put("ada", "byron").unwrap();
    store.close().unwrap();
    let finding = find(&path, Repair::Recover, &|_| {}).unwrap();
    (path, finding)
}

/// The status and the object of a compaction that has freed a byte, and then this.
fn told(mut finding: Finding, checked: gphash::Result<Finding>) -> (u8, String) {
    let trouble = finding.update(checked);
    let outcome = Outcome {
        finding: Ok(finding),
        bytes_freed: Some(1),
        trouble,
    };
    let object = Object::new(Path::new("store"), &outcome).to_json();
    assert!(object.contains(r#""bytes_freed":1"#), "{object}");
    (Status::of(&outcome) as u8, object)
}

#[test]
fn check_that_fails_after_a_compaction_keeps_what_it_has_freed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, finding) = recovered(folder.path());
    let in_use = Error::InUse { path };
    let (status, object) = told(finding, Err(in_use));
    assert_eq!(status, Status::Failed as u8);
    assert!(
        object.contains("not checked after the compaction"),
        "{object}"
    );
    assert!(!object.contains("not compacted"), "{object}");
}

/// As a full disk leaves it, which has no room for the last checkpoint, after a recovery or a compaction.
#[test]
fn store_that_still_needs_recovery_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (path, finding) = recovered(folder.path());
    let store = Store::open(&path, &Default::default()).unwrap();
    store.put("alan", "turing").unwrap();
    // It is never closed.
    let killed = folder.path().join("killed");
    copy(&path, &killed);
    let find = || find(&killed, Repair::Check, &|_| {});
    let outcome = Outcome::of_recovery(find());
    assert!(matches!(Status::of(&outcome), Status::Failed));
    let (status, object) = told(finding, find());
    assert_eq!(status, Status::Failed as u8);
    assert!(object.contains("no room for a checkpoint"), "{object}");
    assert!(object.contains(r#""state":"needs_recovery""#), "{object}");
}

/// Items that a compaction has removed are not counted any more.
#[test]
fn items_are_those_after_a_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut finding) = recovered(folder.path());
    let store = Store::open(&path, &Default::default()).unwrap();
    store.delete("ada").unwrap();
    store.close().unwrap();
    let items = |finding: &Finding| match finding {
        Finding::Store(report) => report.items,
        Finding::File(_) => unreachable!(),
    };
    assert_eq!(items(&finding), 1);
    let trouble = finding.update(find(&path, Repair::Check, &|_| {}));
    assert_eq!((items(&finding), trouble), (0, None));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}
