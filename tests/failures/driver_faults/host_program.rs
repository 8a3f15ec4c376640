//! What an index leaves to the program around it: its current context, its memory, its streams.

use std::ffi::c_void;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
use gphash::layout::bucket::SlotAddr;
use gphash::layout::{RecordWord, Superblock};
use gphash::{Engine, Error, Index, Options};

use crate::alone;
use crate::driver::{Driver, Fault};

/// The caller's context, which is no address.
const CALLERS: *mut c_void = std::ptr::without_provenance_mut(0x1234);

fn options() -> Options {
    Options::new()
        .capacity(100)
        .engine(Engine::Cuda { device: 0 })
}

fn create(path: &Path) -> Index<u64, u64> {
    let index = Index::create(path, &options()).unwrap();
    index.insert(&[1, 2, 3], &[10, 20, 30]).unwrap();
    index
}

/// Keys, values and answers of three operations in device memory.
struct Operands {
    driver: &'static Driver,
    keys: u64,
    values: u64,
    answers: u64,
}

const LEN: usize = 3;

impl Operands {
    fn new(driver: &'static Driver, keys: [u64; LEN], values: [u64; LEN]) -> Self {
        Self {
            driver,
            keys: driver.allocate(&keys),
            values: driver.allocate(&values),
            answers: driver.allocate(&[0]),
        }
    }

    fn keys(&self) -> DeviceSlice<'_, u64> {
        // SAFETY: these are so many words of device memory, which stay.
        unsafe { DeviceSlice::from_raw(self.keys, LEN) }
    }

    fn values(&self) -> DeviceSlice<'_, u64> {
        // SAFETY: as above.
        unsafe { DeviceSlice::from_raw(self.values, LEN) }
    }

    fn values_mut(&self) -> DeviceSliceMut<'_, u64> {
        // SAFETY: as above; a verb takes them once.
        unsafe { DeviceSliceMut::from_raw(self.values, LEN) }
    }

    fn answers(&self) -> DeviceSliceMut<'_, u64> {
        // SAFETY: as above.
        unsafe { DeviceSliceMut::from_raw(self.answers, 1) }
    }

    /// What came back.
    fn results(&self) -> (u64, Vec<u64>) {
        // SAFETY: as above; the tests have waited, or nobody else runs.
        unsafe {
            let answers = self.driver.read(self.answers, 1);
            (answers[0], self.driver.read(self.values, LEN))
        }
    }
}

impl Drop for Operands {
    fn drop(&mut self) {
        for block in [self.keys, self.values, self.answers] {
            assert!(self.driver.free(block), "the caller's memory is gone");
        }
    }
}

/// A stream of the caller's.
fn stream(handle: *mut c_void) -> Stream<'static> {
    // SAFETY: the emulated driver keeps its streams.
    unsafe { Stream::from_raw(handle) }
}

#[test]
fn context_of_the_caller_stays_current() {
    let _alone = alone();
    let driver = Driver::get();
    driver.arm(Fault::NEVER);
    driver.retain();
    let retained = driver.retained();
    let operands = Operands::new(driver, [1, 2, 9], [7, 8, 9]);
    let handle = driver.stream();
    for callers in [std::ptr::null_mut(), CALLERS] {
        driver.set_current(callers);
        let expect = |when: &str| assert_eq!(driver.current(), callers, "{when}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = create(&path);
        expect("created");
        index.upsert(&[2, 4], &[21, 40]).unwrap();
        index.update(&[2], &[22]).unwrap();
        index.remove(&[4]).unwrap();
        expect("changed");
        index.get(&[1, 2], &mut [0, 0]).unwrap();
        index.contains(&[1, 5]).unwrap();
        assert_eq!(index.get_one(&2).unwrap(), Some(22));
        index.insert_one(&5, &50).unwrap();
        index.remove_one(&5).unwrap();
        expect("looked up");
        let (keys, on) = (operands.keys(), stream(handle));
        index
            .upsert_device(on, keys, operands.values(), operands.answers())
            .unwrap();
        index
            .update_device(on, keys, operands.values(), operands.answers())
            .unwrap();
        index
            .get_device(on, keys, operands.values_mut(), operands.answers())
            .unwrap();
        index.contains_device(on, keys, operands.answers()).unwrap();
        index.remove_device(on, keys, operands.answers()).unwrap();
        index
            .insert_device(on, keys, operands.values(), operands.answers())
            .unwrap();
        expect("on device slices");
        index.reserve(1000).unwrap();
        index.reload_cache().unwrap();
        index.sync().unwrap();
        assert_eq!(index.iter().count(), 4);
        assert_eq!(index.len(), 4);
        expect("used");
        assert_eq!(driver.retained(), retained + 1);
        index.close().unwrap();
        expect("closed");
        drop(Index::<u64, u64>::open(&path, &options()).unwrap());
        expect("dropped");
    }
    assert_eq!(driver.retained(), retained);
    drop(operands);
    driver.release();
    driver.set_current(std::ptr::null_mut());
}

#[test]
fn memory_of_the_caller_outlives_the_index() {
    let _alone = alone();
    let driver = Driver::get();
    driver.arm(Fault::NEVER);
    driver.retain();
    let folder = tempfile::tempdir().unwrap();
    let index = create(&folder.path().join("index"));
    let operands = Operands::new(driver, [3, 2, 9], [7, 8, 9]);
    let on = stream(driver.stream());
    index
        .get_device(
            on,
            operands.keys(),
            operands.values_mut(),
            operands.answers(),
        )
        .unwrap();
    drop(index);
    assert_eq!(operands.results(), (0b011, vec![30, 20, 9]));
    drop(operands);
    driver.release();
    assert_eq!(driver.retained(), 0);
}

#[test]
fn streams_do_not_wait_for_the_default_stream() {
    let _alone = alone();
    let driver = Driver::get();
    driver.arm(Fault::NEVER);
    let serialized = driver.serialized();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let index = create(&path);
    index.reserve(1000).unwrap();
    index.reload_cache().unwrap();
    index.sync().unwrap();
    assert_eq!(index.get_one(&3).unwrap(), Some(30));
    index.close().unwrap();
    let index = Index::<u64, u64>::open(&path, &options()).unwrap();
    assert_eq!(index.get_one(&3).unwrap(), Some(30));
    index.close().unwrap();
    assert_eq!(driver.serialized(), serialized);
}

#[test]
fn lookups_on_device_slices_are_done_when_the_call_returns() {
    let _alone = alone();
    let driver = Driver::get();
    driver.arm(Fault::NEVER);
    driver.retain();
    let folder = tempfile::tempdir().unwrap();
    let index = create(&folder.path().join("index"));
    let operands = Operands::new(driver, [1, 2, 9], [7, 8, 9]);
    let handle = driver.stream();
    let on = stream(handle);
    let (keys, values) = (operands.keys(), || operands.values_mut());
    index
        .get_device(on, keys, values(), operands.answers())
        .unwrap();
    assert_eq!(driver.unfinished(handle), 0, "get_device");
    index.contains_device(on, keys, operands.answers()).unwrap();
    assert_eq!(driver.unfinished(handle), 0, "contains_device");
    // SAFETY: nobody touches the slices before the index is closed, which waits.
    unsafe {
        index
            .get_device_async(on, keys, values(), operands.answers())
            .unwrap();
    }
    assert!(driver.unfinished(handle) > 0, "get_device_async waits");
    index.close().unwrap();
    assert_eq!(driver.unfinished(handle), 0, "close");
    drop(operands);
    driver.release();
}

#[test]
fn growth_waits_for_lookups_on_every_stream() {
    // More than are remembered once they are done.
    const STREAMS: usize = 200;
    let _alone = alone();
    let driver = Driver::get();
    driver.arm(Fault::NEVER);
    driver.retain();
    let folder = tempfile::tempdir().unwrap();
    let index = create(&folder.path().join("index"));
    let operands = Operands::new(driver, [1, 2, 9], [7, 8, 9]);
    let handles: Vec<usize> = (0..STREAMS).map(|_| driver.stream() as usize).collect();
    std::thread::scope(|scope| {
        for handles in handles.chunks(STREAMS / 4) {
            let (index, operands) = (&index, &operands);
            scope.spawn(move || {
                for &handle in handles {
                    let on = stream(handle as *mut c_void);
                    // SAFETY: the slices stay until the index is closed. That several lookups answer
                    // the same is all that they write.
                    let issued = unsafe {
                        index.contains_device_async(on, operands.keys(), operands.answers())
                    };
                    issued.unwrap();
                }
            });
        }
    });
    index.reserve(10_000).unwrap();
    for handle in handles {
        assert_eq!(driver.unfinished(handle as *mut c_void), 0);
    }
    index.close().unwrap();
    drop(operands);
    driver.release();
}

/// What lookups on device slices meet has no call to be told by. It is told once, and keeps no version back.
#[test]
fn damage_that_a_lookup_meets_is_told_once() {
    let _alone = alone();
    let driver = Driver::get();
    driver.arm(Fault::NEVER);
    driver.retain();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    create(&path).close().unwrap();
    // The record of key 2 is in the superblock.
    let mut bytes = std::fs::read(&path).unwrap();
    let superblock = Superblock::parse(&bytes, bytes.len() as u64, &path).unwrap();
    let shape = superblock.shape(&path).unwrap();
    let slots = (superblock.bottom_level..=superblock.top_level).flat_map(|level| {
        let start = superblock.level_directory[level as usize];
        let buckets = (0..1 << level).map(move |nth| start + nth * shape.bucket_size);
        buckets
            .flat_map(move |bucket| (0..shape.slots).map(move |nth| shape.slot_addr(bucket, nth)))
    });
    let word = |bytes: &[u8], at: u64| {
        u64::from_le_bytes(
            bytes[usize::try_from(at).unwrap()..][..8]
                .try_into()
                .unwrap(),
        )
    };
    let found = |slot: &SlotAddr| word(&bytes, slot.state) == 2;
    let at = usize::try_from(slots.into_iter().find(found).unwrap().record).unwrap();
    bytes[at..at + 8].copy_from_slice(&RecordWord::member(2, 8).0.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    for (nth, is_synced) in [(0, true), (1, false)] {
        let index = Index::<u64, u64>::open(&path, &options()).unwrap();
        let operands = Operands::new(driver, [1, 2, 3], [7, 8, 9]);
        let (on, keys) = (stream(driver.stream()), operands.keys());
        (index.get_device(on, keys, operands.values_mut(), operands.answers())).unwrap();
        index.update_one(&3, &(31 + nth)).unwrap();
        let is_damage = |error: Error| matches!(error, Error::Damaged { .. });
        if is_synced {
            assert!(is_damage(index.sync().unwrap_err()));
            index.sync().unwrap();
            index.close().unwrap();
        } else {
            assert!(is_damage(index.close().unwrap_err()));
        }
        let index = Index::<u64, u64>::open(&path, &Options::new()).unwrap();
        assert!(index.recovery().clean);
        assert_eq!(index.get_one(&3).unwrap(), Some(31 + nth));
        index.close().unwrap();
    }
    driver.release();
}

/// What goes back to the file system while a device has the file's pages would stay with the device, and be another
/// page than the file's.
#[test]
fn free_room_of_a_killed_file_stays_while_a_device_has_it() {
    let _alone = alone();
    Driver::get().arm(Fault::NEVER);
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, killed) = (folder.path().join("index"), folder.path().join("killed"));
    let index = Index::<u64, [u64; 128]>::create(&path, &Options::new()).unwrap();
    let keys: Vec<u64> = (1..5000).collect();
    index.insert(&keys, &vec![[7; 128]; keys.len()]).unwrap();
    index.remove(&keys[100..]).unwrap();
    index.compact(&|_| {}).unwrap();
    std::fs::copy(&path, &killed).unwrap();
    let index = Index::<u64, [u64; 128]>::open(&killed, &options()).unwrap();
    assert!(!index.recovery().clean);
    let stats = index.stats();
    assert!(stats.free_bytes > 1 << 20, "{stats:?}");
    assert_eq!(stats.free_bytes_held, stats.free_bytes);
    let blocks = std::fs::metadata(&killed).unwrap().blocks();
    assert!(
        blocks * 512 >= stats.file_len,
        "{blocks} blocks of {stats:?}"
    );
    index.insert(&keys[100..200], &[[8; 128]; 100]).unwrap();
    assert_eq!(index.get_one(&keys[100]).unwrap(), Some([8; 128]));
    index.close().unwrap();
}
