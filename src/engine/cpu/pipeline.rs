//! Operations on their way through memory, so that its latency is paid by many at a time.
//!
//! An operation reads the tags of its candidate buckets, then the bucket that they name, then the
//! record: misses that depend on each other. While one operation is at its last step, those behind
//! it in the batch are at earlier ones, and each step asks for what the next will read. Steps of
//! different operations alternate, so that a core has a few misses under way all the time: bursts
//! of them wait for each other (measured in `docs/performance.md`).

use std::ops::Range;

use crate::Result;
use crate::layout::bucket::SlotAddr;
use crate::layout::{KeyClass, KeyHash, RecordWord, Shape};
use crate::pm::Medium;
use crate::pool::prefetch;
use crate::table::key::ProbeKey;
use crate::table::probe::{Occupied, ProbeResult};
use crate::table::probe_hint::ProbeHint;
use crate::table::record::ValuePart;
use crate::table::{Session, Table};
use crate::width::{low_byte, to_usize};

/// Lookups under way: those from their first step to before their last. The first three steps are:
/// tags of the home bucket, other tags, bucket. The last two are: record, value.
const LOOKUPS_IN_FLIGHT: usize = 32;

/// How many operations lie between one step of a lookup and the next.
const STEP_DISTANCE_OPS: usize = LOOKUPS_IN_FLIGHT / 4;

/// The same for keys of variable length, which have one step more: a key is compared when the record
/// that holds it has come.
const VARIABLE_STEP_DISTANCE_OPS: usize = LOOKUPS_IN_FLIGHT / 5;

/// By how many operations a change is hashed, and its tags are prefetched, before its execution. Its buckets
/// and records are prefetched at half that distance.
const PREFETCH_DISTANCE_OPS: usize = 16;

/// As [`prefetch::LINE`] and [`prefetch::LINES_MAX`], of offsets in the file.
const LINE: u64 = prefetch::LINE as u64;
const LINES_MAX: u64 = prefetch::LINES_MAX as u64;

/// Bytes of a record of variable length that are asked for before its length is known.
const UNKNOWN_RECORD_BYTES: u64 = 3 * LINE;

/// A change whose memory is prefetched before it is executed.
#[derive(Clone, Copy)]
struct Prefetched<'k, 't> {
    target: ProbeKey<'k>,
    hint: ProbeHint<'t>,
    position: usize,
}

#[derive(Clone, Copy)]
struct Lookup<'k> {
    target: ProbeKey<'k>,
    result: ProbeResult,
}

/// What a change will store to, beside the bucket that its key is in.
#[derive(Clone, Copy)]
pub enum Stores {
    /// Nothing.
    Nothing,
    /// A new record of this class.
    Record(u32),
    /// A new record of this class, and an empty slot if the key is absent.
    RecordAndSlot(u32),
}

impl Stores {
    /// Bytes of the new record.
    #[inline]
    pub fn record_bytes(self, shape: &Shape) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Record(class) | Self::RecordAndSlot(class) => shape.record_size(class),
        }
    }
}

/// By which sessions the targets of a batch are looked up.
pub trait Sessions<'t, M: Medium> {
    /// That of the target at a position.
    fn at(&mut self, position: usize) -> &mut Session<'t, M>;
}

impl<'t, M: Medium> Sessions<'t, M> for Session<'t, M> {
    #[inline(always)]
    fn at(&mut self, _: usize) -> &mut Self {
        self
    }
}

/// Sessions of all tables that the targets of a batch are in.
pub struct SessionsOf<'t, 'n, M: Medium> {
    /// The number of the table of each target.
    numbers: &'n [u8],
    /// In the order of the tables' numbers.
    open: Vec<Session<'t, M>>,
    /// Which of them is that of a table.
    ranks: [u8; TABLES_MAX],
}

const TABLES_MAX: usize = 1 << u8::BITS;

impl<'t, 'n, M: Medium> SessionsOf<'t, 'n, M> {
    /// Begins them in one order, so that no two callers wait for each other, and counts the targets as operations.
    pub fn begin(numbers: &'n [u8], table: impl Fn(u8) -> &'t Table<M>) -> Self {
        let mut counts = [0; TABLES_MAX];
        for &number in numbers {
            counts[usize::from(number)] += 1;
        }
        let (mut ranks, mut open) = ([0; TABLES_MAX], Vec::new());
        for number in (0..=u8::MAX).filter(|&number| counts[usize::from(number)] > 0) {
            ranks[usize::from(number)] = low_byte(open.len() as u64);
            let mut session = table(number).read_session();
            session.count(counts[usize::from(number)]);
            open.push(session);
        }
        Self {
            numbers,
            open,
            ranks,
        }
    }
}

impl<'t, M: Medium> Sessions<'t, M> for SessionsOf<'t, '_, M> {
    #[inline]
    fn at(&mut self, position: usize) -> &mut Session<'t, M> {
        let table = usize::from(self.numbers[position]);
        &mut self.open[usize::from(self.ranks[table])]
    }
}

/// Looks up `len` targets in order, and calls `found` with the position of each that is there. Of values of
/// fixed size it asks for the bytes that are `wanted`. All tables have one key class.
#[inline]
pub fn lookup<'k, 't, M: Medium + 't>(
    sessions: &mut impl Sessions<'t, M>,
    wanted: ValuePart,
    len: usize,
    target: impl Fn(usize) -> ProbeKey<'k>,
    mut found: impl FnMut(&mut Session<'t, M>, Occupied, usize) -> Result<()>,
) -> Result<()> {
    let mut in_flight: [Option<Lookup>; LOOKUPS_IN_FLIGHT] = [None; LOOKUPS_IN_FLIGHT];
    let mut under_way = HashCounts::default();
    let is_variable = sessions.at(0).table.shape.key_class() == KeyClass::Variable;
    let (distance, compared) = match is_variable {
        false => (STEP_DISTANCE_OPS, 3 * STEP_DISTANCE_OPS),
        true => (VARIABLE_STEP_DISTANCE_OPS, 4 * VARIABLE_STEP_DISTANCE_OPS),
    };
    for step in 0..len + LOOKUPS_IN_FLIGHT {
        // From the last step to the first: a lookup that ends is followed by the next in its entry.
        if let Some(position) = step.checked_sub(compared + distance)
            && let Some(lookup) = &in_flight[position % LOOKUPS_IN_FLIGHT]
        {
            if let ProbeResult::Found(member) = lookup.result {
                found(sessions.at(position), member, position)?;
            }
            under_way.remove(lookup.target.hash);
            in_flight[position % LOOKUPS_IN_FLIGHT] = None;
        }
        if let Some(position) = step.checked_sub(compared)
            && let Some(Lookup { target, result }) = &mut in_flight[position % LOOKUPS_IN_FLIGHT]
            && matches!(result, ProbeResult::Candidate(_) | ProbeResult::Unsure)
        {
            let session = sessions.at(position);
            let table = session.table;
            table.find_probed(target, result, &mut session.touches);
            prefetch_probed(table, result, wanted);
            if under_way.has_others(target.hash) {
                let behind = position + 1..position + compared - 2 * distance;
                let word = target.word;
                doubt(&mut in_flight, behind, word);
            }
        }
        if is_variable
            && let Some(position) = step.checked_sub(3 * distance)
            && let Some(lookup) = &in_flight[position % LOOKUPS_IN_FLIGHT]
            && let ProbeResult::Candidate(addr) = lookup.result
        {
            prefetch_record(sessions.at(position).table, addr);
        }
        if let Some(position) = step.checked_sub(2 * distance)
            && let Some(Lookup { target, result }) = &mut in_flight[position % LOOKUPS_IN_FLIGHT]
        {
            let session = sessions.at(position);
            let table = session.table;
            match result {
                ProbeResult::Candidate(addr) if is_variable => prefetch_record(table, *addr),
                ProbeResult::Candidate(_) => {
                    table.probe_slot(target, result, &mut session.touches);
                    prefetch_probed(table, result, wanted);
                }
                _ => {
                    table.probe_tags(target, result);
                    prefetch_probed(table, result, wanted);
                }
            }
        }
        if let Some(position) = step.checked_sub(distance)
            && let Some(Lookup { target, result }) = &mut in_flight[position % LOOKUPS_IN_FLIGHT]
        {
            let table = sessions.at(position).table;
            table.probe_home_tags(target, result);
            match result {
                ProbeResult::Candidate(addr) => prefetch_slot(table, addr),
                _ => prefetch_tags(table, target),
            }
        }
        if step < len {
            let target = target(step);
            sessions.at(step).table.home_tags(&target).prefetch();
            under_way.add(target.hash);
            in_flight[step % LOOKUPS_IN_FLIGHT] = Some(Lookup {
                target,
                result: ProbeResult::Unsure,
            });
        }
    }
    Ok(())
}

/// How many lookups are under way, by some bits of their hashes. Equal keys have equal hashes, and few others share those bits: so
/// hardly any lookup is compared with the others.
struct HashCounts([u8; 1 << HashCounts::BITS]);

const _: () = assert!(LOOKUPS_IN_FLIGHT <= u8::MAX as usize);

impl HashCounts {
    const BITS: u32 = 9;

    fn of(&mut self, hash: KeyHash) -> &mut u8 {
        &mut self.0[to_usize(hash.0 >> (u64::BITS - Self::BITS))]
    }

    fn add(&mut self, hash: KeyHash) {
        *self.of(hash) += 1;
    }

    fn remove(&mut self, hash: KeyHash) {
        *self.of(hash) -= 1;
    }

    /// Whether there are others beside one that is under way.
    fn has_others(&mut self, hash: KeyHash) -> bool {
        *self.of(hash) > 1
    }
}

impl Default for HashCounts {
    fn default() -> Self {
        Self([0; 1 << Self::BITS])
    }
}

/// Repeats lookups of the same state word that have ended before one that is in front of them in
/// the batch. Another thread may have changed the item in between, and equal keys of a batch must
/// not see that in the wrong order.
#[inline(always)]
fn doubt(in_flight: &mut [Option<Lookup>; LOOKUPS_IN_FLIGHT], positions: Range<usize>, word: u64) {
    for position in positions {
        if let Some(Lookup { target, result }) = &mut in_flight[position % LOOKUPS_IN_FLIGHT]
            && target.word == word
            && matches!(result, ProbeResult::Found(_) | ProbeResult::Absent)
        {
            *result = ProbeResult::Unsure;
        }
    }
}

/// Executes the operations at `positions` in order, prefetching what they will read and store to.
#[inline]
pub fn change<'k, 't, M: Medium>(
    session: &mut Session<'t, M>,
    positions: impl Iterator<Item = usize>,
    key: impl Fn(usize) -> &'k [u8],
    stores: impl Fn(usize) -> Stores,
    mut execute: impl FnMut(&mut Session<'t, M>, &ProbeKey, &ProbeHint<'t>, usize) -> Result<()>,
) -> Result<()> {
    let table = session.table;
    let mut prefetched: [Option<Prefetched>; PREFETCH_DISTANCE_OPS] = [None; PREFETCH_DISTANCE_OPS];
    let mut slots = (0..PREFETCH_DISTANCE_OPS).cycle();
    // Those prefetched are gone through once more at the end, to empty them.
    let coming = positions
        .map(Some)
        .chain(std::iter::repeat_n(None, PREFETCH_DISTANCE_OPS));
    for (position, slot) in coming.zip(&mut slots) {
        if let Some(Prefetched {
            target,
            hint,
            position,
        }) = &prefetched[slot]
        {
            execute(session, target, hint, *position)?;
        }
        if table.shape.key_class() == KeyClass::Variable
            && let Some(change) =
                &prefetched[(slot + PREFETCH_DISTANCE_OPS / 4) % PREFETCH_DISTANCE_OPS]
            && let Some(addr) = change.hint.candidate(table)
        {
            prefetch_record(table, addr);
        }
        if let Some(change) =
            &mut prefetched[(slot + PREFETCH_DISTANCE_OPS / 2) % PREFETCH_DISTANCE_OPS]
        {
            change.hint.read_tags(&change.target);
            prefetch_stores(session, &change.hint, stores(change.position));
        }
        match position {
            // In place: a copy would wait until all of it is in the cache.
            Some(position) => {
                let Prefetched { target, hint, .. } = prefetched[slot].insert(Prefetched {
                    target: table.target(key(position)),
                    hint: ProbeHint::nothing(table),
                    position,
                });
                hint.find_buckets(table, target);
            }
            None => prefetched[slot] = None,
        }
    }
    Ok(())
}

/// Asks for the tags of the candidate buckets of the first round, but those of the home bucket.
#[inline(never)]
fn prefetch_tags<M: Medium>(table: &Table<M>, target: &ProbeKey) {
    let levels = table.levels.live();
    for nth in 0..table.shape.locations {
        let location = target.hash.location(nth);
        let from = levels.bottom..levels.top + u32::from(nth > 0);
        for level in from {
            let index = KeyHash::bucket(location, level);
            table.tags.level(level).bucket(index).prefetch();
        }
    }
}

/// Asks for the slot that may hold a key, or what is wanted of the record that does.
#[inline(always)]
fn prefetch_probed<M: Medium>(table: &Table<M>, result: &ProbeResult, wanted: ValuePart) {
    match result {
        ProbeResult::Found(member) => {
            let at = member.record.offset();
            match table.shape.key_class() {
                KeyClass::Word | KeyClass::Wide => {
                    let bytes = wanted.range_in(at);
                    // Lines are asked for one after the other, so from the start of the first one.
                    let line = bytes.start - bytes.start % LINE;
                    prefetch_lines(table, line, 0, bytes.end - line);
                }
                KeyClass::Variable => {
                    prefetch_lines(table, at, UNKNOWN_RECORD_BYTES, table.record_len(at));
                }
            }
        }
        ProbeResult::Candidate(addr) => prefetch_slot(table, addr),
        ProbeResult::Absent | ProbeResult::Unsure => {}
    }
}

/// Asks for the state and record words of a slot, which share a line.
#[inline]
fn prefetch_slot<M: Medium>(table: &Table<M>, addr: &SlotAddr) {
    table.medium.prefetch(addr.state);
}

/// Asks for the record that a slot names.
#[inline]
fn prefetch_record<M: Medium>(table: &Table<M>, addr: SlotAddr) {
    let record = RecordWord(table.medium.load(addr.record));
    if record.is_member() {
        prefetch_record_at(table, record.offset());
    }
}

/// Asks for the record at an offset, which may be 0 for none.
#[inline]
pub fn prefetch_record_at<M: Medium>(table: &Table<M>, record: u64) {
    if record != 0 {
        prefetch_lines(table, record, 0, UNKNOWN_RECORD_BYTES);
    }
}

/// Asks for the slot that has the target's key or will take it, and for the record that comes next.
#[inline]
fn prefetch_stores<M: Medium>(session: &Session<M>, hint: &ProbeHint, stores: Stores) {
    let table = session.table;
    if let Some(addr) = hint.candidate(table) {
        prefetch_slot(table, &addr);
    } else if matches!(stores, Stores::RecordAndSlot(_))
        && let Some(empty_slot) = hint.empty_slot(table)
    {
        prefetch_slot(table, &empty_slot.addr);
    }
    if let Stores::Record(class) | Stores::RecordAndSlot(class) = stores {
        let size = table.shape.record_size(class);
        if let Some(record) = session
            .shard
            .upcoming(class, PREFETCH_DISTANCE_OPS / 2, size)
        {
            prefetch_lines(table, record, 0, size);
        }
    }
}

/// Asks for the first `len` bytes of the record at `at`, less those that have been asked for.
#[inline]
fn prefetch_lines<M: Medium>(table: &Table<M>, at: u64, asked: u64, len: u64) {
    let end = at + len.min(LINES_MAX * LINE);
    let mut line = at + asked;
    while line < end {
        table.medium.prefetch(line);
        line += LINE;
    }
}
