//! Reading the log after a crash.

use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::record;
use super::record::{
    ENTRY_HEADER, Entry, GroupPart, RECORD_HEADER, RecordHeader, SEQUENCE_LIMIT, seed,
};
use crate::pool;
use crate::pool::parallel;
use crate::store::files::dir::{Room, StoreDir};
use crate::store::files::segment;
use crate::store::files::segment::{SEGMENT_HEADER, Segment};
use crate::table::item::Mutation;
use crate::width::to_usize;
use crate::{Error, Result};

/// A segment of a log that is replayed. It is opened when it is read: a process may have fewer files open than a log has
/// segments.
struct ReplaySegment {
    number: u64,
    path: PathBuf,
    /// Bytes of the file.
    len: u64,
    /// How many of its records count.
    count: usize,
    /// Where its last record ends.
    end: u64,
}

/// What a recovery has to replay.
pub struct Replay {
    segments: Vec<ReplaySegment>,
    /// The number of the last segment.
    pub last: u64,
    /// The sequence number after the last one.
    pub next: u64,
    /// Records that count.
    pub records: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// The log ends where it does because what comes then is given up.
    pub is_cut: bool,
    /// Records behind the end are whole, and must be taken out of the way of others.
    pub has_tail: bool,
    /// Parts of groups of several partitions, in the order of the log.
    pub parts: Vec<Part>,
    /// What is in the only segment, where there is one and it was kept.
    kept: Option<Loaded>,
}

/// A part of a group of several partitions.
pub struct Part {
    pub of: GroupPart,
    /// Its first sequence number.
    pub first: u64,
    /// Where it is: in which segment, which record of that, and at which offset.
    segment: usize,
    record: usize,
    at: u64,
    /// Records before it, and their bytes.
    records_before: u64,
    bytes_before: u64,
}

impl Part {
    /// The error for a part in the segment `path`, which nobody has written.
    pub fn damage(&self, path: &Path) -> Error {
        Error::DamagedLog {
            path: path.to_path_buf(),
            at: self.at,
            found: format!("a part of a group that cannot be: {:?}", self.of),
        }
    }
}

impl Replay {
    /// What there is to do where the log is empty.
    pub fn empty() -> Self {
        Self {
            segments: Vec::new(),
            last: 1,
            next: 1,
            records: 0,
            bytes: 0,
            is_cut: false,
            has_tail: false,
            parts: Vec::new(),
            kept: None,
        }
    }

    /// Lets go of what is in memory of the log.
    pub fn forget(&mut self) {
        self.kept = None;
    }

    /// The error for the part `nth`, which nobody has written.
    pub fn damaged_part(&self, nth: usize) -> Error {
        let part = &self.parts[nth];
        part.damage(&self.segments[part.segment].path)
    }

    /// Ends the log before the part `nth`.
    pub fn end_before(&mut self, nth: usize) {
        let Some(part) = self.parts.drain(nth..).next() else {
            return;
        };
        self.has_tail = true;
        self.segments.truncate(part.segment + 1);
        if let Some(last) = self.segments.last_mut() {
            (last.count, last.end) = (part.record, part.at);
        }
        (self.next, self.records, self.bytes) =
            (part.first, part.records_before, part.bytes_before);
    }

    /// Reads the log and changes nothing. Its end may be torn; with `salvage`, so may any part of it:
    /// then the log ends there. A log of one segment stays in memory if it `keeps` that, so that it is read once.
    ///
    /// # Errors
    /// [`Error::DamagedLog`], and those of [`Segment::open`].
    pub fn inspect(store_dir: &StoreDir, salvage: bool, keeps: bool) -> Result<Self> {
        let manifest = store_dir.manifest();
        let mut replay = Self {
            last: segment::last(store_dir.log(), &manifest)?,
            next: manifest.sequence + 1,
            ..Self::empty()
        };
        let numbers = manifest.first_segment..=replay.last;
        let open = |number| Segment::open(store_dir.log(), manifest.store_id, number);
        let mut segments = numbers.map(open).peekable();
        let mut bytes = Vec::new();
        while let Some(segment) = segments.next() {
            let segment = match segment {
                Ok(segment) => segment,
                Err(error) => {
                    forgive(&error, salvage)?;
                    replay.is_cut = true;
                    break;
                }
            };
            let until = match segments.peek() {
                None => Until::TheEnd,
                Some(Ok(next)) => Until::Sequence(next.first),
                Some(Err(_)) => Until::Anywhere,
            };
            let loaded = Loaded::read(&segment, bytes)?;
            let checked = loaded.check(&segment, &mut replay, until);
            replay.segments.push(ReplaySegment {
                number: segment.number,
                path: segment.path().to_path_buf(),
                len: loaded.bytes.len() as u64,
                count: checked.count,
                end: loaded.end as u64,
            });
            if let Some(error) = checked.error {
                forgive(&error, salvage)?;
                replay.is_cut = true;
                break;
            }
            if keeps && manifest.first_segment == replay.last {
                replay.kept = Some(loaded);
                break;
            }
            bytes = loaded.bytes;
        }
        Ok(replay)
    }

    /// Makes the log durable, on which all that is done from now on relies. The process that wrote
    /// its end may have died before it was durable, or after a sync that failed. The next sync may
    /// then succeed without what that one did not write. So the end is written again. Whatever lies
    /// before the last segment that the manifest names was durable before that one was.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`]; the log is as it was.
    pub fn make_durable(&self, store_dir: &StoreDir) -> Result<()> {
        let named = store_dir.manifest().last_segment;
        let is_last = |replayed: &&ReplaySegment| replayed.number >= named;
        let kept = self.kept.as_ref().map(|kept| &kept.bytes[..]);
        self.segments.iter().filter(is_last).try_for_each(
            |&ReplaySegment { number, end, .. }| {
                let rewrite = || Segment::rewrite(store_dir.log(), number, end, kept);
                store_dir.with_room(Room::ALL, rewrite)
            },
        )
    }

    /// Bytes of the files that are read.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|replayed| replayed.len).sum()
    }

    /// Replays the records of a log that is [durable](Self::make_durable), in order. `change` makes
    /// a mutation, or nothing, of each entry and its sequence number. It gets what `begin` has given, which is called
    /// for each segment once those before it are applied. `apply` gets the mutations of some records after the others, in
    /// parts. `progress` gets the bytes read, and all bytes.
    ///
    /// # Errors
    /// What `apply` and the operating system answer.
    pub fn run<S: Sync>(
        &self,
        store_dir: &StoreDir,
        progress: &(dyn Fn(u64, u64) + Sync),
        begin: impl Fn() -> S,
        change: impl for<'e> Fn(&S, Entry<'e>, u64) -> Option<Mutation<'e>> + Sync,
        mut apply: impl FnMut(&[Vec<Mutation>]) -> Result<()> + Send,
    ) -> Result<()> {
        let all = self.len();
        let mut done = 0;
        let store_id = store_dir.manifest().store_id;
        let read = |replayed: &ReplaySegment, bytes| {
            let segment = Segment::open(store_dir.log(), store_id, replayed.number)?;
            Loaded::read(&segment, bytes)
        };
        let first = self.segments.first().filter(|_| self.kept.is_none());
        let mut loaded = first.map(|first| read(first, Vec::new())).transpose()?;
        // Memory that has been used is at hand sooner than any that the system clears first.
        let mut spare = Vec::new();
        for (nth, replayed) in self.segments.iter().enumerate() {
            let Some(this) = self.kept.as_ref().or(loaded.as_ref()) else {
                break;
            };
            let begun = begin();
            let each = |entry, sequence| change(&begun, entry, sequence);
            // Few at a time: they are applied while they are in the cache, and the next ones take their memory.
            let apply_all = || {
                this.slices(replayed.count).try_for_each(|slice| {
                    let changes = this.entries(&replayed.path, slice, each)?;
                    apply(&changes)
                })
            };
            let next = self.segments.get(nth + 1);
            let (applied, next) =
                pool::join(apply_all, || next.map(|next| read(next, spare)).transpose());
            applied?;
            done += this.bytes.len() as u64;
            progress(done, all);
            let used = mem::replace(&mut loaded, next?);
            spare = used.map_or_else(Vec::new, |used| used.bytes);
        }
        Ok(())
    }
}

/// Changes that each thread makes at a time.
pub const CHANGES_PER_THREAD: usize = 8192;

/// Words that one thread looks at for a record.
const WORDS_PER_THREAD_MIN: usize = 64 << 10;

/// Bytes of records that one thread reads at least.
const BYTES_PER_THREAD_MIN: usize = 64 << 10;

/// How many of so many records in so many bytes one thread reads at least.
fn records_per_thread_min(records: usize, bytes: usize) -> usize {
    (records * BYTES_PER_THREAD_MIN / bytes.max(1)).max(1)
}

/// How far the records of a segment must go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Up to this sequence number, with which the next segment begins.
    Sequence(u64),
    /// Nobody knows: the next segment cannot be read.
    Anywhere,
    /// It is the last one.
    TheEnd,
}

/// What was found in a segment.
pub(super) struct Checked {
    /// How many records count.
    pub(super) count: usize,
    /// What is wrong behind them.
    pub(super) error: Option<Error>,
}

/// Lets damage pass if the caller wants what lies before it. A call that was refused is no damage: the
/// next one may succeed, and what was given up for it would be lost. Nor is a format of another build.
fn forgive(error: &Error, salvage: bool) -> Result<()> {
    if !salvage || error.is_no_damage() {
        return Err(error.clone());
    }
    tracing::warn!(%error, "the log is used up to here");
    Ok(())
}

/// A segment in memory, and the records in it whose checksums match.
pub(super) struct Loaded {
    pub(super) bytes: Vec<u8>,
    records: Vec<(usize, RecordHeader)>,
    /// The first offset that holds no valid record.
    end: usize,
}

impl Loaded {
    /// Reads a segment into `bytes`, whatever these were.
    pub(super) fn read(segment: &Segment, mut bytes: Vec<u8>) -> Result<Self> {
        segment.contents(&mut bytes)?;
        let mut records = Vec::new();
        let mut end = to_usize(SEGMENT_HEADER);
        while let Some((header, next)) = record_at(&bytes, segment.salt, end)
            && !header.is_witness()
        {
            records.push((end, header));
            end = next;
        }
        let holds =
            |&(at, ref header): &(usize, RecordHeader)| holds(&bytes, segment.salt, at, header);
        let fails = |nth: usize| !holds(&records[nth]);
        let least = records_per_thread_min(records.len(), end);
        if let Some(nth) = parallel::find_first(records.len(), least, fails) {
            end = records[nth].0;
            records.truncate(nth);
        }
        Ok(Self {
            bytes,
            records,
            end,
        })
    }

    /// How many records count: those that go on from where `replay` has come to.
    pub(super) fn check(&self, segment: &Segment, replay: &mut Replay, until: Until) -> Checked {
        let damaged = |count, at: usize, found: String| Checked {
            count,
            error: Some(Error::DamagedLog {
                path: segment.path().to_path_buf(),
                at: at as u64,
                found,
            }),
        };
        if segment.first > replay.next {
            let found = format!(
                "the segment begins with sequence number {}; expected {}",
                segment.first, replay.next
            );
            return damaged(0, 40, found);
        }
        let mut count = 0;
        for (at, header) in &self.records {
            // The next segment has these again, or they were answered with an error.
            if matches!(until, Until::Sequence(until) if header.first >= until) {
                break;
            }
            let span = header.span();
            let next = header.first.checked_add(span);
            let Some(next) = next
                .filter(|&next| header.first == replay.next && span != 0 && next <= SEQUENCE_LIMIT)
            else {
                let found = format!(
                    "a record of {span} sequence numbers from {} on; expected {}",
                    header.first, replay.next
                );
                return damaged(count, *at, found);
            };
            if header.is_part() {
                let Some(of) = GroupPart::read(self.entries_of(*at, header)) else {
                    let found = "a part of a group that has no number".to_string();
                    return damaged(count, *at, found);
                };
                replay.parts.push(Part {
                    of,
                    first: header.first,
                    segment: replay.segments.len(),
                    record: count,
                    at: *at as u64,
                    records_before: replay.records,
                    bytes_before: replay.bytes,
                });
            }
            replay.next = next;
            replay.records += 1;
            replay.bytes += header.stride().unwrap_or_default();
            count += 1;
        }
        match until {
            Until::Sequence(until) if until != replay.next => {
                let found = format!(
                    "no valid record of sequence number {}; the next segment begins with {until}",
                    replay.next
                );
                damaged(count, self.end, found)
            }
            Until::TheEnd => match self.witness(segment.salt) {
                Some(witness) => {
                    let found = format!(
                        "no valid record, but the one at byte {witness} was written after this \
                         offset was durable"
                    );
                    damaged(count, self.end, found)
                }
                None => Checked { count, error: None },
            },
            Until::Sequence(_) | Until::Anywhere => Checked { count, error: None },
        }
    }

    fn entries_of(&self, at: usize, header: &RecordHeader) -> &[u8] {
        let start = at + RECORD_HEADER;
        &self.bytes[start..start + to_usize(header.len)]
    }

    /// A valid record behind the end of the records that says that what was there was durable.
    fn witness(&self, salt: u64) -> Option<usize> {
        let first = self.end / 8 + 1;
        let at = |nth| (first + nth) * 8;
        let is_witness = |nth| match record_at(&self.bytes, salt, at(nth)) {
            Some((header, _)) => {
                header.durable > self.end as u64 && holds(&self.bytes, salt, at(nth), &header)
            }
            None => false,
        };
        // An older segment may have left much behind the records.
        let words = (self.bytes.len() / 8).saturating_sub(first);
        parallel::find_first(words, WORDS_PER_THREAD_MIN, is_witness).map(at)
    }

    /// The first `count` records, by so many at a time as have changes for all threads.
    fn slices(&self, count: usize) -> impl Iterator<Item = Range<usize>> {
        let most = (CHANGES_PER_THREAD * parallel::threads()) as u64;
        let mut start = 0;
        std::iter::from_fn(move || {
            let (first, mut changes) = (start, 0);
            while start < count && changes < most {
                // One that is not there any more is complained about when it is read.
                let header = self.records.get(start).map(|(_, header)| header);
                changes += header.map_or(1, RecordHeader::span);
                start += 1;
            }
            (first < start).then_some(first..start)
        })
    }

    /// What `each` makes of the entries of these records and of their sequence numbers, in their order, and in parts that
    /// were made side by side.
    pub(super) fn entries<'l, T: Send>(
        &'l self,
        path: &Path,
        those: Range<usize>,
        each: impl Fn(Entry<'l>, u64) -> Option<T> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        let add = |made: &mut Vec<T>, nth: usize| -> Result<()> {
            let (at, header) = self.records[nth];
            let entries = record::entries(self.entries_of(at, &header));
            // The first one of a part is none of the store's.
            for entry in entries.skip(header.is_part().into()) {
                let possible = |entry: &Entry| u64::from(entry.position) < header.span();
                let entry = entry.filter(possible).ok_or_else(|| Error::DamagedLog {
                    path: path.to_path_buf(),
                    at: at as u64,
                    found: "a record with a valid checksum and an entry that cannot be".into(),
                })?;
                made.extend(each(entry, header.first + u64::from(entry.position)));
            }
            Ok(())
        };
        // Counted when the file was read before; a bad sector may say less now.
        if those.end > self.records.len() {
            return Err(Error::DamagedLog {
                path: path.to_path_buf(),
                at: self.end as u64,
                found: "other bytes than a moment ago".into(),
            });
        }
        let of_part = |mut part: Range<usize>| {
            // As many as the records tell, unless they have no room for these.
            let most = |(_, header): &(usize, RecordHeader)| {
                header.span().min(header.len / ENTRY_HEADER as u64)
            };
            let most = self.records[part.clone()].iter().map(most).sum();
            let mut made = Vec::with_capacity(to_usize(most));
            part.try_for_each(|nth| add(&mut made, nth))?;
            Ok(made)
        };
        let least = records_per_thread_min(self.records.len(), self.end);
        let parts = parallel::parts(those.len(), least);
        let parts = parts.map(|part| those.start + part.start..those.start + part.end);
        parallel::map(parts, of_part).into_iter().collect()
    }
}

/// The header at `at`, if it is one, and where the next record would be.
fn record_at(bytes: &[u8], salt: u64, at: usize) -> Option<(RecordHeader, usize)> {
    let tail = bytes.get(at..)?;
    if tail.get(..8)? == [0; 8] {
        return None;
    }
    let header = RecordHeader::read(tail, seed(salt, at as u64))?;
    let stride = usize::try_from(header.stride()?).ok()?;
    let end = at
        .checked_add(RECORD_HEADER)?
        .checked_add(usize::try_from(header.len).ok()?)?;
    (end <= bytes.len()).then_some((header, at.checked_add(stride)?))
}

fn holds(bytes: &[u8], salt: u64, at: usize, header: &RecordHeader) -> bool {
    let start = at + RECORD_HEADER;
    let entries = &bytes[start..start + to_usize(header.len)];
    header.holds(entries, seed(salt, at as u64))
}
