//! `Store::verify` beside others who use the store, and on stores that were spoilt while they were
//! open.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gphash::layout::RecordWord;
use gphash::store::{Durability, Store, StoreFile, StoreOptions, StoreReport, WriteBatch};
use gphash::{Domain, ReportState};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::folders;
use super::{append, seed};

fn options() -> StoreOptions {
    crate::options()
        .partitions(1)
        .capacity(16)
        .durability(Durability::None)
        .segment_bytes(1 << 16)
        .checkpoint_bytes(1 << 20)
        .merge_operator(append())
}

fn fill(store: &Store, keys: u32) {
    let mut batch = WriteBatch::new();
    for key in 0..keys {
        batch.put(format!("key {key}"), vec![7; key as usize % 300]);
    }
    store.write(batch).unwrap();
}

#[track_caller]
fn is_clean(report: &StoreReport) {
    assert_eq!(report.state, ReportState::Clean, "{report:#?}");
}

/// Changes a byte of a file behind the store's back.
fn spoil(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn sizes_are_those_of_the_open_store_whatever_its_path_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    fill(&store, 100);
    store.checkpoint().unwrap();
    let sizes = || -> Vec<(String, u64)> {
        let files = store.verify(&|_| {}).files;
        files
            .into_iter()
            .map(|file| (file.name, file.bytes))
            .collect()
    };
    let before = sizes();
    assert!(before.iter().all(|(_, bytes)| *bytes > 0), "{before:?}");
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    assert_eq!(sizes(), before);
    store.close().unwrap();
}

#[test]
fn verify_reads_all_of_a_whole_store() {
    for folder in folders() {
        let path = folder.path().join("store");
        let store = Store::open(&path, &options()).unwrap();
        is_clean(&store.verify(&|_| {}));
        fill(&store, 5000);
        assert_eq!(store.range(..).count(), 5000); // makes the ordered view
        store.delete("key 7").unwrap();
        let told = AtomicU64::new(0);
        let report = store.verify(&|progress| {
            assert!(progress.done <= progress.total, "{progress:?}");
            told.fetch_add(1, Ordering::Relaxed);
        });
        is_clean(&report);
        assert!(told.into_inner() > 0);
        assert_eq!(report.items, 4999);
        assert_eq!(report.log_records, 2);
        let names: Vec<&str> = report.files.iter().map(|file| &file.name[..]).collect();
        assert_eq!(names[..3], ["MANIFEST", "MANIFEST.2", "index.gph"]);
        assert!(
            names[3..].iter().all(|name| name.starts_with("wal/")),
            "{names:?}"
        );
        store.checkpoint().unwrap();
        let report = store.verify(&|_| {});
        is_clean(&report);
        assert_eq!(report.log_records, 0);
        store.close().unwrap();
    }
}

#[test]
fn verify_runs_beside_changes() {
    let seed = seed();
    for folder in folders() {
        let store = Store::open(folder.path().join("store"), &options()).unwrap();
        fill(&store, 300);
        assert_eq!(store.range(..).count(), 300);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let change = |nth: u64| {
                let mut rng = SmallRng::seed_from_u64(seed + nth);
                // The table grows and the log goes through several checkpoints.
                let mut most = 300;
                while !is_over.load(Ordering::Relaxed) {
                    most += 100;
                    let mut batch = WriteBatch::new();
                    for _ in 0..200 {
                        let key = format!("key {}", rng.random_range(0..most));
                        match rng.random_range(0..10) {
                            0..6 => {
                                batch.put(key, vec![nth.to_le_bytes()[0]; rng.random_range(0..400)])
                            }
                            6..8 => batch.merge(key, "+"),
                            _ => batch.delete(key),
                        };
                    }
                    store.write(batch).unwrap();
                    if rng.random_range(0..50) == 0 {
                        store.checkpoint().unwrap();
                    }
                }
            };
            for nth in 0..2 {
                scope.spawn(move || change(nth));
            }
            for _ in 0..15 {
                let report = store.verify(&|_| {});
                if report.state != ReportState::Clean {
                    is_over.store(true, Ordering::Relaxed);
                }
                is_clean(&report);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        is_clean(&store.verify(&|_| {}));
        store.close().unwrap();
    }
}

#[test]
fn verify_names_each_damaged_file() {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        // There the index is used as it is in its file.
        true => tempfile::tempdir_in(memory).unwrap(),
        false => return println!("skipped: no /dev/shm"),
    };
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    assert_eq!(store.stats().index.domain, Domain::Shared);
    let value = vec![0xa7; 999];
    store.put("the key", value.clone()).unwrap();
    fill(&store, 100);
    let damaged = |kind: StoreFile| {
        let report = store.verify(&|_| {});
        assert_eq!(report.state, ReportState::Damaged);
        for file in &report.files {
            let is_it = file.kind == kind && file.name != "MANIFEST.2";
            let expected = match is_it {
                true => ReportState::Damaged,
                false => ReportState::Clean,
            };
            assert_eq!(file.state, expected, "{report:#?}");
            assert_eq!(file.damage.is_empty(), !is_it, "{report:#?}");
        }
    };
    let manifest = path.join("MANIFEST");
    let log = path.join("wal/000000000001.log");
    for (file, kind) in [(&manifest, StoreFile::Manifest), (&log, StoreFile::Log)] {
        let bytes = fs::read(file).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        for at in [0, 8, 33, 60, end / 2, end] {
            spoil(file, at);
            damaged(kind);
            spoil(file, at);
            is_clean(&store.verify(&|_| {}));
        }
        let away = folder.path().join("away");
        fs::rename(file, &away).unwrap();
        damaged(kind);
        fs::rename(&away, file).unwrap();
    }
    let index = path.join("index.gph");
    let bytes = fs::read(&index).unwrap();
    let place = |wanted: &[u8]| {
        let at = bytes
            .windows(wanted.len())
            .position(|bytes| bytes == wanted);
        at.unwrap() as u64
    };
    let (key, value) = (place(b"the key"), place(&value));
    let header = key - 24;
    for at in [
        header,
        header + 4,
        header + 8,
        header + 16,
        key,
        value,
        value + 998,
    ] {
        spoil(&index, at);
        damaged(StoreFile::Index);
        spoil(&index, at);
    }
    // The slot that names the record; the entry of an extent that begins with it comes before.
    let slot = bytes.chunks_exact(8).rposition(|bytes| {
        let word = u64::from_le_bytes(bytes.try_into().unwrap());
        RecordWord(word).offset() == header
    });
    let record = 8 * slot.unwrap() as u64;
    spoil(&index, record);
    damaged(StoreFile::Index);
    spoil(&index, record);
    is_clean(&store.verify(&|_| {}));
    store.close().unwrap();
}
