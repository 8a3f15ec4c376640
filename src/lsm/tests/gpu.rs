//! The files that a GPU makes are those that the CPU makes, byte for byte. Without a GPU, and without the emulated
//! device for its driver (docs/testing.md), these tests pass by.

use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::engine::DeviceBudget;
use crate::engine::device_tests::{GPU, alone, fail_calls};
use crate::width::low_byte;
use crate::{Engine, Error};

fn unbounded() -> DeviceBudget {
    DeviceBudget::new(None)
}

/// Does each part on a GPU.
fn forced(engine: Engine) -> GpuCompaction {
    GpuCompaction::new(engine, &unbounded(), Some(1 << 30), 2, Some(1.0))
}

/// Entries of a job on the device: an emulated one takes long.
fn count() -> usize {
    let compactor = crate::engine::compactor(GPU, &unbounded())
        .unwrap()
        .unwrap();
    match compactor.device_name() {
        "emulated warps" => 400,
        _ => 20_000,
    }
}

fn seed() -> u64 {
    let given = std::env::var("GPHASH_TEST_SEED");
    let seed = given.map_or_else(
        |_| rand::random(),
        |seed| seed.parse().expect("GPHASH_TEST_SEED"),
    );
    println!("GPHASH_TEST_SEED={seed}");
    seed
}

/// What keys look like.
#[derive(Debug, Clone, Copy)]
enum Keys {
    Numbered,
    Random,
    Bytes,
    Long,
    Alike,
    /// So short that one where a job is cut is there.
    Short,
}

const KEYS: [Keys; 5] = [
    Keys::Numbered,
    Keys::Random,
    Keys::Bytes,
    Keys::Long,
    Keys::Alike,
];

impl Keys {
    fn draw(self, random: &mut SmallRng, count: usize) -> Vec<u8> {
        let n = random.random_range(0..2 * count as u64);
        match self {
            Self::Numbered => format!("user{n:012}").into_bytes(),
            Self::Random => {
                let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                [word.to_be_bytes(), word.to_le_bytes()].concat()
            }
            // Of all short lengths, zeros at the end among them.
            Self::Bytes => {
                let len = random.random_range(0..20);
                (0..len).map(|_| random.random_range(0..3)).collect()
            }
            Self::Long => {
                let len = random.random_range(0..300);
                [&n.to_be_bytes()[..], &vec![7; len]].concat()
            }
            Self::Short => {
                let len = random.random_range(1..4);
                (0..len).map(|_| random.random_range(0..12)).collect()
            }
            // They differ behind what is sorted by.
            Self::Alike => format!("{:a<40}{n:06}", n % 7).into_bytes(),
        }
    }
}

/// Changes, some of which have values apart, some of which delete.
fn changes(random: &mut SmallRng, keys: Keys, count: usize, sequence: &mut u64) -> Model {
    let mut changes = Model::new();
    for _ in 0..count {
        *sequence += random.random_range(1..1000);
        let value = match random.random_range(0..10) {
            0 => None,
            1 => Some(random.random_range(300..900)),
            2 => Some(0),
            _ => Some(random.random_range(0..200)),
        };
        let value = value.map(|len| (0..len).map(|_| random.random()).collect());
        changes.insert(keys.draw(random, count), (*sequence, value));
    }
    changes
}

/// All files of a directory.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, std::fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}

#[test]
fn gpu_makes_the_same_files() {
    let Some(_alone) = alone() else { return };
    let count = count();
    let mut random = SmallRng::seed_from_u64(seed());
    for keys in KEYS {
        let dirs = [(); 2].map(|()| tempfile::tempdir_in("/dev/shm").unwrap());
        let gpu = Arc::new(forced(GPU));
        let spills = [0, 1].map(|nth| {
            let mut one = options();
            // Numbers of files come in the order of the work: one part, one thread.
            one.part_bytes_min = u64::MAX;
            one.level_bytes = 24 << 10;
            // Files end amid what would be a block.
            one.file_bytes = 10_000;
            if nth == 1 {
                one.gpu = Arc::clone(&gpu);
            }
            open(dirs[nth].path(), None, one).unwrap()
        });
        let mut sequence = 1;
        for round in 0..6 {
            let changes = changes(&mut random, keys, count / 2, &mut sequence);
            for spill in &spills {
                add(spill, &changes).unwrap();
                while spill.compact().unwrap() {}
            }
            let [made, expected] = [1, 0].map(|nth: usize| files(dirs[nth].path()));
            assert!(made.keys().eq(expected.keys()), "{keys:?}, round {round}");
            for (name, bytes) in &made {
                assert!(*bytes == expected[name], "{name}, {keys:?}, round {round}");
            }
        }
        let merged = spills[1].stats().gpu_compaction_read;
        println!("{keys:?}: {merged} bytes");
        // Many keys alike at their beginning, and long ones, are the CPU's.
        assert!(merged > 0 || matches!(keys, Keys::Alike | Keys::Long));
    }
}

/// Parts that a GPU and the CPU have made side by side make up the same items.
#[test]
fn gpu_makes_parts_of_jobs() {
    let Some(_alone) = alone() else { return };
    let count = count();
    let mut random = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut one = options();
    let gpu = Arc::new(forced(GPU));
    (one.gpu, one.part_bytes_min) = (Arc::clone(&gpu), 4 << 10);
    let spill = open(dir.path(), None, one).unwrap();
    let mut model = Model::new();
    let mut sequence = 1;
    for _ in 0..6 {
        let changes = changes(&mut random, Keys::Short, count, &mut sequence);
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
    }
    assert!(spill.stats().gpu_compaction_read > 0);
    let found = contents(&spill.version(), false, 100).unwrap();
    assert!(values(&found) == values(&model));
}

/// Whatever call of the driver fails, the CPU does the job, and the items are the same.
#[test]
fn gpu_fails_at_any_call() {
    let Some(_alone) = alone() else { return };
    let count = count();
    let mut random = SmallRng::seed_from_u64(seed());
    let mut sequence = 1;
    let rounds: Vec<Model> = (0..4)
        .map(|_| changes(&mut random, Keys::Bytes, count / 4, &mut sequence))
        .collect();
    let run = |engine, first, last| {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut one = options();
        (one.gpu, one.part_bytes_min) = (Arc::new(forced(engine)), u64::MAX);
        let spill = open(dir.path(), None, one).unwrap();
        for changes in &rounds {
            add(&spill, changes).unwrap();
        }
        fail_calls(first, last)?;
        assert!(spill.compact().unwrap());
        let calls = fail_calls(u64::MAX, u64::MAX);
        let merged = spill.stats().gpu_compaction_read;
        let found = contents(&spill.version(), false, 100).unwrap();
        calls.map(|calls| (calls, merged, found))
    };
    let Some((_, 0, expected)) = run(Engine::Cpu, u64::MAX, u64::MAX) else {
        println!("skipped: only the emulated device fails when it is asked to");
        return;
    };
    let (calls, merged, made) = run(GPU, u64::MAX, u64::MAX).unwrap();
    assert!(merged > 0 && made == expected);
    println!("{calls} calls");
    // Others in each run.
    for first in (random.random_range(0..7)..calls).step_by(7) {
        let (_, merged, made) = run(GPU, first, first + 1).unwrap();
        assert!(
            made == expected,
            "call {first} fails; {merged} bytes on the device"
        );
    }
    for first in (random.random_range(0..29)..calls).step_by(29) {
        let (_, _, made) = run(GPU, first, u64::MAX).unwrap();
        assert!(made == expected, "calls from {first} on fail");
    }
}

/// A block of an input that is damaged is met by the device as well, and named by the CPU.
#[test]
fn gpu_leaves_damage_to_the_cpu() {
    let Some(_alone) = alone() else { return };
    let count = count();
    let mut random = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut one = options();
    (one.gpu, one.part_bytes_min) = (Arc::new(forced(GPU)), u64::MAX);
    let spill = open(dir.path(), None, one).unwrap();
    let mut sequence = 1;
    for _ in 0..4 {
        let changes = changes(&mut random, Keys::Random, count / 4, &mut sequence);
        add(&spill, &changes).unwrap();
    }
    let version = spill.version();
    let (_, sst) = version.files().next().unwrap();
    let mut bytes = std::fs::read(sst.path()).unwrap();
    let at = 48 + random.random_range(0..to_usize(sst.meta().unwrap().index.handle(0).to) - 48);
    bytes[at] ^= 4;
    std::fs::write(sst.path(), &bytes).unwrap();
    let before = files(dir.path());
    let error = spill.compact().unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert_eq!(spill.stats().gpu_compaction_read, 0);
    assert!(files(dir.path()) == before, "nothing has changed");
}

/// Lanes are as many as may be, and go when nobody wants them; those of a store come beside its parts.
#[test]
fn gpu_lanes_come_and_go() {
    let Some(_alone) = alone() else { return };
    let compactor = crate::engine::compactor(GPU, &unbounded())
        .unwrap()
        .unwrap();
    let prepare = |lanes| compactor.prepare(1 << 20, lanes).unwrap();
    assert!(prepare(2) && prepare(2) && !prepare(2));
    let release = |idle| compactor.release_unused(idle).unwrap();
    assert!(release(Duration::from_secs(600)).is_some());
    assert!(!prepare(2));
    assert_eq!(release(Duration::ZERO), None);
    assert!(prepare(2));

    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut one = options();
    // Few entries make up a part that is long enough.
    (one.value_bytes_min, one.file_bytes, one.level_bytes) = (64 << 10, 1 << 20, 1 << 20);
    one.gpu = Arc::new(GpuCompaction::new(
        GPU,
        &unbounded(),
        Some(64 << 20),
        2,
        None,
    ));
    one.part_bytes_min = u64::MAX;
    let spill = open(dir.path(), None, one).unwrap();
    let mut model = Model::new();
    let started = Instant::now();
    for sequence in 0.. {
        assert!(started.elapsed() < Duration::from_secs(300), "no lane came");
        let keys = (sequence % 2..40).step_by(2);
        let value = |key: u64| Some(vec![low_byte(key ^ sequence); 8 << 10]);
        let changes = keys.map(|key| (key.to_be_bytes().to_vec(), (sequence, value(key))));
        let changes: Model = changes.collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
        if spill.stats().gpu_compaction_read > 0 {
            break;
        }
    }
    assert!(values(&contents(&spill.version(), false, 10).unwrap()) == values(&model));
}

/// A part takes of the rate before it is read, and for what is written.
#[test]
fn gpu_part_keeps_to_the_rate() {
    let Some(_alone) = alone() else { return };
    let mut random = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut one = options();
    let rate = Arc::new(RateLimiter::new(Some(1)));
    (one.gpu, one.part_bytes_min) = (Arc::new(forced(GPU)), u64::MAX);
    (one.rate, one.pool) = (Arc::clone(&rate), Arc::new(Pool::new("compaction", 2)));
    let spill = open(dir.path(), None, one).unwrap();
    let (mut model, mut sequence) = (Model::new(), 1);
    for _ in 0..4 {
        let changes = changes(&mut random, Keys::Numbered, 100, &mut sequence);
        add(&spill, &changes).unwrap();
        model.extend(changes);
    }
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| spill.compact().unwrap());
        while spill.stats().compaction_rate_wait.is_zero() {
            assert!(!compaction.is_finished(), "it waits");
            std::thread::yield_now();
        }
        let merged = spill.stats().gpu_compaction_read;
        let _lift = rate.lift();
        assert!(merged > 0);
        assert!(compaction.join().unwrap());
    });
    assert!(values(&contents(&spill.version(), false, 100).unwrap()) == values(&model));
}
