use crate::pm::Dir;
use crate::store::files::dir::Room;
use crate::store::inner::StoreInner;
use crate::store::lifecycle::rebuild;
use crate::store::wal::record::{Entry, GroupPart};
use crate::store::{Repair, Store, StoreOptions, recover};
use crate::{Error, ReportState};

/// A store of two partitions whose process died before it had written the commit record of a group; and a key of the group.
fn cut_short() -> (tempfile::TempDir, StoreOptions, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::new().partitions(2);
    let store = Store::open(dir.path(), &options).unwrap();
    store.put("key", "value").unwrap();
    let part = GroupPart {
        group: 7,
        participants: vec![],
    };
    let mut keys = (0..).map(|nth| format!("undecided {nth}").into_bytes());
    let is_there = |key: &Vec<u8>| store.partitions().number_of(key) == 1;
    let key = keys.find(is_there).expect("half of all keys are");
    let entry = Entry {
        key: &key,
        value: Some(b"value"),
        position: 0,
    };
    let log = &store.partitions().all()[1].state.log;
    log.append_part(1, &part, &[entry], true, Room::ALL)
        .unwrap();
    std::mem::forget(store);
    let left = tempfile::tempdir().unwrap();
    crate::store::crash_tests::copy(dir.path(), left.path());
    (left, options, key)
}

#[test]
fn salvage_of_what_is_whole_decides_as_an_opening_does() {
    let (dir, options, key) = cut_short();
    recover(dir.path(), Repair::Salvage, &|_| {}).unwrap();
    let store = Store::open(dir.path(), &options).unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(
        store.partitions().all()[1].state.tiers.get(&key).unwrap(),
        None
    );
}

#[test]
fn salvage_of_what_is_damaged_keeps_what_it_finds() {
    for is_cut_short in [false, true] {
        let (dir, options, key) = cut_short();
        for name in ["MANIFEST", "MANIFEST.2"] {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        if is_cut_short {
            let root = Dir::at(dir.path().to_path_buf(), None);
            let identity = rebuild::Identity {
                partitions: None,
                partition: 0,
                store_id: None,
            };
            rebuild::prepare(&root, &identity, &|_| {}).unwrap();
        } else {
            recover(dir.path(), Repair::Salvage, &|_| {}).unwrap();
        }
        let store = Store::open(dir.path(), &options).unwrap();
        let states = store.partitions().all().iter().map(|one| &one.state);
        let states: Vec<_> = states.collect();
        assert_eq!(states[1].tiers.get(&key).unwrap().unwrap(), b"value");
        let is_salvaged = |state: &&StoreInner| state.store_dir.manifest().salvaged;
        assert_eq!(states.iter().filter(|state| is_salvaged(state)).count(), 0);
    }
}

#[test]
fn parts_that_nobody_writes_are_damage() {
    let (prepare, other, twice, first, late) = (
        vec![],
        vec![(3, 1)],
        vec![(1, 1), (1, 1)],
        vec![(0, 1)],
        vec![(1, u64::MAX)],
    );
    let cases = [
        (1, 0, prepare.clone()),
        (1, 0, other.clone()),
        (3, 0, prepare),
    ];
    let cases =
        cases
            .into_iter()
            .chain([(3, 0, other), (3, 0, twice), (3, 1, first), (3, 0, late)]);
    for (partitions, number, participants) in cases {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().partitions(partitions);
        let store = Store::open(dir.path(), &options).unwrap();
        store.put("key", "value").unwrap();
        let part = GroupPart {
            group: 7,
            participants,
        };
        let entry = Entry {
            key: b"key",
            value: None,
            position: 0,
        };
        let log = &store.partitions().all()[number].state.log;
        log.append_part(1, &part, &[entry], true, Room::ALL)
            .unwrap();
        // The log stays if the process dies.
        std::mem::forget(store);
        let left = tempfile::tempdir().unwrap();
        crate::store::crash_tests::copy(dir.path(), left.path());
        for repair in [Repair::Check, Repair::Recover] {
            let report = recover(left.path(), repair, &|_| {}).unwrap();
            assert_eq!(report.state, ReportState::Damaged, "{repair}: {part:?}");
            assert!(!report.was_repaired, "{part:?}");
        }
        let repaired = tempfile::tempdir().unwrap();
        crate::store::crash_tests::copy(left.path(), repaired.path());
        let report = recover(repaired.path(), Repair::Salvage, &|_| {}).unwrap();
        assert_eq!(report.state, ReportState::Damaged, "{part:?}");
        Store::open(repaired.path(), &options)
            .unwrap()
            .close()
            .unwrap();
        let refused = Store::open(left.path(), &options).unwrap_err();
        assert!(
            matches!(refused, Error::DamagedLog { .. }),
            "{part:?}: {refused}"
        );
        let options = options.salvage(true);
        let salvaged = Store::open(left.path(), &options).unwrap();
        assert_eq!(salvaged.get(b"key").unwrap().unwrap(), b"value");
        salvaged.close().unwrap();
    }
}
