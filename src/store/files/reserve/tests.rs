use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::pm::{Call, Faults, FileEvent};

const KIB: u64 = 1 << 10;
const NEEDED: u64 = 256 * KIB;

/// A disk that has so many bytes for the reserves of two partitions, and for what else is written.
#[derive(Debug)]
struct Disk(Mutex<DiskBytes>);

#[derive(Debug)]
struct DiskBytes {
    free: u64,
    reserves: [u64; 2],
}

fn number_of(path: &Path) -> usize {
    usize::from(path.parent().unwrap().ends_with("1"))
}

impl Disk {
    fn free(&self) -> u64 {
        self.0.lock().free
    }

    /// Somebody writes so many bytes.
    fn write(&self, bytes: u64) {
        let mut all = self.0.lock();
        all.free = all.free.checked_sub(bytes).unwrap();
    }

    /// Somebody removes so many bytes.
    fn remove(&self, bytes: u64) {
        self.0.lock().free += bytes;
    }
}

impl Faults for Disk {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn after(&self, event: FileEvent, path: &Path) {
        if let FileEvent::SetLen(len) = event {
            let mut all = self.0.lock();
            let reserve = &mut all.reserves[number_of(path)];
            let freed = *reserve - len;
            *reserve = len;
            all.free += freed;
        }
    }

    fn room(&self, call: Call, path: &Path, from: u64, to: u64) -> u64 {
        assert_eq!(call, Call::Allocate);
        let mut all = self.0.lock();
        let had = all.reserves[number_of(path)];
        let granted = all.free.min(to - had);
        all.free -= granted;
        all.reserves[number_of(path)] = had + granted;
        (had + granted).max(from)
    }
}

/// The reserves of two partitions on a disk with so many bytes.
fn reserves(bytes: u64) -> (TempDir, Arc<Disk>, [Reserve; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk(Mutex::new(DiskBytes {
        free: bytes,
        reserves: [0; 2],
    })));
    let shares = Shares::new(2);
    let reserves = [0, 1].map(|number: u32| {
        let faults: Arc<dyn Faults> = Arc::clone(&disk) as _;
        let root = Dir::at(dir.path().join(number.to_string()), Some(faults));
        root.create().unwrap();
        Reserve::find(&root, number, Arc::clone(&shares)).unwrap()
    });
    (dir, disk, reserves)
}

fn held(reserves: &[Reserve; 2]) -> [u64; 2] {
    [reserves[0].held(), reserves[1].held()]
}

#[test]
fn addition_does_not_take_what_another_partition_gives_back() {
    let (_dir, disk, reserves) = reserves(2 * NEEDED + 4 * KIB);
    let [one, other] = &reserves;
    one.hold(NEEDED, Purpose::Addition).unwrap();
    other.hold(NEEDED, Purpose::Addition).unwrap();
    assert!(other.is_held(NEEDED, Purpose::Addition));
    let given = one.give();
    assert!(given.shrink(NEEDED - 64 * KIB));
    assert!(!other.is_held(NEEDED, Purpose::Addition));
    let refused = other.hold(NEEDED + 4 * KIB, Purpose::Addition);
    assert!(is_full(&refused), "{refused:?}");
    assert_eq!(disk.free(), 68 * KIB);
    // Its log takes a part of that.
    disk.write(16 * KIB);
    drop(given);
    for bytes in [NEEDED, NEEDED + 4 * KIB] {
        let refused = other.hold(bytes, Purpose::Addition);
        assert!(is_full(&refused), "{bytes}: {refused:?}");
    }
    assert_eq!(held(&reserves), [NEEDED - 64 * KIB, NEEDED]);
    // A checkpoint takes the place of the log.
    disk.remove(16 * KIB);
    one.hold(NEEDED, Purpose::Refill).unwrap();
    other.hold(NEEDED + 4 * KIB, Purpose::Addition).unwrap();
    assert_eq!(held(&reserves), [NEEDED, NEEDED + 4 * KIB]);
}

#[test]
fn addition_restores_what_other_partitions_need() {
    let (_dir, _disk, reserves) = reserves(4 * NEEDED);
    let [one, other] = &reserves;
    one.hold(NEEDED, Purpose::Addition).unwrap();
    assert!(one.give().shrink(0));
    assert!(one.is_tight());
    other.hold(NEEDED, Purpose::Addition).unwrap();
    assert_eq!(held(&reserves), [NEEDED; 2]);
    assert!(!one.is_tight());
}

#[test]
fn what_one_partition_holds_in_excess_is_for_another_one() {
    let (_dir, disk, reserves) = reserves(3 << 20);
    let [one, other] = &reserves;
    one.hold(NEEDED, Purpose::Addition).unwrap();
    one.hold(NEEDED + 4 * KIB, Purpose::Addition).unwrap();
    assert_eq!(one.held(), RESERVE_STEP_BYTES);
    disk.write(2 << 20);
    assert_eq!(disk.free(), 0);
    other.hold(NEEDED, Purpose::Deletion).unwrap();
    assert_eq!(held(&reserves), [NEEDED + 4 * KIB, NEEDED]);
    // What it needs is its own.
    let refused = other.hold(1 << 20, Purpose::Deletion);
    assert!(is_full(&refused), "{refused:?}");
    assert!(one.is_held(NEEDED + 4 * KIB, Purpose::Addition));
    // Unless it was said to be more than it needs. To refill it to less does not say so.
    disk.write(disk.free());
    one.hold(NEEDED, Purpose::Refill).unwrap();
    for needed in [NEEDED + 4 * KIB, NEEDED] {
        let more = other.hold(NEEDED + 4 * KIB, Purpose::Deletion);
        assert_eq!(is_full(&more), needed > NEEDED, "{more:?}");
        one.need_at_most(NEEDED);
    }
    assert_eq!(held(&reserves), [NEEDED, NEEDED + 4 * KIB]);
    // Nor does it need what is in use.
    one.need_at_most(NEEDED - 4 * KIB);
    other.hold(NEEDED + 8 * KIB, Purpose::Deletion).unwrap();
    assert_eq!(held(&reserves), [NEEDED - 4 * KIB, NEEDED + 8 * KIB]);
}

#[test]
fn eviction_leaves_additions_what_they_need_and_keeps_what_it_adds() {
    let (_dir, disk, reserves) = reserves(4 * NEEDED);
    let [one, other] = &reserves;
    let files = 64 * KIB;
    // As if a large group was under way.
    one.hold(NEEDED + 8 * KIB, Purpose::Addition).unwrap();
    for (tombstones, needed) in [(4 * KIB, NEEDED + 8 * KIB), (12 * KIB, NEEDED + 12 * KIB)] {
        let purpose = Purpose::Eviction { files };
        one.hold(NEEDED + tombstones + files, purpose).unwrap();
        assert!(one.held() >= needed + files);
        one.release(files);
        disk.write(disk.free());
        let more = other.hold(1 << 20, Purpose::Deletion);
        assert!(is_full(&more), "{more:?}");
        assert_eq!(one.held(), needed, "another partition has cut the rest");
        disk.remove(2 * NEEDED);
    }
}

#[test]
fn refill_waits_for_those_who_give_back_and_takes_no_more_than_is_needed() {
    let (_dir, disk, reserves) = reserves(2 * NEEDED);
    let [one, other] = &reserves;
    one.hold(NEEDED, Purpose::Addition).unwrap();
    other.hold(NEEDED, Purpose::Addition).unwrap();
    assert!(other.give().shrink(NEEDED - 64 * KIB));
    let given = one.give();
    assert!(given.shrink(NEEDED - 64 * KIB));
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            other.hold_most(2 * NEEDED);
            sender.send(()).unwrap();
        });
        let early = receiver.recv_timeout(Duration::from_millis(20));
        early.unwrap_err();
        assert_eq!(other.held(), NEEDED - 64 * KIB);
        drop(given);
        receiver.recv().unwrap();
    });
    assert_eq!(held(&reserves), [NEEDED - 64 * KIB, NEEDED]);
    assert_eq!(disk.free(), 64 * KIB);
}

#[test]
fn deletion_waits_for_those_who_give_back() {
    let (_dir, disk, reserves) = reserves(2 * NEEDED);
    let [one, other] = &reserves;
    one.hold(NEEDED, Purpose::Addition).unwrap();
    other.hold(NEEDED - 4 * KIB, Purpose::Addition).unwrap();
    let given = one.give();
    assert!(given.shrink(NEEDED - 64 * KIB));
    // All that is free, for a moment.
    disk.write(68 * KIB);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || sender.send(other.hold(NEEDED, Purpose::Deletion)).unwrap());
        let early = receiver.recv_timeout(Duration::from_millis(20));
        early.unwrap_err();
        disk.remove(68 * KIB);
        drop(given);
        receiver.recv().unwrap().unwrap();
    });
    assert_eq!(held(&reserves), [NEEDED - 64 * KIB, NEEDED]);
}
