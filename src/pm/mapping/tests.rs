//! Tests of mapped files in every domain.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::*;
use crate::layout::{DATA_START, HUGE_PAGE, PAGE, Shape, Superblock, align_up};
use crate::pm::Call;
use crate::width::to_usize;

impl Mapping {
    /// Makes one checkpoint of all stores so far; none runs beside it.
    pub(in crate::pm) fn checkpoint(&self) -> Result<()> {
        self.capture()?;
        self.complete()
    }
}

/// Folders on a file system in memory and on an ordinary one.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn on_disk() -> TempDir {
    let disk = env!("CARGO_MANIFEST_DIR").to_owned() + "/target";
    std::fs::create_dir_all(&disk).unwrap();
    tempfile::tempdir_in(disk).unwrap()
}

fn options(domain: Domain) -> MapOptions {
    MapOptions {
        domain,
        ..MapOptions::default()
    }
}

/// Every domain that can be had here, with a directory for it.
fn domains() -> Vec<(MapOptions, TempDir)> {
    let mut dax = options(Domain::Dax);
    dax.assume_dax = true;
    let mut all = vec![
        (options(Domain::Shared), in_memory()),
        (options(Domain::Checkpointed), in_memory()),
        (options(Domain::Checkpointed), on_disk()),
    ];
    if cfg!(target_arch = "x86_64") {
        all.push((dax, in_memory()));
    }
    all
}

/// Writes a superblock of `file_len` bytes as an index does.
fn superblock(mapping: &Mapping, generation: u64, file_len: u64) {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let mut superblock = Superblock::new(&shape, [7, 9], 3);
    superblock.generation = generation;
    superblock.bottom_level = 0;
    superblock.top_level = 0;
    superblock.level_directory[0] = DATA_START;
    superblock.file_len = file_len;
    superblock.seal();
    let bytes = bytemuck::bytes_of(&superblock);
    mapping.write(superblock.file_offset(), bytes);
    mapping.write_back(superblock.file_offset(), bytes.len() as u64);
    mapping.fence();
}

const LEN: u64 = DATA_START + 4 * PAGE;

#[test]
fn mapping_keeps_stores_across_reopening() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN - 1, &options).unwrap();
        assert_eq!(mapping.domain(), options.domain);
        assert_eq!(mapping.len(), LEN);
        let base = mapping.base();
        superblock(&mapping, 1, LEN);
        mapping.store(DATA_START, 42);
        mapping.write(LEN - 10, b"last bytes");
        mapping.checkpoint().unwrap();

        mapping.grow(LEN + 100 * PAGE).unwrap();
        assert_eq!(mapping.base(), base);
        assert_eq!(mapping.load(LEN + 99 * PAGE), 0);
        mapping.store(LEN + 99 * PAGE, 43);
        assert_eq!(mapping.fetch_or(LEN + 99 * PAGE, 4), 43);
        assert_eq!(mapping.compare_exchange(LEN + 99 * PAGE, 47, 48), Ok(47));
        assert_eq!(mapping.compare_exchange(LEN + 99 * PAGE, 47, 49), Err(48));
        superblock(&mapping, 2, LEN + 100 * PAGE);
        mapping.checkpoint().unwrap();
        drop(mapping);

        let mapping = Mapping::open(&path, &options).unwrap();
        assert_eq!(mapping.len(), LEN + 100 * PAGE);
        assert_eq!(mapping.load(DATA_START), 42);
        assert_eq!(mapping.load(LEN + 99 * PAGE), 48);
        let mut bytes = [0; 10];
        mapping.read(LEN - 10, &mut bytes);
        assert_eq!(&bytes, b"last bytes");
        drop(mapping);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

/// Calls that fail while the test says so.
#[derive(Debug, Default)]
struct Failing {
    calls: HashMap<Call, i32>,
    off: AtomicBool,
}

impl Failing {
    fn at(call: Call, code: i32) -> Arc<Self> {
        Arc::new(Self {
            calls: [(call, code)].into(),
            off: AtomicBool::new(false),
        })
    }

    fn set(&self, on: bool) {
        self.off.store(!on, Ordering::Relaxed);
    }
}

impl Faults for Failing {
    fn before(&self, call: Call, _: &Path) -> io::Result<()> {
        match self.calls.get(&call) {
            Some(&code) if !self.off.load(Ordering::Relaxed) => {
                Err(io::Error::from_raw_os_error(code))
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn domain_auto_is_the_strongest() {
    for (dir, expected) in [
        (in_memory(), Domain::Shared),
        (on_disk(), Domain::Checkpointed),
    ] {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options(Domain::Auto)).unwrap();
        assert_eq!(mapping.domain(), expected);
    }
}

#[test]
fn domain_that_is_unavailable_is_refused_and_leaves_no_file() {
    let mut assumed = options(Domain::Auto);
    assumed.assume_dax = true;
    for (dir, options) in [
        (on_disk(), options(Domain::Shared)),
        (on_disk(), options(Domain::Dax)),
        (on_disk(), assumed),
        (in_memory(), options(Domain::Dax)),
    ] {
        let path = dir.path().join("table");
        let refused = Mapping::create(&path, LEN, &options).unwrap_err();
        assert!(matches!(refused, Error::Domain { .. }), "{refused}");
        assert!(!path.exists());
    }
}

#[test]
fn domain_may_change_from_one_open_to_the_next() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, LEN, &options(Domain::Shared)).unwrap();
    superblock(&mapping, 1, LEN);
    mapping.store(DATA_START, 1);
    drop(mapping);
    let mapping = Mapping::open(&path, &options(Domain::Checkpointed)).unwrap();
    mapping.store(DATA_START, 2);
    mapping.checkpoint().unwrap();
    mapping.store(DATA_START, 3);
    drop(mapping);
    let mapping = Mapping::open(&path, &options(Domain::Auto)).unwrap();
    assert_eq!(mapping.load(DATA_START), 2);
}

#[test]
fn checkpoint_alone_reaches_an_ordinary_file() {
    let dir = on_disk();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, LEN, &options(Domain::Checkpointed)).unwrap();
    superblock(&mapping, 1, LEN);
    mapping.checkpoint().unwrap();
    let before = fs::read(&path).unwrap();
    mapping.store(DATA_START, 7);
    // A store past the mapping's methods counts when it is noted.
    // SAFETY: a word within the file that no one else uses.
    unsafe { mapping.base().add(to_usize(LEN) - 8).cast::<u64>().write(8) };
    assert!(fs::read(&path).unwrap() == before);
    mapping.merge_dirty(0, &[1 << ((LEN - 1) / PAGE)]);
    mapping.checkpoint().unwrap();
    drop(mapping);
    let mapping = Mapping::open(&path, &options(Domain::Checkpointed)).unwrap();
    assert_eq!(mapping.load(DATA_START), 7);
    assert_eq!(mapping.load(LEN - 8), 8);
}

#[test]
fn checkpoint_without_a_superblock_is_refused() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, LEN, &options(Domain::Checkpointed)).unwrap();
    mapping.store(DATA_START, 7);
    let refused = mapping.checkpoint().unwrap_err();
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
    superblock(&mapping, 1, LEN);
    mapping.checkpoint().unwrap();
    drop(mapping);
    let mapping = Mapping::open(&path, &options(Domain::Checkpointed)).unwrap();
    assert_eq!(mapping.load(DATA_START), 7);
}

#[test]
fn full_disk_leaves_the_file_unchanged() {
    for (mut options, dir) in domains() {
        let path = dir.path().join("table");
        let full = Failing::at(Call::Allocate, libc::ENOSPC);
        options.faults = Some(full.clone());
        let refused = Mapping::create(&path, LEN, &options).unwrap_err();
        assert!(matches!(refused, Error::NoSpace { needed: LEN, .. }));
        assert!(!path.exists());

        full.set(false);
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        mapping.store(DATA_START, 1);
        full.set(true);
        let refused = mapping.grow(LEN + 3 * HUGE_PAGE).unwrap_err();
        assert!(
            matches!(refused, Error::NoSpace { needed, .. } if needed == 3 * HUGE_PAGE),
            "{refused}"
        );
        assert_eq!(mapping.len(), LEN);
        assert_eq!(fs::metadata(&path).unwrap().len(), LEN);
        full.set(false);
        mapping.grow(LEN + 3 * HUGE_PAGE).unwrap();
        assert_eq!(mapping.load(LEN + 3 * HUGE_PAGE - 8), 0);
        assert_eq!(mapping.load(DATA_START), 1);
    }
}

#[test]
fn full_disk_under_the_journal_leaves_the_last_checkpoint() {
    let dir = on_disk();
    let path = dir.path().join("table");
    let full = Failing::at(Call::Write, libc::ENOSPC);
    let mut options = options(Domain::Checkpointed);
    options.faults = Some(full.clone());
    let mapping = Mapping::create(&path, LEN, &options).unwrap();
    superblock(&mapping, 1, LEN);
    let refused = mapping.checkpoint().unwrap_err();
    let needed = 72 + 2 * (8 + PAGE) + 8;
    assert!(
        matches!(refused, Error::NoSpace { needed: n, .. } if n == needed),
        "{refused}"
    );
    full.set(false);
    mapping.checkpoint().unwrap();
    drop(mapping);
    Mapping::open(&path, &options).unwrap();
}

#[test]
fn growth_past_the_reserved_addresses_is_refused() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, LEN, &options(Domain::Shared)).unwrap();
    for len in [mapping.reserved() + 1, u64::MAX] {
        let refused = mapping.grow(len).unwrap_err();
        assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    }
    assert_eq!(mapping.len(), LEN);
}

#[test]
fn growth_that_crashed_leaves_no_bytes_behind() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        superblock(&mapping, 1, LEN);
        mapping.checkpoint().unwrap();
        drop(mapping);
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize(bytes.len() + 10_000, 0xAA);
        fs::write(&path, bytes).unwrap();
        let mapping = Mapping::open(&path, &options).unwrap();
        assert_eq!(mapping.len(), LEN);
        mapping.grow(LEN + 4 * PAGE).unwrap();
        for at in (LEN..LEN + 4 * PAGE).step_by(8) {
            assert_eq!(mapping.load(at), 0);
        }
    }
}

/// Counts the calls that make a file longer, and those that map it.
#[derive(Debug, Default)]
struct Counting {
    extending: AtomicU64,
    mapping: AtomicU64,
    syncing: AtomicU64,
}

impl Faults for Counting {
    fn before(&self, call: Call, _: &Path) -> io::Result<()> {
        match call {
            Call::SetLen | Call::Allocate => self.extending.fetch_add(1, Ordering::Relaxed),
            Call::Map => self.mapping.fetch_add(1, Ordering::Relaxed),
            Call::Sync => self.syncing.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    }
}

/// A call that maps waits for all threads of the process that ask for memory.
#[test]
fn file_in_memory_is_mapped_once() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("table");
    let calls = Arc::new(Counting::default());
    let options = MapOptions {
        domain: Domain::Shared,
        faults: Some(calls.clone()),
        ..MapOptions::default()
    };
    let mapping = Mapping::create(&path, LEN, &options).unwrap();
    for huge_pages in 1..5 {
        let len = LEN + huge_pages * HUGE_PAGE;
        mapping.grow(len).unwrap();
        mapping.store(len - 8, huge_pages);
    }
    superblock(&mapping, 1, mapping.len());
    mapping.checkpoint().unwrap();
    mapping.cut(LEN + HUGE_PAGE);
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN + HUGE_PAGE);
    mapping.grow(LEN + 4 * HUGE_PAGE).unwrap();
    let last = |huge_pages| mapping.load(LEN + huge_pages * HUGE_PAGE - 8);
    assert_eq!([1, 2, 4].map(last), [1, 0, 0]);
    assert_eq!(calls.mapping.load(Ordering::Relaxed), 1);
    superblock(&mapping, 1, mapping.len());
    drop(mapping);
    let mapping = Mapping::open(&path, &options).unwrap();
    mapping.grow(LEN + 9 * HUGE_PAGE).unwrap();
    mapping.store(LEN + 9 * HUGE_PAGE - 8, 9);
    assert_eq!(calls.mapping.load(Ordering::Relaxed), 2);
}

#[test]
fn growth_into_preallocated_room_makes_no_call() {
    for (mut options, dir) in domains() {
        let path = dir.path().join("table");
        let calls = Arc::new(Counting::default());
        options.faults = Some(calls.clone());
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        mapping
            .prepare(LEN + 3 * HUGE_PAGE, Priority::Beside)
            .unwrap();
        assert_eq!(mapping.len(), LEN);
        assert!(mapping.prepared() >= LEN + 3 * HUGE_PAGE);
        let before = calls.extending.load(Ordering::Relaxed);
        for len in [LEN + PAGE, LEN + 3 * HUGE_PAGE] {
            mapping.grow(len).unwrap();
            assert_eq!(mapping.len(), len);
        }
        assert_eq!(calls.extending.load(Ordering::Relaxed), before);
        assert!(
            (LEN..mapping.len())
                .step_by(8)
                .all(|at| mapping.load(at) == 0)
        );
    }
}

/// Where a superblock is durable at once, a longer file must be before: not while a batch waits for the growth.
#[test]
fn preallocated_length_is_durable_before_it_is_needed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let calls = Arc::new(Counting::default());
    let mut options = options(Domain::Shared);
    options.faults = Some(calls.clone());
    let mut mapping = Mapping::create(&dir.path().join("table"), LEN, &options).unwrap();
    // All that the file may grow to is mapped already.
    mapping.sharing = Sharing::Synchronous;
    let syncs = || calls.syncing.swap(0, Ordering::Relaxed);
    syncs();
    let len = LEN + 3 * HUGE_PAGE;
    for (len, priority, expected) in [
        (LEN + HUGE_PAGE, Priority::WaitedFor, 0),
        (LEN + 2 * HUGE_PAGE, Priority::Step, 0),
        (len, Priority::Beside, 1),
    ] {
        mapping.prepare(len, priority).unwrap();
        assert_eq!(syncs(), expected, "{priority:?}");
    }
    mapping.grow(len).unwrap();
    assert_eq!(syncs(), 0);
    mapping.grow(len + HUGE_PAGE).unwrap();
    assert_eq!(syncs(), 1);
}

/// Else it would take all that is left until it fails, and the writes of other programs fail with it.
#[test]
fn file_beyond_the_free_space_takes_none_of_it() {
    let dir = on_disk();
    let path = dir.path().join("table");
    // If it is tried, it fails otherwise.
    let tried = Failing::at(Call::Allocate, libc::EIO);
    let mut options = options(Domain::Checkpointed);
    options.faults = Some(tried.clone());
    let disk = rustix::fs::statvfs(dir.path()).unwrap();
    let len = align_up(disk.f_blocks * disk.f_frsize + LEN, HUGE_PAGE);
    options.expected_len = 2 * len;
    let refused = Mapping::create(&path, len, &options).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(!path.exists());
    tried.set(false);
    let mapping = Mapping::create(&path, LEN, &options).unwrap();
    tried.set(true);
    let refused = mapping.grow(len).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    let refused = mapping.check_room(len).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    mapping.check_room(LEN + HUGE_PAGE).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN);
}

#[test]
fn preallocation_in_memory_is_in_huge_pages() {
    for (options, dir) in domains() {
        let mapping = Mapping::create(&dir.path().join("table"), LEN, &options).unwrap();
        for priority in [Priority::Beside, Priority::WaitedFor] {
            let wanted = mapping.prepared() + HUGE_PAGE + PAGE;
            mapping.prepare(wanted, priority).unwrap();
            let prepared = mapping.prepared();
            if mapping.is_gathered() {
                assert_eq!(prepared, align_up(wanted, HUGE_PAGE));
            } else {
                assert_eq!(prepared, align_up(wanted, mapping.file_system.unit));
            }
        }
        assert_eq!(mapping.len(), LEN);
    }
}

#[test]
fn preallocation_that_is_unused_is_returned() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        superblock(&mapping, 1, LEN);
        mapping.store(DATA_START, 1);
        mapping
            .prepare(LEN + 9 * HUGE_PAGE, Priority::Beside)
            .unwrap();
        mapping.grow(LEN + PAGE).unwrap();
        mapping.trim();
        assert_eq!(mapping.prepared(), LEN + PAGE);
        assert_eq!(fs::metadata(&path).unwrap().len(), LEN + PAGE);
        mapping.store(LEN, 2);
        mapping.prepare(LEN + HUGE_PAGE, Priority::Beside).unwrap();
        mapping.grow(LEN + 2 * HUGE_PAGE).unwrap();
        assert_eq!(
            [DATA_START, LEN, LEN + PAGE].map(|at| mapping.load(at)),
            [1, 2, 0]
        );
    }
}

#[test]
fn preallocation_before_a_crash_leaves_no_bytes_behind() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        superblock(&mapping, 1, LEN);
        mapping
            .prepare(LEN + 3 * HUGE_PAGE, Priority::WaitedFor)
            .unwrap();
        mapping.checkpoint().unwrap();
        drop(mapping);
        let len = fs::metadata(&path).unwrap().len();
        assert!(len >= LEN + 3 * HUGE_PAGE);
        let mut bytes = fs::read(&path).unwrap();
        bytes[to_usize(LEN)..].fill(0xAA);
        fs::write(&path, bytes).unwrap();
        let mapping = Mapping::open(&path, &options).unwrap();
        assert_eq!((mapping.len(), mapping.prepared()), (LEN, LEN));
        mapping.prepare(LEN + HUGE_PAGE, Priority::Beside).unwrap();
        mapping.grow(LEN + 2 * HUGE_PAGE).unwrap();
        assert!(
            (LEN..mapping.len())
                .step_by(8)
                .all(|at| mapping.load(at) == 0)
        );
    }
}

/// The next process gives it back when it is asked to, and not before: it may have to refuse the file untouched.
#[test]
fn preallocation_before_a_crash_is_given_back() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        superblock(&mapping, 1, LEN);
        let prepared = LEN + 3 * HUGE_PAGE;
        mapping.prepare(prepared, Priority::WaitedFor).unwrap();
        mapping.checkpoint().unwrap();
        drop(mapping);
        let mapping = Mapping::open(&path, &options).unwrap();
        assert!(fs::metadata(&path).unwrap().len() >= prepared);
        mapping.trim();
        assert_eq!(fs::metadata(&path).unwrap().len(), mapping.prepared());
        assert_eq!(mapping.len(), LEN);
    }
}

#[test]
fn preallocation_without_room_keeps_what_was_prepared() {
    for (mut options, dir) in domains() {
        let path = dir.path().join("table");
        let full = Failing::at(Call::Allocate, libc::ENOSPC);
        options.faults = Some(full.clone());
        full.set(false);
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        mapping.prepare(LEN + HUGE_PAGE, Priority::Beside).unwrap();
        full.set(true);
        let refused = mapping
            .prepare(LEN + 5 * HUGE_PAGE, Priority::WaitedFor)
            .unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        let prepared = mapping.prepared();
        assert!(prepared >= LEN + HUGE_PAGE);
        assert_eq!(fs::metadata(&path).unwrap().len(), prepared);
        mapping.grow(LEN + HUGE_PAGE).unwrap();
        mapping.grow(LEN + 5 * HUGE_PAGE).unwrap_err();
        assert_eq!(mapping.len(), LEN + HUGE_PAGE);
    }
}

#[test]
fn file_is_open_once() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        superblock(&mapping, 1, LEN);
        mapping.checkpoint().unwrap();
        for second in [
            Mapping::open(&path, &options),
            Mapping::open_read_only(&path, &MapOptions::default()),
        ] {
            assert!(matches!(second, Err(Error::InUse { .. })));
        }
        drop(mapping);
        let reader = Mapping::open_read_only(&path, &MapOptions::default()).unwrap();
        let second = Mapping::open(&path, &options);
        assert!(matches!(second, Err(Error::InUse { .. })));
        drop(reader);
        Mapping::open(&path, &options).unwrap();
    }
}

/// How often this process has the file open.
fn times_open(path: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let path = fs::canonicalize(path).unwrap();
    targets.filter(|target| *target == path).count()
}

#[test]
fn opening_that_waited_opens_what_stands_there_then() {
    for (options, dir) in domains() {
        for open in [Mapping::open, Mapping::open_read_only] {
            let [path, other] = ["table", "other"].map(|name| dir.path().join(name));
            for (path, word) in [(&path, 1), (&other, 2)] {
                let mapping = Mapping::create(path, LEN, &options).unwrap();
                superblock(&mapping, 1, LEN);
                mapping.store(DATA_START, word);
                mapping.checkpoint().unwrap();
            }
            let held = fs::File::open(&path).unwrap();
            held.lock().unwrap();
            let opened = std::thread::scope(|scope| {
                let opening = scope.spawn(|| open(&path, &options));
                // It waits for the lock: the file is open twice.
                while times_open(&path) < 2 {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
                fs::rename(&other, &path).unwrap();
                drop(held);
                opening.join().unwrap().unwrap()
            });
            assert_eq!(opened.load(DATA_START), 2, "{options:?}");
            drop(opened);
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn create_refuses_a_path_that_exists() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let create = || Mapping::create(&path, LEN, &options(Domain::Auto));
    fs::create_dir(&path).unwrap();
    assert!(matches!(create(), Err(Error::AlreadyExists { .. })));
    fs::remove_dir(&path).unwrap();
    let journal = dir.path().join("table.journal");
    fs::write(&journal, "").unwrap();
    assert!(matches!(create(), Err(Error::AlreadyExists { path }) if path == journal));
    fs::remove_file(&journal).unwrap();
    create().unwrap();
    assert!(matches!(create(), Err(Error::AlreadyExists { .. })));
}

#[test]
fn file_that_is_no_index_is_refused_and_unchanged() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let options = options(Domain::Auto);
    let open = |path: &Path| {
        let error = Mapping::open(path, &options).unwrap_err();
        let read_only = Mapping::open_read_only(path, &MapOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), read_only.to_string());
        error
    };
    let missing = open(&path);
    assert!(
        matches!(missing, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    );
    let directory = open(dir.path());
    assert!(matches!(
        directory,
        Error::NotAFile {
            found: "directory",
            ..
        }
    ));
    let device = open(Path::new("/dev/null"));
    assert!(matches!(
        device,
        Error::NotAFile {
            found: "character device",
            ..
        }
    ));

    let mapping = Mapping::create(&path, LEN, &options).unwrap();
    superblock(&mapping, 1, LEN);
    drop(mapping);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[to_usize(PAGE) + 100] ^= 1;
    for bytes in [
        b"".as_slice(),
        b"a letter",
        &whole[..to_usize(LEN) - 1],
        &damaged,
    ] {
        fs::write(&path, bytes).unwrap();
        let error = open(&path);
        assert!(
            matches!(
                error,
                Error::Foreign { .. } | Error::Truncated { .. } | Error::Damaged { .. }
            ),
            "{error}"
        );
        assert!(fs::read(&path).unwrap() == bytes);
    }
}

#[test]
fn read_only_file_is_refused_but_can_be_read() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let mut options = options(Domain::Auto);
    let mapping = Mapping::create(&path, LEN, &options).unwrap();
    superblock(&mapping, 1, LEN);
    drop(mapping);
    // Root may write any file, so the operating system's answer is played.
    options.faults = Some(Failing::at(Call::Open, libc::EROFS));
    let refused = Mapping::open(&path, &options).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(
        Mapping::open_read_only(&path, &MapOptions::default())
            .unwrap()
            .len(),
        LEN
    );
}

#[test]
fn growth_runs_beside_accesses_of_threads() {
    for (options, dir) in domains() {
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options).unwrap();
        let steps = 40;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let mapping = &mapping;
                scope.spawn(move || {
                    for step in 1..=steps {
                        let len = LEN + step * 16 * PAGE;
                        mapping.grow(len).unwrap();
                        let at = len - 16 * (thread + 1);
                        assert_eq!(mapping.load(at), 0);
                        mapping.store(at, step);
                        mapping.write_back(at, 8);
                        mapping.fence();
                    }
                });
            }
        });
        assert_eq!(mapping.len(), LEN + steps * 16 * PAGE);
        for step in 1..=steps {
            for thread in 0..2 {
                let at = LEN + step * 16 * PAGE - 16 * (thread + 1);
                assert_eq!(mapping.load(at), step);
            }
        }
    }
}

#[test]
fn access_out_of_bounds_panics() {
    let dir = in_memory();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, LEN, &options(Domain::Auto)).unwrap();
    let accesses: [&dyn Fn(); 6] = [
        &|| assert_eq!(mapping.load(LEN), 0),
        &|| assert_eq!(mapping.load(4), 0),
        &|| mapping.store(u64::MAX - 7, 1),
        &|| mapping.read(LEN - 1, &mut [0; 2]),
        &|| mapping.write(LEN + 1, &[]),
        &|| assert_eq!(mapping.load(LEN - 4), 0),
    ];
    for access in accesses {
        let access = std::panic::AssertUnwindSafe(access);
        assert!(std::panic::catch_unwind(access).is_err());
    }
    assert_eq!(mapping.load(LEN - 8), 0);
}
