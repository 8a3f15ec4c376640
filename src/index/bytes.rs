//! A table of keys and values of variable length in its file, and what the store does with it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::open::map_options;
use super::stats::Stats;
use crate::engine::bytes::BytesEngine;
use crate::engine::cpu::CpuEngine;
#[cfg(feature = "cuda")]
use crate::engine::{Locator, Refreshed};
#[cfg(feature = "cuda")]
use crate::layout::Shape;
use crate::layout::mark::{MARKS, MARKS_LEN};
use crate::layout::size_class::{MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE};
use crate::layout::{DATA_START, Mark};
use crate::options::Options;
use crate::pm::{Entry, Mapping, Medium};
use crate::process::Own;
#[cfg(feature = "cuda")]
use crate::sync::thread_number;
use crate::table::Table;
#[cfg(feature = "cuda")]
use crate::table::alloc::epoch::Pin;
use crate::table::compact::Between;
use crate::table::idle::IdleWatch;
use crate::table::item::{Found, Item, ItemId, Mutation, Wanted};
use crate::table::maintenance::Maintainer;
use crate::table::read_superblock;
use crate::table::record::{Check, Content};
use crate::table::recovery::verify::Verified;
use crate::table::recovery::{Policy, Progress, Recovery};
use crate::table::room::{Bound, Need};
#[cfg(feature = "cuda")]
use crate::table::shrink::Walking;
use crate::{Domain, Error, Result};

/// The numbers of all buckets that there may be.
const ALL_BUCKETS: Range<u64> = 0..u64::MAX;

/// An index of byte strings in one file, on an engine. Keys of 0 to 65,536 bytes, values of 0 to
/// 2^30; every key is legal. All methods take `&self` and may be called from many threads at once.
///
/// Beside its value each key has a sequence number, which is the caller's. Changes are as durable,
/// and as whole after a crash, as those of an [`Index`](super::Index).
pub(crate) struct BytesIndex<E: BytesEngine = CpuEngine> {
    maintainer: Own<Maintainer<Mapping>>,
    engine: Own<E>,
    table: Own<Arc<Table<Mapping>>>,
}

/// An index whose records, until this is dropped, stay where they are.
#[cfg(feature = "cuda")]
pub(crate) struct Held<'i> {
    table: &'i Table<Mapping>,
    _pin: Pin<'i>,
    _walking: Walking<'i>,
}

#[cfg(feature = "cuda")]
impl Held<'_> {
    /// Brings the locator's copies of indexes up to date; see [`Locator::refresh`].
    ///
    /// # Errors
    /// As that.
    pub(crate) fn refresh(held: &[Option<Self>], locator: &mut Locator) -> Result<Refreshed> {
        let table = |held: &Option<Self>| held.as_ref().map(|held| held.table);
        locator.refresh(&held.iter().map(table).collect::<Vec<_>>())
    }
}

impl BytesIndex {
    /// Opens the file at `entry` on the CPU engine if there is one, and recovers it if it was not cleanly closed;
    /// else makes it. The engine that the options name is not asked for.
    ///
    /// # Errors
    /// As [`Index::open`](super::Index::open) and [`Index::create`](super::Index::create).
    pub(crate) fn open_or_create(entry: &Entry, options: &Options) -> Result<(Self, Recovery)> {
        Self::open_or_create_on(CpuEngine::new(options.threads), entry, options)
    }
}

impl<E: BytesEngine> BytesIndex<E> {
    /// As [`open_or_create`](BytesIndex::open_or_create), on this engine.
    pub(crate) fn open_or_create_on(
        engine: E,
        entry: &Entry,
        options: &Options,
    ) -> Result<(Self, Recovery)> {
        let (table, recovery) = match Self::create(entry, options) {
            Err(Error::AlreadyExists { .. }) => Self::open(entry, options),
            made => made,
        }?;
        Ok((Self::with_table(engine, table, options), recovery))
    }

    fn create(entry: &Entry, options: &Options) -> Result<(Table<Mapping>, Recovery)> {
        let shape = options.variable_shape()?;
        let medium = Mapping::create_at(entry, DATA_START, &map_options(options))?;
        let table = Table::create(medium, shape, options.capacity, entry.path())?;
        table.sync()?;
        table.medium.publish()?;
        let recovery = Recovery {
            created: true,
            ..Recovery::default()
        };
        Ok((table, recovery))
    }

    fn open(entry: &Entry, options: &Options) -> Result<(Table<Mapping>, Recovery)> {
        options.variable_shape()?;
        let path = entry.path();
        let medium = Mapping::open_at(entry, &map_options(options))?;
        let superblock = read_superblock(&medium, path)?;
        if !superblock.is_variable() {
            return Err(Error::WrongKind {
                path: path.to_path_buf(),
                found: "keys and values of fixed size",
                expected: "keys and values of variable length",
            });
        }
        let (table, recovery) = Table::open(medium, superblock, path, Policy::INDEX)?;
        tracing::info!(path = %path.display(), ?recovery, "opened");
        Ok((table, recovery))
    }

    fn with_table(engine: E, mut table: Table<Mapping>, options: &Options) -> Self {
        table.verify_records(options.verify_checksums.unwrap_or(true));
        table.compact_after(options.idle_compaction, options.sharers);
        let table = Arc::new(table);
        Self {
            maintainer: Own::new(engine.maintain(&table)),
            engine: Own::new(engine),
            table: Own::new(table),
        }
    }

    /// Gives `read` the sequence number and the value of a key, if it is there. The value is whole.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a slot names a record outside the file, or one whose checksum does not
    /// match.
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(u64, Vec<u8>) -> R,
    ) -> Result<Option<R>> {
        let mut value = Vec::new();
        let sequence = self.engine.get(&self.table, key, &mut value)?;
        Ok(sequence.map(|sequence| read(sequence, value)))
    }

    /// Calls `found` with the position, the sequence number and the value of each of `keys` that is
    /// there, in their order. `found` must not use these records: a checkpoint or a change may wait for this lookup.
    /// `hints` are none, or what a locator has answered for each key while the caller has [held](Self::hold) the index;
    /// then there is no order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn get_many(
        &self,
        keys: &[&[u8]],
        hints: &[u64],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        match hints {
            [] => self.engine.get_many(&self.table, keys, found),
            hints => self.engine.get_hinted(&self.table, keys, hints, found),
        }
    }

    /// As [`get_many`](Self::get_many), of the keys of positions whose `indexes` have these `numbers`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn get_many_of<'i, 'k>(
        indexes: impl Fn(u8) -> &'i Self,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()>
    where
        E: 'i,
    {
        let Some(&first) = numbers.first() else {
            return Ok(());
        };
        let table = |number| &**indexes(number).table;
        indexes(first)
            .engine
            .get_many_of(table, numbers, key, found)
    }

    /// As [`get_many`](Self::get_many). Every checksum is compared, whatever the table was told, and `found` is given the
    /// errors: a damaged item is in nobody's way.
    ///
    /// # Errors
    /// As [`sequences`](Self::sequences).
    pub(crate) fn copy_many(
        &self,
        keys: &[&[u8]],
        found: impl FnMut(usize, Result<(u64, &[u8])>),
    ) -> Result<()> {
        self.engine.copy_many(&self.table, keys, found)
    }

    /// Calls `found` with the position and the sequence number of each of `keys` that is there, in their
    /// order. Their values are not read.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a slot names a record outside the file.
    pub(crate) fn sequences(&self, keys: &[&[u8]], found: impl FnMut(usize, u64)) -> Result<()> {
        self.engine.sequences(&self.table, keys, found)
    }

    /// Executes changes, each whole, those of one key in the order given; several threads do if they
    /// are many. Bit *i* of the answer says that the key of change *i* was there before.
    ///
    /// # Errors
    /// [`Error::Limit`] before anything is done if a key or a value is too long. [`Error::NoSpace`] or
    /// [`Error::Limit`] when the table cannot grow: then some of the changes may have been done.
    pub(crate) fn apply(&self, changes: &[Mutation]) -> Result<FixedBitSet> {
        self.engine.apply(&self.table, changes)
    }

    /// Has changes of buckets noted; see [`Table::watch_slots`].
    #[cfg(feature = "cuda")]
    pub(crate) fn watch(&self) -> bool {
        self.table.watch_slots()
    }

    /// Keeps all records that the index has now, or will have, where they are, or nothing if somebody changes its levels
    /// now. Its changes are [noted](Self::watch). The caller holds one of these at a time, and no batch may wait for another
    /// one meanwhile.
    #[cfg(feature = "cuda")]
    pub(crate) fn hold(&self) -> Option<Held<'_>> {
        let walking = self.table.try_walk_levels()?;
        Some(Held {
            table: &self.table,
            _pin: self.table.pin_reader(thread_number()),
            _walking: walking,
        })
    }

    /// The shape of the tables of all indexes that these options make.
    #[cfg(feature = "cuda")]
    pub(crate) fn shape(&self) -> &Shape {
        &self.table.shape
    }

    /// The fingerprint of a key, by which [`find`](Self::find) finds it.
    pub(crate) fn fingerprint(&self, key: &[u8]) -> u64 {
        self.table.target(key).word
    }

    /// Keys, sequence numbers and, if they are `wanted`, values of the items that have a fingerprint, in no
    /// order: mostly one, or none. Changes that run at the same time are seen or not.
    ///
    /// # Errors
    /// As [`get`](Self::get); where only keys are read, only they are checked.
    pub(crate) fn find(&self, fingerprint: u64, wanted: Wanted) -> Result<Vec<Item>> {
        self.engine.find(&self.table, fingerprint, wanted)
    }

    /// Gives `found` an item of each of `ids` that has one, in their order, of the `indexes` that they number, up to
    /// where it wants no more.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn find_many<'i>(
        indexes: impl Fn(u8) -> &'i Self,
        ids: &[ItemId],
        found: &mut impl Found,
    ) -> Result<()>
    where
        E: 'i,
    {
        let Some(first) = ids.first() else {
            return Ok(());
        };
        let table = |number| &**indexes(number).table;
        let engine = &indexes(first.table).engine;
        engine.find_many(table, ids, found)
    }

    /// Calls `visit` with the key of every item, in no order. What others change meanwhile may be seen
    /// or not; an item that is there all the while is seen, and once unless the table begins to grow
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a key that has not the fingerprint of its slot.
    pub(crate) fn for_each_key(&self, mut visit: impl FnMut(&[u8])) -> Result<()> {
        let table = &self.table;
        let key = RefCell::new(Vec::new());
        let read =
            |member, fingerprint| table.read_member_key(member, fingerprint, &mut key.borrow_mut());
        table.visit_items(
            ALL_BUCKETS,
            |_| true,
            read,
            |read| {
                read?;
                visit(&key.borrow());
                Ok(())
            },
        )
    }

    /// Some keys that can be read, `count` if there are so many.
    pub(crate) fn some_keys(&self, count: usize) -> Vec<Vec<u8>> {
        let table = &self.table;
        let mut keys = Vec::new();
        let read = |member, fingerprint| {
            let mut key = Vec::new();
            let read = table.read_member_key(member, fingerprint, &mut key);
            read.map(|_| key)
        };
        // Ends the walk once there are enough.
        let _ended = table.visit_items(
            ALL_BUCKETS,
            |_| true,
            read,
            |key: Result<Vec<u8>>| {
                keys.extend(key);
                if keys.len() < count { Ok(()) } else { Err(()) }
            },
        );
        keys
    }

    /// Calls `visit` with key, sequence number and value of every item whose fingerprint is `chosen`, or
    /// with what is wrong with its record: every checksum is compared. As
    /// [`for_each_key`](Self::for_each_key) otherwise.
    pub(crate) fn for_each_of(
        &self,
        chosen: impl FnMut(u64) -> bool,
        visit: impl FnMut(Result<(&[u8], u64, &[u8])>),
    ) {
        self.for_each_within(ALL_BUCKETS, chosen, visit);
    }

    /// The numbers of the buckets that there are now, for [`for_each_within`](Self::for_each_within).
    pub(crate) fn bucket_numbers(&self) -> Range<u64> {
        self.table.bucket_numbers()
    }

    /// As [`for_each_of`](Self::for_each_of), in some of the buckets. Those that there are not have no items.
    pub(crate) fn for_each_within(
        &self,
        buckets: Range<u64>,
        chosen: impl FnMut(u64) -> bool,
        mut visit: impl FnMut(Result<(&[u8], u64, &[u8])>),
    ) {
        let table = &self.table;
        let buffers = RefCell::new((Vec::new(), Vec::new()));
        let read = |member, _| {
            let (key, value) = &mut *buffers.borrow_mut();
            table.read_item(member, key, value, Check::Always)
        };
        let visited = table.visit_items(buckets, chosen, read, |sequence| {
            let (key, value) = &*buffers.borrow();
            visit(sequence.map(|sequence| (key.as_slice(), sequence, value.as_slice())));
            Ok::<(), Infallible>(())
        });
        let Ok(()) = visited;
    }

    /// Calls `visit` with key, sequence number and length of the value of each item in some of the buckets whose
    /// fingerprint is `chosen`. Values are not read, so that of an item's checksum nothing is known.
    pub(crate) fn for_each_key_within(
        &self,
        buckets: Range<u64>,
        chosen: impl FnMut(u64) -> bool,
        mut visit: impl FnMut(Result<(&[u8], u64, u64)>),
    ) {
        let table = &self.table;
        let buffers = RefCell::new((Vec::new(), Vec::new()));
        let read = |member, fingerprint| {
            let (key, value) = &mut *buffers.borrow_mut();
            let mut value_bytes = 0;
            let wanted = |_: &[u8], bytes| {
                value_bytes = bytes;
                Wanted::Key
            };
            let read = table.read_wanted(member, fingerprint, (key, value), wanted)?;
            Ok((read.unwrap_or(0), value_bytes))
        };
        let visited = table.visit_items(buckets, chosen, read, |item| {
            let (key, _) = &*buffers.borrow();
            visit(item.map(|(sequence, bytes)| (key.as_slice(), sequence, bytes)));
            Ok::<(), Infallible>(())
        });
        let Ok(()) = visited;
    }

    /// Writes the mark into the file, as durable as a change is. It says which store the file
    /// belongs to, and that all requests up to `sequence` are in it, or up to the one said before.
    /// And it names the `generation` of the store's manifest on which the file relies.
    pub(crate) fn mark(&self, store_id: [u64; 2], sequence: Option<u64>, generation: u64) {
        self.table.write_mark(store_id, sequence, generation);
    }

    /// Begins to count [`record_bytes`](Self::record_bytes). It reads all that says which records are
    /// free. Nothing else may run beside it.
    pub(crate) fn count_bytes(&self) {
        self.table.count_record_bytes();
    }

    /// Bytes of the records that items name, rounded up to their size classes.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.table.record_bytes()
    }

    /// Bytes of memory beyond `bytes` that the file may take: all that is mapped of it does, but for what the file
    /// system has back.
    pub(crate) fn resident_beyond(&self, bytes: u64) -> u64 {
        let beyond = self.table.medium.prepared().saturating_sub(bytes);
        if beyond == 0 {
            return 0;
        }
        let (free, held) = self.table.free_extent_bytes();
        beyond.saturating_sub(free - held)
    }

    /// Bytes of the levels. A table that has grown keeps them.
    pub(crate) fn level_bytes(&self) -> u64 {
        self.table.level_bytes()
    }

    /// Bytes of the record of a key with a value.
    pub(crate) fn record_len(&self, key: usize, value: usize) -> u64 {
        self.table.shape.record_size(Content::class(key, value))
    }

    /// Notes that a key is to get a value of so many bytes.
    pub(crate) fn needs_record(&self, need: &mut Need, key: usize, value: usize, keys: u64) {
        need.add_records(&self.table.shape, Content::class(key, value), keys);
    }

    /// Notes that keys of lengths from `shortest` to `longest` are to get empty values.
    pub(crate) fn needs_tombstones(
        &self,
        need: &mut Need,
        (shortest, longest): (usize, usize),
        keys: u64,
    ) {
        for class in Content::class(shortest, 0)..Content::class(longest, 0) {
            need.add_records(&self.table.shape, class, 0);
        }
        need.add_records(&self.table.shape, Content::class(longest, 0), keys);
    }

    /// Bytes that a [sync](Self::sync) may write to its journal once changes have been made, and bytes by
    /// which the file may have become longer until then: bounds.
    pub(crate) fn room_for(&self, need: &Need) -> (u64, u64) {
        let Bound { growth, pages } = self.table.bound(need);
        let journal = self.table.medium.journal_bytes_with(pages, growth);
        (journal, growth)
    }

    /// Bytes of its file, but for what is preallocated.
    pub(crate) fn file_len(&self) -> u64 {
        self.table.medium.len()
    }

    /// Gives back to the disk what was preallocated for a growth.
    pub(crate) fn trim(&self) {
        self.table.medium.trim();
    }

    /// Items. Batches that run at the same time count when they end.
    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Makes what has returned durable, in the domain `Checkpointed` by one atomic checkpoint.
    ///
    /// # Errors
    /// As [`Index::sync`](super::Index::sync).
    pub(crate) fn sync(&self) -> Result<()> {
        self.table.sync()
    }

    /// See [`Table::compact_if_idle`].
    pub(crate) fn compact_if_idle(
        &self,
        watch: &mut IdleWatch,
        compact: impl FnOnce() -> Result<bool>,
    ) -> Option<std::time::Duration> {
        self.table.compact_if_idle(watch, compact)
    }

    /// See [`Table::until_rest`].
    pub(crate) fn until_rest(&self, watch: &mut IdleWatch) -> Option<Option<std::time::Duration>> {
        self.table.until_rest(watch)
    }

    /// Whether there is a reason to [check](Self::compact_if_idle) that was not known yet.
    pub(crate) fn has_news(&self) -> bool {
        self.table.maintenance.idle.take_news()
    }

    /// See [`Table::paced`].
    pub(crate) fn paced(&self) -> impl Fn(Progress) -> bool + Sync {
        self.table.paced()
    }

    /// Has [paced](Self::paced) compactions end.
    pub(crate) fn end_compaction(&self) {
        self.table.maintenance.idle.end();
    }

    /// Moves records together; see [`Table::compact`].
    pub(crate) fn compact(&self, between: Between<'_>) -> bool {
        self.table.compact(between)
    }

    /// Gives the file system what is free for good.
    pub(crate) fn release_free(&self) {
        self.table.release_free();
    }

    /// Begins a sync: what has returned is in it, and what comes before its
    /// [completion](Self::complete_sync) is not, in the domain `Checkpointed`.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn begin_sync(&self) -> Result<()> {
        self.table.capture()
    }

    /// Makes durable what the last [beginning](Self::begin_sync) has taken; changes may run beside it.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn complete_sync(&self) -> Result<()> {
        self.table.complete()
    }

    /// Checks all that the file says, beside running changes; see [`Table::verify`].
    pub(crate) fn verify(&self, progress: &(dyn Fn(Progress) + Sync)) -> Verified {
        self.table.verify(progress)
    }

    /// Statistics.
    pub(crate) fn stats(&self) -> Stats {
        self.table.stats(self.engine.engine())
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        self.table.path()
    }

    /// The error for an index that contradicts itself.
    pub(crate) fn damaged(&self, found: String) -> Error {
        self.table.damaged("index", 0, found)
    }

    /// Seed of the hash of keys.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn hash_seed(&self) -> u64 {
        self.table.hash_seed
    }

    /// Closes the file cleanly, so that the next open scans nothing. Dropped, it is [abandoned](Self::abandon): nobody
    /// knows then whether the log has what this has.
    ///
    /// # Errors
    /// As [`sync`](Self::sync); the next open recovers the file then.
    pub(crate) fn close(mut self) -> Result<()> {
        self.table.opener().check(self.path())?;
        self.maintainer.stop();
        self.table.close()
    }

    /// Closes a file that was clean and has not changed since. In `Checkpointed` that writes nothing: the
    /// file still says that it is clean.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub(crate) fn close_unchanged(self) -> Result<()> {
        match self.is_copied() {
            true => {
                self.abandon();
                Ok(())
            }
            false => self.close(),
        }
    }

    /// Whether the file is as the last checkpoint has left it, whatever has changed since.
    pub(crate) fn is_copied(&self) -> bool {
        self.table.medium.domain() == Domain::Checkpointed
    }

    /// Lets go of the file as the death of the process would: the next open recovers it.
    pub(crate) fn abandon(self) {}
}

impl<M: Medium> Table<M> {
    fn write_mark(&self, store_id: [u64; 2], sequence: Option<u64>, generation: u64) {
        let _gate = self.store_gate();
        // One at a time.
        let _alone = self.superblock();
        let mut bytes = vec![0; MARKS_LEN];
        self.medium.read(MARKS, &mut bytes);
        let last = Mark::find(&bytes).unwrap_or_default();
        let before = last.map_or(0, |last| last.sequence);
        let mark = Mark::next(last, store_id, sequence.unwrap_or(before), generation);
        self.medium.fence();
        self.persist_later(mark.file_offset(), bytemuck::bytes_of(&mark));
        self.medium.fence();
    }

    /// Says whether key and value of a change are too long.
    pub(crate) fn check_lengths(&self, change: &Mutation) -> Result<()> {
        let (key, value) = match change {
            Mutation::Put { key, value, .. } => (key.len(), value.len()),
            Mutation::Delete { key } => (key.len(), 0),
        };
        for (what, len, limit) in [
            ("the length of a key", key as u64, MAX_VARIABLE_KEY),
            ("the length of a value", value as u64, MAX_VARIABLE_VALUE),
        ] {
            if len > limit {
                return Err(self.limit(what, len, limit));
            }
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "cuda", not(loom)))]
mod locator_tests;
