use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gphash_test_support::wait_for;

use super::*;
use crate::engine::device_tests::{GPU, alone};
use crate::gpu::budget::Quota;
use crate::gpu::device::Device;
use crate::gpu::memory::{DeviceMemory, copy_in, wait};
use crate::layout::{BUSY, RecordWord};
use crate::pm::Medium;
use crate::table::key::reserved_bucket_at;
use crate::{Engine, Options};

/// Kernels that access what is not aligned would end the context, which other libraries use, too.
#[test]
fn slices_that_kernels_cannot_use_are_refused() {
    let check = |keys_at, answers_at, words| {
        // SAFETY: nobody looks at what is there.
        let (keys, answers) = unsafe {
            let keys = DeviceSlice::<u64>::from_raw(keys_at, 65);
            (keys, DeviceSliceMut::from_raw(answers_at, words))
        };
        operands(keys, None, answers)
    };
    assert_eq!(check(0x1000, 0x2008, 2).unwrap().answers, 0x2008);
    for (keys_at, answers_at, words, wrong) in [
        (0x1004, 0x2000, 2, "keys"),
        (0x1000, 0x2004, 2, "answers"),
        (0x1000, 0x2001, 2, "answers"),
        (0x1000, 0x2000, 1, "answers"),
    ] {
        let refused = check(keys_at, answers_at, words).unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { option, .. } if option == wrong));
    }
}

/// An index whose key 1 has a damaged slot.
fn with_damage(dir: &Path) -> Index<u64, u64> {
    let options = Options::new().engine(GPU).device_mirror(false);
    let index = Index::<u64, u64>::create(dir.join("index"), &options).unwrap();
    let keys: Vec<u64> = (1..3000).collect();
    index.insert(&keys, &keys).unwrap();
    index.remove(&keys[1..]).unwrap();
    // The host does not see what the GPU moves meanwhile, and the tags are of before.
    wait_for("the end of the resize", || !index.stats().resizing);
    index.table.tags.forget();
    let target = index.table.target(bytemuck::bytes_of(&1u64));
    let found = index.table.find(&target, &mut 0).unwrap();
    let beyond = RecordWord::member(1, 1 << 50);
    index.table.medium.store(found.addr.record, beyond.0);
    index
}

/// Looks key 1 up on the device, which tells nobody what it meets.
fn lookup(index: &Index<u64, u64>, device: &Device) {
    let _entered = device.enter().unwrap();
    let stream = gpu::stream::Stream::new().unwrap();
    let memory = DeviceMemory::new(&Quota::unbounded(), 24).unwrap();
    let at = memory.address();
    // SAFETY: the block is as long, and in use for longer than the calls.
    let found = unsafe {
        copy_in(&stream, at, bytemuck::bytes_of(&1u64)).unwrap();
        wait(&stream).unwrap();
        index.get_device(
            Stream::from_raw(std::ptr::null_mut()),
            DeviceSlice::from_raw(at, 1),
            DeviceSliceMut::from_raw(at + 8, 1),
            DeviceSliceMut::from_raw(at + 16, 1),
        )
    };
    found.unwrap();
}

#[test]
fn damage_is_told_after_a_callback_that_panics() {
    let Some(_alone) = alone() else { return };
    let device = Device::open(0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let index = with_damage(dir.path());
    lookup(&index, &device);
    let compact = || index.compact(&|_| panic!("planned"));
    catch_unwind(AssertUnwindSafe(compact)).unwrap_err();
    assert!(matches!(index.sync(), Err(Error::Damaged { .. })));
    index.sync().unwrap();
}

/// The caller of a compaction is told once of a damaged slot that lookups have met, and the work is done each time.
#[test]
fn compaction_runs_beside_damage() {
    let Some(_alone) = alone() else { return };
    let device = Device::open(0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let index = with_damage(dir.path());
    // Of one damaged slot: the first time, the levels shrink, and its item comes to another.
    for turn in 0..3 {
        lookup(&index, &device);
        let has_run = AtomicBool::new(false);
        let compacted = index.compact(&|_| has_run.store(true, Ordering::Relaxed));
        match turn {
            0 => {
                assert!(matches!(compacted, Err(Error::Damaged { .. })));
                assert!(has_run.load(Ordering::Relaxed));
            }
            1 => {}
            _ => compacted.unwrap(),
        }
    }
}

/// Who waits to be alone with the table comes to it, though calls of several threads overlap all the time.
#[test]
fn compaction_begins_beside_lookups_without_a_pause() {
    const LOOKUPS_TIME_MAX: Duration = Duration::from_secs(60);
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().engine(GPU).cache_period(None);
    let index = Index::<u64, u64>::create(dir.path().join("index"), &options).unwrap();
    let keys: Vec<u64> = (1..=20).collect();
    index.insert(&keys, &keys).unwrap();
    let (begun, is_compacted) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_compacted.load(Ordering::Relaxed) && begun.elapsed() < LOOKUPS_TIME_MAX {
                    let mut values = vec![0; keys.len()];
                    index.get(&keys, &mut values).unwrap();
                    assert_eq!(values, keys);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let compacted = index.compact(&|_| ());
        is_compacted.store(true, Ordering::Relaxed);
        compacted.unwrap();
    });
    assert!(begun.elapsed() < LOOKUPS_TIME_MAX);
}

/// Of a key that equals a slot state: no growth would help it, and each would double the table.
#[test]
fn reserved_bucket_that_is_never_free_is_no_reason_to_grow() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let index = Index::<u64, u64>::create(&path, &Options::new().engine(Engine::Cpu)).unwrap();
    for slot in 0..index.table.shape.slots {
        let addr = index.table.shape.slot_addr(reserved_bucket_at(0), slot);
        index.table.medium.store(addr.state, BUSY);
    }
    index.close().unwrap();
    let index = Index::<u64, u64>::open(&path, &Options::new().engine(GPU)).unwrap();
    let before = index.stats();
    for keys in [&[0][..], &[1, 0, 2]] {
        let refused = index.insert(keys, keys).unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    }
    assert_eq!(index.stats().top_level, before.top_level);
    // Others go on, also that which has the other bucket.
    let keys: Vec<u64> = (1..3000).chain([u64::MAX]).collect();
    index.upsert(&keys, &keys).unwrap();
    assert_eq!(index.get_one(&u64::MAX).unwrap(), Some(u64::MAX));
    assert!(index.stats().top_level > before.top_level);
}

/// What is looked up on device slices is counted on the device alone. A table of which much is looked up does not rest.
#[test]
fn compaction_at_rest_waits_for_lookups_of_device_slices() {
    const LOOKED_UP: usize = 4096;
    const REST: Duration = Duration::from_secs(2);
    const BETWEEN: Duration = Duration::from_millis(150);
    type Value = [u64; 32];
    let Some(_alone) = alone() else { return };
    let device = Device::open(0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let keys: Vec<u64> = (1..=200_000).collect();
    let options = Options::new().engine(Engine::Cpu).idle_compaction(None);
    let index = Index::<u64, Value>::create(&path, &options).unwrap();
    index.insert(&keys, &vec![[7; 32]; keys.len()]).unwrap();
    index.remove(&keys[LOOKED_UP..]).unwrap();
    index.close().unwrap();
    let options = Options::new()
        .engine(GPU)
        .cache_period(None)
        .idle_compaction(Some(REST));
    let index = Index::<u64, Value>::open(&path, &options).unwrap();
    let mut last = Instant::now();
    let used = || std::fs::metadata(&path).unwrap().blocks();
    let before = used();
    let entered = device.enter().unwrap();
    let stream = gpu::stream::Stream::new().unwrap();
    let values = LOOKED_UP * (8 + size_of::<Value>());
    let memory = DeviceMemory::new(&Quota::unbounded(), values + LOOKED_UP / 8).unwrap();
    let at = memory.address();
    // SAFETY: the block is as long, and stays until the copy is done.
    unsafe { copy_in(&stream, at, bytemuck::cast_slice(&keys[..LOOKED_UP])).unwrap() };
    wait(&stream).unwrap();
    let (began, mut longest) = (last, Duration::ZERO);
    while began.elapsed() < 3 * REST {
        // SAFETY: the parts of the block are as long, and in use for longer than the call.
        let found = unsafe {
            index.get_device(
                Stream::from_raw(std::ptr::null_mut()),
                DeviceSlice::from_raw(at, LOOKED_UP),
                DeviceSliceMut::from_raw(at + 8 * LOOKED_UP as u64, LOOKED_UP),
                DeviceSliceMut::from_raw(at + values as u64, LOOKED_UP / 64),
            )
        };
        found.unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
        // Long enough for a compaction, which would end where a lookup waits for it.
        std::thread::sleep(BETWEEN);
    }
    // A machine that is busy with other things may look as if it rests.
    let is_compacted = used() < before / 2;
    assert!(
        !is_compacted || longest > REST / 4,
        "at {} of {before}",
        used()
    );
    drop(entered);
    wait_for("the compaction", || used() < before / 2);
}
