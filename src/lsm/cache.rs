//! What is kept of files in memory: open handles, and the blocks used most.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crossbeam_queue::SegQueue;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::sst;
use super::sst::{BLOCK_BYTES, Block, BlockHandle, MetaBlocks};
use super::values;
use super::values::ValueFile;
use crate::pm::{Dir, PmFile};
use crate::pool::clock::{Clock, Slot};
use crate::pool::worker::{REST, Worker};
use crate::width::to_usize;
use crate::{Error, Result};

/// Files that are kept open where each is gone through once.
const FILES_OPEN_ONCE: usize = 16;

/// Blocks that are longer in their file, in bytes, are not kept: each has a single value, and would
/// take the place of many.
const CACHED_BLOCK_BYTES_MAX: u64 = 256 << 10;

/// What a block takes beside its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 128;

/// What a file system or a kernel answers that does not know reads that do not wait.
const NOT_KNOWN: [Option<i32>; 4] = [
    Some(libc::EOPNOTSUPP),
    Some(libc::ENOSYS),
    Some(libc::EINVAL),
    Some(libc::EPERM),
];

/// The open files of all caches of the process.
static ALL_HANDLES: Mutex<Vec<Weak<Handles>>> = Mutex::new(Vec::new());

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Entries, in the order of their keys.
    Sorted,
    /// Values of such entries.
    Values,
}

impl FileKind {
    fn name(self, number: u64) -> String {
        match self {
            Self::Sorted => sst::name(number),
            Self::Values => values::name(number),
        }
    }
}

/// Number of a sorted file, and of a block in it.
type BlockAddr = (u64, u32);

#[derive(Debug, Clone, Copy)]
struct Bytes;

impl Weighter<BlockAddr, Arc<Block>> for Bytes {
    fn weight(&self, _: &BlockAddr, block: &Arc<Block>) -> u64 {
        (block.memory() + ENTRY_OVERHEAD_BYTES) as u64
    }
}

/// See the [module](self). All threads share it.
#[derive(Debug)]
pub struct FileCache {
    dir: Dir,
    files: Arc<Handles>,
    /// Closes the files.
    rest: Worker,
    /// Whether reads of the files may wait for a disk; unknown until one is opened.
    are_on_disk: OnceLock<bool>,
    /// Their file system does not know reads that do not wait.
    has_no_try: AtomicBool,
    blocks: Cache<BlockAddr, Arc<Block>, Bytes>,
    /// Filters and indexes, those of other partitions among them.
    meta: Arc<Clock<MetaBlocks>>,
    /// Their bytes in this directory.
    meta_bytes: Arc<AtomicU64>,
    /// How often one was read that was not in memory.
    meta_reads: AtomicU64,
    /// Value files that somebody holds.
    values: Mutex<HashMap<u64, Weak<ValueFile>>>,
    /// Files that nobody holds any longer, with the number of their blocks.
    dropped: SegQueue<(FileKind, u64, usize)>,
    /// Those, and others that will be among them.
    obsolete: AtomicUsize,
}

/// Files that are open. Those of a store that rests are not.
#[derive(Debug)]
struct Handles {
    open: Cache<(FileKind, u64), Arc<PmFile>>,
    /// Some may be.
    are_open: AtomicBool,
    /// One was used since it was looked for last.
    were_used: AtomicBool,
}

impl Handles {
    /// Closes them unless they were used of late; gives when to look again.
    fn close(&self) -> Option<Duration> {
        if self.were_used.swap(false, Ordering::Relaxed) {
            return Some(REST);
        }
        // One that is opened meanwhile has this called again, or is closed already.
        self.are_open.store(false, Ordering::Release);
        self.open.clear();
        None
    }
}

impl FileCache {
    /// One for the files of a directory, which keeps `open_files` of them open, `bytes` bytes of data blocks, and filters
    /// and indexes as `meta` has room.
    pub fn new(dir: Dir, open_files: usize, bytes: u64, meta: Arc<Clock<MetaBlocks>>) -> Self {
        let cache = Self::that_never_rests(dir, open_files, bytes, meta);
        let resting = Arc::clone(&cache.files);
        cache.rest.set_work(move || resting.close());
        cache
    }

    fn that_never_rests(
        dir: Dir,
        open_files: usize,
        bytes: u64,
        meta: Arc<Clock<MetaBlocks>>,
    ) -> Self {
        let blocks = to_usize(bytes) / (BLOCK_BYTES + ENTRY_OVERHEAD_BYTES);
        let files = Arc::new(Handles {
            open: Cache::new(open_files),
            are_open: AtomicBool::new(false),
            were_used: AtomicBool::new(false),
        });
        let mut all = ALL_HANDLES.lock();
        all.retain(|of| of.strong_count() > 0);
        all.push(Arc::downgrade(&files));
        drop(all);
        Self {
            dir,
            files,
            rest: Worker::new("gphash-rest"),
            are_on_disk: OnceLock::new(),
            has_no_try: AtomicBool::new(false),
            blocks: Cache::with_weighter(blocks.max(1), bytes, Bytes),
            meta,
            meta_bytes: Arc::default(),
            meta_reads: AtomicU64::new(0),
            values: Mutex::new(HashMap::new()),
            dropped: SegQueue::new(),
            obsolete: AtomicUsize::new(0),
        }
    }

    /// One for who goes through the files of a directory once. It closes them when it is dropped.
    pub fn without_blocks(dir: Dir) -> Self {
        Self::that_never_rests(dir, FILES_OPEN_ONCE, 0, Arc::new(Clock::new(0)))
    }

    /// The directory of the files.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// File `number`, open for reading.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn file(&self, kind: FileKind, number: u64) -> Result<Arc<PmFile>> {
        // Readers do not take the line from one another.
        if !self.files.were_used.load(Ordering::Relaxed) {
            self.files.were_used.store(true, Ordering::Relaxed);
        }
        let file = with_descriptors(|| self.opened(kind, number))?;
        let are_open = &self.files.are_open;
        if !are_open.load(Ordering::Relaxed) && !are_open.swap(true, Ordering::AcqRel) {
            self.rest.call_if_possible();
        }
        Ok(file)
    }

    fn opened(&self, kind: FileKind, number: u64) -> Result<Arc<PmFile>> {
        self.files.open.get_or_insert_with(&(kind, number), || {
            let file = self.dir.open_file(&kind.name(number), false)?;
            // Tests of faults have all calls made.
            let waits = || !file.is_in_memory() || file.has_faults();
            self.are_on_disk.get_or_init(waits);
            Ok(Arc::new(file))
        })
    }

    /// Whether reads of the files may wait for a disk.
    pub fn are_on_disk(&self) -> bool {
        self.are_on_disk
            .get()
            .is_none_or(|are_on_disk| *are_on_disk)
    }

    /// Value file `number`, which all who refer to it share.
    ///
    /// # Errors
    /// Those of [`ValueFile::open`].
    pub fn value_file(self: &Arc<Self>, store_id: [u64; 2], number: u64) -> Result<Arc<ValueFile>> {
        let mut values = self.values.lock();
        if let Some(open) = values.get(&number).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let opened = Arc::new(ValueFile::open(Arc::clone(self), store_id, number)?);
        values.insert(number, Arc::downgrade(&opened));
        Ok(opened)
    }

    /// Value file `number`, which is being written.
    pub fn new_value_file(self: &Arc<Self>, number: u64) -> Arc<ValueFile> {
        let begun = Arc::new(ValueFile::begun(Arc::clone(self), number));
        self.values.lock().insert(number, Arc::downgrade(&begun));
        begun
    }

    /// A block of a file; `read` reads it if it is not there.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn block(
        &self,
        number: u64,
        handle: BlockHandle,
        read: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let read = || read().map(Arc::new);
        match u32::try_from(handle.nth) {
            Ok(nth) if handle.bytes() <= CACHED_BLOCK_BYTES_MAX => {
                self.blocks.get_or_insert_with(&(number, nth), read)
            }
            _ => read(),
        }
    }

    /// Keeps the filter and the index of a file, which take so many bytes, while there is room.
    pub fn meta_slot(&self, meta: MetaBlocks, bytes: u64) -> Arc<Slot<MetaBlocks>> {
        Slot::new(&self.meta, &self.meta_bytes, meta, bytes)
    }

    /// Counts that a filter and an index were not in memory.
    pub fn note_meta_read(&self) {
        self.meta_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of filters and indexes in memory.
    pub fn meta_bytes(&self) -> u64 {
        self.meta_bytes.load(Ordering::Relaxed)
    }

    /// How often a filter and an index were read again, as they were not in memory.
    pub fn meta_reads(&self) -> u64 {
        self.meta_reads.load(Ordering::Relaxed)
    }

    /// Whether a block is in memory.
    pub fn has_block(&self, number: u64, nth: usize) -> bool {
        u32::try_from(nth).is_ok_and(|nth| self.blocks.contains_key(&(number, nth)))
    }

    /// So many bytes of a file if the operating system has them in memory; else has the disk begin to read them.
    pub fn try_read(&self, file: &PmFile, at: u64, len: usize) -> Option<Vec<u8>> {
        if !self.has_no_try.load(Ordering::Relaxed) {
            let mut bytes = vec![0; len];
            match file.try_read(&mut bytes, at) {
                Ok(true) => return Some(bytes),
                Ok(false) => {}
                Err(error) if NOT_KNOWN.contains(&error.raw_os_error()) => {
                    self.has_no_try.store(true, Ordering::Relaxed);
                }
                // It is met again when the bytes are waited for.
                Err(_) => {}
            }
        }
        file.prefetch(at, len as u64);
        None
    }

    /// Notes that a file is to be removed once nobody holds it.
    pub fn expect(&self) {
        self.obsolete.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that nobody holds that file any longer. A reader may be the one who says so, and need not
    /// wait for the removal.
    pub fn give_up(&self, kind: FileKind, number: u64, blocks: usize) {
        self.dropped.push((kind, number, blocks));
    }

    /// Whether there are files that are to be removed, now or later.
    pub fn has_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Relaxed) > 0
    }

    /// Removes the files that nobody holds any longer.
    pub fn sweep(&self) {
        while let Some((kind, number, blocks)) = self.dropped.pop() {
            self.obsolete.fetch_sub(1, Ordering::Relaxed);
            for nth in (0..u32::MAX).take(blocks) {
                self.blocks.remove(&(number, nth));
            }
            // An open handle would keep its room on the disk.
            self.files.open.remove(&(kind, number));
            if kind == FileKind::Values {
                self.values.lock().remove(&number);
            }
            if let Err(error) = self.dir.remove_file(&kind.name(number)) {
                tracing::warn!(%error, "an obsolete file stays until the next opening");
            }
        }
    }

    /// Bytes of data blocks in memory, and how often a block was there, and was not.
    pub fn stats(&self) -> (u64, u64, u64) {
        let blocks = &self.blocks;
        (blocks.weight(), blocks.hits(), blocks.misses())
    }
}

/// Opens a file, if need be once more after all those that nobody reads were closed.
///
/// # Errors
/// Those of `open`.
pub fn with_descriptors<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    match open() {
        Err(error) if is_without_descriptor(&error) => {
            // Other partitions and stores may have many.
            let all = ALL_HANDLES.lock();
            all.iter()
                .filter_map(Weak::upgrade)
                .for_each(|of| of.open.clear());
            drop(all);
            open()
        }
        opened => opened,
    }
}

/// Whether the process, or the machine, may open no more files.
fn is_without_descriptor(error: &Error) -> bool {
    let Error::Io { source, .. } = error else {
        return false;
    };
    matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.rest.stop();
        self.sweep();
    }
}
