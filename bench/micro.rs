//! The parts of an operation, one by one: hash, probe, get, insert, checkpoint, recovery.
//!
//! ```text
//! cargo bench --bench micro -- probe
//! ```

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gphash::layout::KeyHash;
use gphash::{Domain, Engine, Index, Options};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

type Value = [u64; 16];

const ITEMS: u64 = 1 << 20;
const BATCH: usize = 4096;

/// A folder in memory where there is one, so that no disk is measured but where it is meant to be.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a folder for the index files")
}

fn options(items: u64) -> Options {
    Options::new()
        .capacity(items)
        .engine(Engine::Cpu)
        .threads(1)
}

/// An index of the keys 1 to `items`.
fn filled(path: &Path, items: u64) -> Index<u64, Value> {
    let index = Index::create(path, &options(items)).expect("a new index");
    let keys: Vec<u64> = (1..=items).collect();
    for keys in keys.chunks(BATCH) {
        let values: Vec<Value> = keys.iter().map(|key| [*key; 16]).collect();
        index.insert(keys, &values).expect("inserted");
    }
    index
}

/// A batch of keys from `from..from + ITEMS`, in no order.
fn keys(from: u64) -> Vec<u64> {
    let mut random = SmallRng::seed_from_u64(from);
    (0..BATCH)
        .map(|_| from + random.random_range(0..ITEMS))
        .collect()
}

fn hash(c: &mut Criterion) {
    let mut group = c.benchmark_group("hash");
    group.throughput(Throughput::Elements(BATCH as u64));
    let words = keys(1);
    group.bench_function("8-byte keys", |b| {
        b.iter(|| {
            for word in &words {
                black_box(KeyHash::of_word(black_box(*word), 1).location(1));
            }
        });
    });
    let wide = vec![[7_u8; 32]; BATCH];
    group.bench_function("32-byte keys", |b| {
        b.iter(|| {
            for key in &wide {
                black_box(KeyHash::of_bytes(black_box(key), 1).location(1));
            }
        });
    });
    group.finish();
}

fn reads(c: &mut Criterion) {
    let folder = folder();
    let index = filled(&folder.path().join("reads.gph"), ITEMS);
    let (present, absent) = (keys(1), keys(ITEMS + 1));

    let mut group = c.benchmark_group("probe");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, keys) in [("hit", &present), ("miss", &absent)] {
        group.bench_function(name, |b| b.iter(|| index.contains(keys).expect("probed")));
    }
    group.finish();

    let mut group = c.benchmark_group("get");
    for batch in [1, 64, BATCH] {
        group.throughput(Throughput::Elements(batch as u64));
        let mut values = vec![[0; 16]; batch];
        group.bench_function(BenchmarkId::new("batch", batch), |b| {
            b.iter(|| index.get(&present[..batch], &mut values).expect("read"));
        });
    }
    group.finish();
}

fn insert(c: &mut Criterion) {
    let folder = folder();
    let path = folder.path().join("inserts.gph");
    let items: Vec<u64> = (1..=ITEMS / 8).collect();
    let values = vec![[7; 16]; BATCH];
    let mut group = c.benchmark_group("insert");
    group.sample_size(20);
    group.throughput(Throughput::Elements(items.len() as u64));
    for (name, capacity) in [("with room", items.len() as u64), ("while growing", 1024)] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    let _ = fs::remove_file(&path);
                    Index::<u64, Value>::create(&path, &options(capacity)).expect("a new index")
                },
                |index| {
                    for keys in items.chunks(BATCH) {
                        index.insert(keys, &values[..keys.len()]).expect("inserted");
                    }
                    // Closing is not part of it, so the index is dropped outside.
                    index
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Values are pages, so that each update makes a page dirty.
fn checkpoint(c: &mut Criterion) {
    type Page = [u64; 512];
    // The disk is part of a checkpoint.
    let folder = tempfile::tempdir().expect("a folder for the index file");
    let path = folder.path().join("checkpoints.gph");
    let options = options(16_384).domain(Domain::Checkpointed);
    let index = Index::<u64, Page>::create(&path, &options).expect("a new index");
    let keys: Vec<u64> = (1..=8192).collect();
    let values = vec![[7; 512]; keys.len()];
    index.insert(&keys, &values).expect("inserted");
    index.sync().expect("a checkpoint");

    let mut group = c.benchmark_group("checkpoint");
    group.sample_size(20);
    for pages in [16, 256, 4096] {
        group.throughput(Throughput::Elements(pages as u64));
        group.bench_function(BenchmarkId::new("dirty pages", pages), |b| {
            b.iter_batched(
                || {
                    index
                        .update(&keys[..pages], &values[..pages])
                        .expect("updated")
                },
                |_| index.sync().expect("a checkpoint"),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Opening a file that was not closed, which scans its slots, and one that was, which does not.
fn recovery(c: &mut Criterion) {
    let folder = folder();
    let original = folder.path().join("original.gph");
    let unclean = folder.path().join("unclean.gph");
    let copy = folder.path().join("copy.gph");
    let index = filled(&original, ITEMS);
    // What a process that dies here would leave: the lock goes, the file is not marked closed.
    fs::copy(&original, &unclean).expect("a copy of the open file");
    let slots = index.stats().slots;
    index.close().expect("closed");

    let mut group = c.benchmark_group("recovery");
    group.sample_size(10);
    for (name, file, work) in [
        ("slots after a crash", &unclean, slots),
        ("file cleanly closed", &original, 1),
    ] {
        group.throughput(Throughput::Elements(work));
        group.bench_function(name, |b| {
            b.iter_batched(
                || fs::copy(file, &copy).expect("a copy to open"),
                |_| Index::<u64, Value>::open(&copy, &options(1)).expect("an open index"),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, hash, reads, insert, checkpoint, recovery);
criterion_main!(benches);
