//! Value files: what compaction moves, when their room comes back, and who still reads them.

use super::*;
use crate::pm::Call;

fn value(key: u64, round: u64) -> Vec<u8> {
    format!("{key} {round} ").into_bytes().repeat(100)
}

/// Adds a value of each of these keys.
fn add_round(spill: &Spill, model: &mut Model, keys: impl Iterator<Item = u64>, round: u64) {
    let item = |key: u64| {
        let value = (round, Some(value(key, round)));
        (key.to_be_bytes().to_vec(), value)
    };
    let changes: Model = keys.map(item).collect();
    add(spill, &changes).unwrap();
    model.extend(changes);
}

/// A compaction writes keys and references; values stay where they are.
#[test]
fn compaction_leaves_values_where_they_are() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let mut model = Model::new();
    for round in 0..8 {
        let keys = (0..400).filter(|key| key % 8 == round);
        add_round(&spill, &mut model, keys, round);
        while spill.compact().unwrap() {}
    }
    let stats = spill.stats();
    assert!(stats.compactions > 0, "{stats:?}");
    assert_eq!(stats.live_value_bytes, bytes_of(&model));
    // Each file begins with a header.
    assert_eq!(
        stats.value_bytes,
        stats.live_value_bytes + 48 * stats.value_files
    );
    assert!(
        10 * stats.compaction_written < stats.live_value_bytes,
        "{stats:?}"
    );
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    super::model::check_files(&spill, dir.path());
}

fn bytes_of(model: &Model) -> u64 {
    let values = model.values().filter_map(|(_, value)| value.as_ref());
    values.map(|value| value.len() as u64).sum()
}

/// Values of files that are worn are written anew, so that their room comes back.
#[test]
fn values_of_worn_files_are_moved() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut spill = open(dir.path(), None, options()).unwrap();
    let mut model = Model::new();
    add_round(&spill, &mut model, 0..200, 0);
    for round in 1..24 {
        // Of each round some keys are not changed again, and each of its value files has one.
        let keys = (0..200).filter(|key| key % 24 >= round);
        add_round(&spill, &mut model, keys, round);
        while spill.compact().unwrap() {}
        if round % 5 == 0 {
            drop(spill);
            spill = open(dir.path(), None, options()).unwrap();
        }
        assert!(contents(&spill.version(), round % 2 == 0, 100).unwrap() == model);
        // Level 0 has up to three rounds.
        let stats = spill.stats();
        let most = bytes_of(&model) * 3 / 2 + 3 * bytes_of(&model) + (64 << 10);
        assert!(stats.value_bytes < most, "round {round}: {stats:?}");
    }
    // A tombstone of each key: all goes.
    for item in model.values_mut() {
        *item = (100, None);
    }
    for _ in 0..8 {
        add(&spill, &model).unwrap();
        while spill.compact().unwrap() {}
    }
    assert!(spill.version().is_empty());
    super::model::check_files(&spill, dir.path());
    assert_eq!(spill.stats().value_files, 0);
}

/// A version that is held keeps the value files that compaction no longer needs.
#[test]
fn version_keeps_its_value_files() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let mut model = Model::new();
    add_round(&spill, &mut model, 0..100, 0);
    let (held, of_held) = (spill.version(), model.clone());
    for round in 1..10 {
        add_round(&spill, &mut model, 0..100, round);
        while spill.compact().unwrap() {}
    }
    assert!(contents(&held, false, 30).unwrap() == of_held);
    assert!(contents(&spill.version(), false, 30).unwrap() == model);
    let names = || {
        let dir = std::fs::read_dir(dir.path()).unwrap();
        let names = dir.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| values::number(name).is_some()).count()
    };
    let while_held = names();
    drop(held);
    spill.levels.cache().sweep();
    assert!(names() < while_held);
    super::model::check_files(&spill, dir.path());
}

/// There is an end to compaction also where files have next to nothing but their header.
#[test]
fn compaction_ends_whatever_the_threshold() {
    for value_bytes_min in [0, 1, 64] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let apart = SpillOptions {
            value_bytes_min,
            ..options()
        };
        let spill = open(dir.path(), None, apart).unwrap();
        let mut model = Model::new();
        for round in 0..12u64 {
            let keys = (0..40u64).filter(|key| (key + round) % 3 > 0);
            let len = |key: u64| to_usize((key + round) % 2 * 64);
            let item = |key: u64| (key.to_be_bytes().to_vec(), (round, Some(vec![7; len(key)])));
            let changes: Model = keys.map(item).collect();
            add(&spill, &changes).unwrap();
            model.extend(changes);
            let mut compactions = 0;
            while spill.compact().unwrap() {
                compactions += 1;
                assert!(compactions < 100, "threshold {value_bytes_min}");
            }
        }
        assert!(contents(&spill.version(), false, 100).unwrap() == model);
        super::model::check_files(&spill, dir.path());
    }
}

/// A value that cannot be read stays where it is, for whom reads it to be told, and is in nobody's way.
#[test]
fn damaged_value_does_not_block_compaction() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let mut model = Model::new();
    add_round(&spill, &mut model, 0..100, 0);
    let version = spill.version();
    let last = version.values().last().unwrap().file.path();
    drop(version);
    let mut bytes = std::fs::read(&last).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&last, &bytes).unwrap();
    for round in 1..20 {
        add_round(&spill, &mut model, 0..99, round);
        while spill.compact().unwrap() {}
    }
    let version = spill.version();
    let damaged = 99u64.to_be_bytes();
    assert!(matches!(
        version.get(&damaged),
        Err(crate::Error::Damaged { .. })
    ));
    // Whether it is there, and how long it is, stands beside its key.
    let len = value(99, 0).len() as u64;
    assert_eq!(version.find(&damaged).unwrap(), Some((0, Some(len))));
    for (key, item) in model.iter().filter(|(key, _)| key[..] != damaged) {
        assert_eq!(version.get(key).unwrap().as_ref(), Some(item));
    }
    assert!(spill.stats().value_bytes < 2 * bytes_of(&model));
}

/// A process that may have few files open: one more is refused while so many of the directory are.
#[derive(Debug)]
struct FewDescriptors(usize);

impl Faults for FewDescriptors {
    fn before(&self, call: Call, path: &std::path::Path) -> std::io::Result<()> {
        if call != Call::Open {
            return Ok(());
        }
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let files = descriptors.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
        let open = files.filter(|file| file.parent() == path.parent()).count();
        match open < self.0 {
            true => Ok(()),
            false => Err(std::io::Error::from_raw_os_error(libc::EMFILE)),
        }
    }
}

/// Files that nobody reads are closed when the process may open no more.
#[test]
fn files_are_closed_for_others() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let many = SpillOptions {
        open_files: 1000,
        ..options()
    };
    let spill = open(dir.path(), Some(Arc::new(FewDescriptors(4))), many).unwrap();
    let mut model = Model::new();
    for round in 0..4 {
        add_round(&spill, &mut model, (0..200).skip(round).step_by(4), 0);
    }
    assert!(spill.stats().value_files > 4);
    assert!(contents(&spill.version(), false, 30).unwrap() == model);
    for (key, item) in &model {
        assert_eq!(spill.version().get(key).unwrap().as_ref(), Some(item));
    }
}
