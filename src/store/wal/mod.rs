//! The write-ahead log: what was done since the last checkpoint of the index, on a disk that can
//! be asked to keep it.
//!
//! One rule holds at all times: **whatever is durable in the index is durable in the log**, until
//! a checkpoint has replaced the log. So a recovery may replay the whole log, whatever
//! part of it the index has.

pub mod inspect;
pub mod replay;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Result;
use crate::metrics::StallReason;
use crate::metrics::latency::Latency;
use crate::metrics::stalls::StallRecorder;
use crate::pm::Window;
use crate::pool::{self, parallel};
use crate::store::files::dir::{Room, StoreDir};
use crate::store::files::manifest::Manifest;
use crate::store::files::segment::{LEAST_EXTENSION, SEGMENT_HEADER, Segment, extension};
use crate::width::to_usize;
pub use gphash_log_record as record;
use record::{BLOCK, Entry, GroupPart, RECORD_HEADER, RecordHeader, seed};

/// Longest record that is put together in memory, in bytes. A longer one goes to the file block by
/// block, and is synced at once.
pub const IN_MEMORY_RECORD_BYTES_MAX: u64 = 4 << 20;

/// Entries that one thread puts into a record at a time. So many come from threads that share work.
const ENTRIES_PER_THREAD: usize = 512;

/// Which part of a segment is preallocated, at most.
const PREALLOCATED_SHARE: u64 = 16;

/// Threads that write a record of many blocks. A file system lets one of them at a time write to a
/// file, while others put their blocks together.
const RECORD_WRITER_THREADS: usize = 3;

/// The log of an open store. One thread at a time appends to it.
#[derive(Debug)]
pub struct Log {
    store_dir: Arc<StoreDir>,
    /// Bytes after which a segment is left for the next one.
    segment_bytes: u64,
    /// Most bytes that are kept in memory until they are durable.
    unsynced_bytes_max: u64,
    /// Bytes by which a segment that is full is made longer.
    extension: u64,
    tail: Mutex<Tail>,
    /// Held while the segment is synced or left: an error of a sync is told only once, so nobody
    /// else may believe a later one.
    syncing: Mutex<()>,
    /// How long syncs of segments take.
    pub(in crate::store) syncs: Latency,
    /// Changes that wait for another segment, or for a sync that they have not asked for.
    pub(in crate::store) stalls: StallRecorder,
}

/// Where the log goes on.
#[derive(Debug)]
struct Tail {
    /// Nothing has been written since the opening if there is none.
    segment: Option<Arc<Segment>>,
    /// Through which records go into it.
    window: Window,
    /// Where the next record goes.
    end: u64,
    /// Bytes that the file has room for.
    room: u64,
    /// Bytes that are durable.
    durable: u64,
    /// The records from `durable` to `end`.
    unsynced: Vec<u8>,
    /// The first sequence number of the next record.
    next: u64,
    /// The number of the last segment that the manifest may speak of.
    named: u64,
    /// Nothing more may be appended to the segment.
    left: bool,
    /// A sync has failed: the segment cannot be trusted from `durable` on, and is left.
    failed: bool,
    /// The next segment, with the records that are not durable, where they end and the room of the file: the manifest
    /// could not be written. No record comes until it is.
    prepared: Option<(Segment, u64, u64)>,
    /// The first record that is not durable has come since it was asked for.
    has_waited: bool,
    /// Bytes of records in the segments that count.
    bytes: u64,
}

/// The part of a log that a checkpoint takes the place of.
#[derive(Debug)]
pub struct SealedPrefix {
    /// The number of the first segment behind it.
    pub segment: u64,
    /// The last sequence number in it.
    pub sequence: u64,
    /// Bytes of its records.
    bytes: u64,
}

impl Log {
    /// Goes on behind segment `last`, after `bytes` of records, with the sequence number `next`. It
    /// writes nothing: the first record begins a segment.
    pub fn after(
        store_dir: Arc<StoreDir>,
        last: u64,
        next: u64,
        bytes: u64,
        (segment_bytes, unsynced_bytes_max): (u64, u64),
    ) -> Self {
        Self {
            tail: Mutex::new(Tail {
                segment: None,
                window: Window::default(),
                end: SEGMENT_HEADER,
                room: SEGMENT_HEADER,
                durable: SEGMENT_HEADER,
                unsynced: Vec::new(),
                next,
                named: last,
                left: false,
                failed: false,
                prepared: None,
                has_waited: false,
                bytes,
            }),
            extension: extension(store_dir.manifest().partitions),
            store_dir,
            segment_bytes,
            unsynced_bytes_max,
            syncing: Mutex::new(()),
            syncs: Latency::new(),
            stalls: StallRecorder::new(StallReason::Log),
        }
    }

    /// Begins the next segment. The manifest that names it has another change, too.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn begin_segment(&self, change: impl Fn(&mut Manifest)) -> Result<()> {
        let _alone = self.only_sync();
        let mut tail = self.tail();
        self.rotate_with(&mut tail, change)
    }

    /// Whether there is nothing in it, and nothing was since the opening.
    pub fn is_new(&self) -> bool {
        let tail = self.tail();
        tail.segment.is_none() && tail.bytes == 0
    }

    /// The directory of its partition.
    pub fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    /// Whether there are records that are not durable.
    pub fn is_behind(&self) -> bool {
        let tail = self.tail();
        tail.durable < tail.end || tail.left
    }

    /// Whether there have come records that are not durable, where all were before, since the last call.
    pub fn has_waited(&self) -> bool {
        std::mem::take(&mut self.tail().has_waited)
    }

    /// The sequence number that the next record begins with.
    pub fn next_sequence(&self) -> u64 {
        self.tail().next
    }

    /// What [`bytes`](Self::bytes) and [`next_sequence`](Self::next_sequence) say at one moment.
    pub fn length(&self) -> (u64, u64) {
        let tail = self.tail();
        (tail.bytes, tail.next)
    }

    /// Bytes of records that a recovery would have to read.
    pub fn bytes(&self) -> u64 {
        self.tail().bytes
    }

    /// What the manifest says, and the first sequence number that the segments of which it speaks
    /// need not have records of.
    pub fn written(&self) -> (Manifest, u64) {
        let tail = self.tail();
        let next = match tail.failed {
            true => RecordHeader::first_of(&tail.unsynced).unwrap_or(tail.next),
            false => tail.next,
        };
        (self.store_dir.manifest(), next)
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock()
    }

    fn only_sync(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock()
    }

    /// Writes one record with the final values of a group of batches, which had the next `span`
    /// sequence numbers. `durably` says that it must outlive a power cut from now on. `beside` is
    /// done before the record counts, while it is written if that takes long: threads of the pool
    /// in which the caller is write a record longer than [`IN_MEMORY_RECORD_BYTES_MAX`]. On a full
    /// disk, `room` may be given back for it.
    ///
    /// # Errors
    /// That of `beside`, or what the operating system answers. The record is not in the log, unless the
    /// process or the machine stops before the next one is written.
    pub fn append<T: Send>(
        &self,
        span: u64,
        entries: &[Entry],
        durably: bool,
        room: Room,
        beside: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let header = |len, tail: &Tail| RecordHeader::new(len, tail.next, span, tail.durable);
        self.append_record(header, entries, (durably, room), beside)
    }

    /// As [`append`](Self::append), for a part of a group that changes several partitions: a prepare record, or the
    /// commit record.
    ///
    /// # Errors
    /// As there.
    pub fn append_part(
        &self,
        span: u64,
        part: &GroupPart,
        entries: &[Entry],
        durably: bool,
        room: Room,
    ) -> Result<()> {
        let (key, value) = part.to_entry();
        let first = Entry {
            key: &key,
            value: Some(&value),
            position: 0,
        };
        let entries: Vec<Entry> = [&[first], entries].concat();
        let header =
            |len, tail: &Tail| RecordHeader::new(len, tail.next, span, tail.durable).of_part();
        self.append_record(header, &entries, (durably, room), || Ok(()))
    }

    /// Takes the last record back, one of a group, with the sequence number `first`: the group was aborted.
    pub fn abort(&self, first: u64) {
        let _alone = self.only_sync();
        let mut tail = self.tail();
        let mut kept = 0;
        while let Some(header) = RecordHeader::known(&tail.unsynced[kept..])
            && header.first < first
        {
            kept += to_usize(header.stride().expect("as long as what is in memory"));
        }
        tail.unsynced.truncate(kept);
        tail.end = tail.durable + kept as u64;
        tail.next = first;
        // It may have the record.
        tail.prepared = None;
        // The next record begins another segment, from which on those of this number do not count.
        tail.left = true;
    }

    fn append_record<T: Send>(
        &self,
        header: impl FnOnce(u64, &Tail) -> RecordHeader,
        entries: &[Entry],
        (durably, room): (bool, Room),
        beside: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let len = record::len(entries);
        let in_blocks = len > IN_MEMORY_RECORD_BYTES_MAX;
        // What takes long is done beside the writing, or before others have to wait for it.
        let (beside, made) = match in_blocks {
            true => (Some(beside), None),
            false => (None, Some(beside()?)),
        };
        // Dropped after the locks.
        let mut _stall = None;
        let mut alone = (durably || in_blocks).then(|| self.only_sync());
        let mut tail = self.tail();
        let full = tail.end + len > self.segment_bytes && tail.end > SEGMENT_HEADER;
        if tail.left || full || tail.segment.is_none() {
            if alone.is_none() {
                drop(tail);
                alone = Some(self.only_sync());
                tail = self.tail();
            }
            let (rotated, stall) = self.stalls.measure(|| self.rotate(&mut tail));
            _stall = Some(stall);
            rotated?;
        }
        if in_blocks {
            // What is kept in memory is one stretch of the segment.
            drop(tail);
            self.sync_alone()?;
            tail = self.tail();
        }
        let (first, start, kept) = (tail.next, tail.end, tail.unsynced.len());
        let header = header(len, &tail);
        let end = start + header.stride().expect("as long as what is in memory");
        let before = tail.room;
        let made_room = self.store_dir.with_room(room, || {
            let segment = tail.segment();
            segment.make_room(start, end, before, self.extension())
        });
        let written = made_room.and_then(|room| {
            tail.room = room;
            let written = match beside {
                Some(beside) => tail.write_in_blocks(header, entries, beside).map(Some),
                None => tail.write(header, entries).map(|()| made),
            };
            written.inspect_err(|_| {
                tail.unsynced.truncate(kept);
                // A whole record may be there, which the next opening must not find.
                let erased = tail.segment().write(&[0; RECORD_HEADER], start);
                tail.left |= erased.is_err();
            })
        });
        let written = written.inspect_err(|_| {
            if in_blocks {
                // No checkpoint may free it. Nobody else makes the file longer meanwhile.
                tail.segment().cut(before);
                tail.room = before;
            }
        })?;
        let made = written.expect("before or beside it");
        tail.end = end;
        tail.next += header.span();
        tail.bytes += tail.end - start;
        let unsynced = tail.unsynced.len();
        tail.has_waited |= kept == 0;
        drop(tail);
        if durably || in_blocks {
            self.sync_alone().inspect_err(|_| {
                let mut tail = self.tail();
                tail.unsynced.truncate(kept);
                tail.next = first;
            })?;
            return Ok(made);
        }
        drop(alone);
        if unsynced as u64 > self.unsynced_bytes_max
            && let Err(error) = self.stalls.time(|| self.sync())
        {
            // The record stays in memory, and the next one cannot be written before it.
            tracing::warn!(%error, "the log is not durable yet");
        }
        Ok(made)
    }

    /// Makes all records durable.
    ///
    /// # Errors
    /// What the operating system answers. Nothing since the last success is trusted then: the next
    /// call, or the next record, begins another segment with those records in it.
    pub fn sync(&self) -> Result<()> {
        let _alone = self.only_sync();
        self.sync_alone()
    }

    /// As [`sync`](Self::sync). Then the segment gets room for as much as that has made durable, within limits: what comes
    /// until the next time need not wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn sync_and_make_room(&self) -> Result<()> {
        let _alone = self.only_sync();
        let durable = self.tail().durable;
        self.sync_alone()?;
        let (segment, end, room) = {
            let tail = self.tail();
            let Some(segment) = &tail.segment else {
                return Ok(());
            };
            (Arc::clone(segment), tail.end, tail.room)
        };
        if durable == end || self.store_dir.is_tight() {
            return Ok(());
        }
        // A store that rests keeps it.
        let preallocated = end
            .saturating_sub(durable)
            .min(self.segment_bytes / PREALLOCATED_SHARE);
        let wanted = (end + preallocated).min(self.segment_bytes);
        // Whoever appends meanwhile makes the same room, which is there then.
        let made = segment.make_room_beside(room, wanted, self.extension);
        let mut tail = self.tail();
        let is_same = |of: &Arc<Segment>| Arc::ptr_eq(of, &segment);
        if tail.segment.as_ref().is_some_and(is_same) {
            tail.room = tail.room.max(made);
        }
        Ok(())
    }

    /// See [`sync`](Self::sync); the caller holds `syncing`.
    fn sync_alone(&self) -> Result<()> {
        let (segment, end) = {
            let mut tail = self.tail();
            if tail.left {
                return self.rotate(&mut tail);
            }
            if tail.durable == tail.end {
                return Ok(());
            }
            (Arc::clone(tail.segment()), tail.end)
        };
        // Others append meanwhile.
        let synced = self.syncs.time(|| segment.sync());
        let mut tail = self.tail();
        match synced {
            Ok(()) => {
                tail.is_durable(end);
                tail.write_witness();
            }
            Err(_) => (tail.left, tail.failed) = (true, true),
        }
        synced
    }

    /// Leaves the segment for another one, so that all of the log is durable. The caller holds
    /// `syncing`.
    fn rotate(&self, tail: &mut Tail) -> Result<()> {
        self.rotate_with(tail, |_| ())
    }

    /// As [`rotate`](Self::rotate); the manifest has another `change`, too.
    fn rotate_with(&self, tail: &mut Tail, change: impl Fn(&mut Manifest)) -> Result<()> {
        // Even if this fails, a crash may leave the new segment, and a manifest that names it. Of
        // the segment before, only what is before its first record counts then. So from here on nothing may
        // be appended to that one.
        tail.left = true;
        if !tail.failed && tail.durable < tail.end {
            let end = tail.end;
            match self.syncs.time(|| tail.segment().sync()) {
                Ok(()) => tail.is_durable(end),
                Err(error) => {
                    tail.failed = true;
                    return Err(error);
                }
            }
        }
        let prepared = match tail.prepared.take() {
            Some(prepared) => prepared,
            None => self.prepare_segment(tail)?,
        };
        tail.named = prepared.0.number;
        let edited = self.store_dir.edit(|manifest| {
            manifest.last_segment = tail.named;
            change(manifest);
        });
        if let Err(error) = edited {
            tail.prepared = Some(prepared);
            return Err(error);
        }
        let (segment, end, room) = prepared;
        *tail = Tail {
            window: segment.window(self.extension),
            segment: Some(Arc::new(segment)),
            end,
            room,
            durable: end,
            unsynced: std::mem::take(&mut tail.unsynced),
            left: false,
            failed: false,
            prepared: None,
            ..*tail
        };
        tail.unsynced.clear();
        Ok(())
    }

    /// What the file of a segment is made longer by. On a full disk no more than must be: what an attempt at more has
    /// had for a moment, another partition may have given back for itself.
    fn extension(&self) -> u64 {
        match self.store_dir.is_tight() {
            true => LEAST_EXTENSION,
            false => self.extension,
        }
    }

    /// Makes the next segment, with what is not durable. As soon as it has a header, an opening believes these records of
    /// it alone: so it gets that once they are there.
    fn prepare_segment(&self, tail: &Tail) -> Result<(Segment, u64, u64)> {
        let number = tail.named + 1;
        let first = RecordHeader::first_of(&tail.unsynced).unwrap_or(tail.next);
        let store_id = self.store_dir.manifest().store_id;
        let segment = self.store_dir.with_room(Room::ALL, || {
            let spare = self.store_dir.take_spare(number);
            Segment::begin(self.store_dir.log(), number, first, spare)
        })?;
        let mut end = SEGMENT_HEADER;
        let mut room = segment.len()?.max(end);
        if !tail.unsynced.is_empty() {
            let mut records = tail.unsynced.clone();
            record::move_to(&mut records, segment.salt, end);
            let start = end;
            end += records.len() as u64;
            room = self.store_dir.with_room(Room::ALL, || {
                segment.make_room(start, end, room, self.extension())
            })?;
            segment.write(&records, start)?;
            self.syncs.time(|| segment.sync())?;
        }
        self.store_dir
            .with_room(Room::ALL, || segment.write_header(store_id))?;
        Ok((segment, end, room))
    }

    /// Makes all records durable, and leaves them in segments that get no more.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn seal(&self) -> Result<SealedPrefix> {
        let _alone = self.only_sync();
        let mut tail = self.tail();
        let has_older = tail.segment.is_none() && tail.bytes > 0;
        if tail.left || tail.end > SEGMENT_HEADER || has_older {
            self.rotate(&mut tail)?;
        }
        if tail.end > SEGMENT_HEADER {
            // It began with records that could not be synced before.
            self.rotate(&mut tail)?;
        }
        Ok(SealedPrefix {
            segment: match &tail.segment {
                Some(segment) => segment.number,
                None => self.store_dir.manifest().first_segment,
            },
            sequence: tail.next - 1,
            bytes: tail.bytes,
        })
    }

    /// Notes that a checkpoint has taken the place of what was sealed. The log may soon want as much room
    /// again.
    pub fn was_taken(&self, sealed: &SealedPrefix) {
        self.tail().bytes -= sealed.bytes;
        let room = match self.store_dir.is_tight() {
            // Another partition may need it.
            true => 0,
            false => sealed.bytes.next_multiple_of(self.extension),
        };
        self.store_dir.retire_old_segments(room);
    }
}

impl Tail {
    fn is_durable(&mut self, end: u64) {
        let len = to_usize(end - self.durable);
        self.unsynced.drain(..len.min(self.unsynced.len()));
        self.durable = end;
    }

    /// Says behind the last record that all before it is durable, until the next record takes that offset.
    /// Without it, damage to the records of the last sync would pass for a torn tail. It may be missing.
    fn write_witness(&self) {
        let fits = self.end + RECORD_HEADER as u64 <= self.room;
        if self.durable == self.end && fits {
            let seed = self.seed();
            let header = RecordHeader::new(0, self.next, 0, self.durable);
            let header = header.seal(seed, record::checksum(&[], seed));
            let _ = self.segment().write(bytemuck::bytes_of(&header), self.end);
        }
    }

    fn seed(&self) -> u64 {
        seed(self.segment().salt, self.end)
    }

    fn segment(&self) -> &Arc<Segment> {
        let segment = self.segment.as_ref();
        segment.expect("there is one as soon as there is a record")
    }

    fn write(&mut self, header: RecordHeader, entries: &[Entry]) -> Result<()> {
        let start = self.unsynced.len();
        let seed = self.seed();
        let len = RECORD_HEADER + to_usize(header.len);
        let padded = (start + len).next_multiple_of(8);
        self.unsynced.resize(padded, 0);
        let mut rest = &mut self.unsynced[start + RECORD_HEADER..start + len];
        let part = |entries| {
            let len = to_usize(record::len(entries));
            let bytes = rest.split_off_mut(..len).expect("as long as all of them");
            (entries, bytes)
        };
        let put = |(entries, bytes)| Entry::put_all(entries, bytes);
        let parts = entries.chunks(ENTRIES_PER_THREAD).map(part);
        let lens = (entries.len() as u64, ENTRIES_PER_THREAD as u64);
        parallel::map_if_long(lens, parts, put);
        let (head, written) = self.unsynced[start..start + len].split_at_mut(RECORD_HEADER);
        let header = header.seal(seed, record::checksum(written, seed));
        head.copy_from_slice(bytemuck::bytes_of(&header));
        let segment = self.segment.as_ref();
        let segment = segment.expect("there is one as soon as there is a record");
        segment.append(
            &mut self.window,
            &self.unsynced[start..],
            self.end,
            self.room,
        )
    }

    /// Writes the entries first and the header last, without a copy of all of them. Each block has its
    /// own offset, so several threads write them (as in H-Rocks' hierarchical coalesced logging, §3).
    /// The file system lets one write at a time, so there is time for `beside`, without which there is
    /// no record.
    fn write_in_blocks<T: Send>(
        &mut self,
        header: RecordHeader,
        entries: &[Entry],
        beside: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let seed = self.seed();
        let mut len = 0;
        let offsets = entries.iter().map(|entry| {
            let offset = len;
            len += entry.bytes();
            offset
        });
        let offsets: Vec<u64> = offsets.collect();
        let start = self.end + RECORD_HEADER as u64;
        let write = |nth: usize| {
            let from = (nth * BLOCK) as u64;
            let first = offsets.partition_point(|&offset| offset <= from) - 1;
            let most = to_usize((len - from).min(BLOCK as u64));
            let mut block = Vec::with_capacity(most);
            for (entry, offset) in record::prefetched(&entries[first..]).zip(&offsets[first..]) {
                let skipped = to_usize(from.saturating_sub(*offset));
                entry.put(&mut block, skipped, most);
                if block.len() == most {
                    break;
                }
            }
            self.segment().write(&block, start + from)?;
            Ok(xxh3_64_with_seed(&block, seed))
        };
        let blocks = to_usize(len.div_ceil(BLOCK as u64));
        let sums = || parallel::collect(blocks, blocks.div_ceil(RECORD_WRITER_THREADS), write);
        let (sums, made) = pool::join(sums, beside);
        let (sums, made) = (sums.into_iter().collect::<Result<Vec<u64>>>()?, made?);
        let header = header.seal(seed, record::of_blocks(&sums, seed));
        // The padding stays a hole, or what a record that failed or an older segment has left there.
        self.segment()
            .write(bytemuck::bytes_of(&header), self.end)?;
        Ok(made)
    }
}
