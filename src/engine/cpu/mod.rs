//! The CPU engine: a batch on the caller's thread, a large one on several.
//!
//! A batch behaves as if its operations ran one after another. Reads do whatever order they run
//! in. Changes of one key must keep theirs, so a large batch is split by key, not by position:
//! every thread runs the operations of its keys in the order given.
//!
//! Within a thread, operations go through a [pipeline], so that the memory's latency is paid by
//! many of them at a time.

mod pipeline;

use std::borrow::Cow;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::Write;
use crate::Result;
use crate::pm::{Mapping, Medium};
use crate::pool::parallel;
use crate::pool::partition::Partition;
use crate::pool::prefetch;
use crate::table::idle::IdleWatch;
use crate::table::item::{Found, ItemId, Mutation};
use crate::table::key::{Identity, ProbeKey};
use crate::table::maintenance::{Maintainer, Pace};
use crate::table::ops::insert::Inserted;
use crate::table::probe::Occupied;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::{Check, Content, ValuePart};
use crate::table::{Session, Table};
use crate::width::{product_top, to_usize};
use pipeline::{SessionsOf, Stores, change, lookup, prefetch_record_at};

/// Batches below this length run on the caller's thread alone.
const PARALLEL_BATCH_OPS_MIN: usize = 16 << 10;

/// Operations of a part at least, if a thread gets several.
const PART_OPS_MIN: usize = 4096;

/// Parts that a thread gets at most.
const PARTS_PER_THREAD_MAX: usize = 4;

/// Operations after which a batch lets others reclaim, checkpoint and resize.
const PINNED_OPS_MAX: usize = 2048;

/// Bytes of new records after which it does so, too: what they replace is then soon there for further ones.
const PINNED_BYTES_MAX: u64 = 1 << 20;

/// By how many operations what the caller has passed for one is prefetched before the operation is begun.
const INPUT_DISTANCE_OPS: usize = 16;

/// By how many keys a record is prefetched before it is read, if it is known where it is.
const HINT_DISTANCE_OPS: usize = 8;

/// Words of answers that one thread puts together at a time.
const UNION_BLOCKS: usize = 1024;

/// Runs batches on threads of the CPU. Keys and values are packed bytes of the table's sizes.
pub struct CpuEngine {
    threads: usize,
}

impl CpuEngine {
    /// At most `threads` threads a batch; 0 for one a core.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: match threads {
                0 => parallel::threads(),
                threads => threads,
            },
        }
    }

    /// Starts the maintenance of a table that this engine serves.
    pub(crate) fn maintain(table: &Arc<Table<Mapping>>) -> Maintainer<Mapping> {
        let (mut pace, mut watch) = (Pace::default(), IdleWatch::default());
        Maintainer::start(table, move |table| {
            let rest = table.maintain(&mut pace);
            rest.or_else(|| table.compact_if_idle(&mut watch, || table.compact_paced()))
        })
    }

    /// How many parts operations are executed in. If they are very many, a thread that has other
    /// things to do leaves the last parts to the others.
    fn parts(&self, operations: usize) -> usize {
        match operations {
            0..PARALLEL_BATCH_OPS_MIN => 1,
            _ if parallel::threads() == 1 => 1,
            _ => {
                self.threads
                    * (operations / (self.threads * PART_OPS_MIN)).clamp(1, PARTS_PER_THREAD_MAX)
            }
        }
    }

    /// Copies a part of the values of those keys that are there. `values` holds such parts.
    pub fn get<M: Medium>(
        &self,
        table: &Table<M>,
        wanted: ValuePart,
        keys: &[u8],
        values: &mut [u8],
    ) -> Result<FixedBitSet> {
        let key_size = sizes(table).0;
        let len = keys.len() / key_size;
        let parts = self.parts(len);
        if parts == 1 {
            return get_part(table, wanted, keys, values, 0);
        }
        let part = len.div_ceil(parts);
        let values = values.chunks_mut(part * wanted.len as usize);
        let parts = keys.chunks(part * key_size).zip(values).enumerate();
        let get = |(nth, (keys, values))| get_part(table, wanted, keys, values, nth * part);
        union(len, parallel::map(parts, get))
    }

    /// Says which keys are there.
    pub fn contains<M: Medium>(&self, table: &Table<M>, keys: &[u8]) -> Result<FixedBitSet> {
        let (len, key) = packed(table, keys);
        self.split(
            table,
            len,
            (key, |i| prefetch::lines(key(i))),
            |_| Stores::Nothing,
            |session, target, hint, _| Ok(session.contains(target, hint)),
        )
    }

    /// Executes a batch that changes the table.
    pub fn write<M: Medium>(
        &self,
        table: &Table<M>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        let size = sizes(table).1;
        let content = |i| Content::fixed(nth(values, size, i));
        let (len, key) = packed(table, keys);
        let key_and_value = |i| {
            prefetch::lines(key(i));
            prefetch::lines(nth(values, size, i));
        };
        match verb {
            Write::Insert => self.split(
                table,
                len,
                (key, key_and_value),
                |_| Stores::RecordAndSlot(0),
                |session, target, hint, i| {
                    Ok(session.insert(target, hint, &content(i))? == Inserted::New)
                },
            ),
            Write::Upsert => self.split(
                table,
                len,
                (key, key_and_value),
                |_| Stores::RecordAndSlot(0),
                |session, target, hint, i| session.upsert(target, hint, &content(i)),
            ),
            Write::Update => self.split(
                table,
                len,
                (key, key_and_value),
                |_| Stores::Record(0),
                |session, target, hint, i| session.update(target, hint, &content(i)),
            ),
            Write::Remove => self.split(
                table,
                len,
                (key, |i| prefetch::lines(key(i))),
                |_| Stores::Nothing,
                |session, target, hint, _| session.remove(target, hint),
            ),
        }
    }

    /// Executes puts and removals in a table of variable length. Bit *i* of the answer says that key
    /// *i* was there before.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) before anything is done if a key or a value is too long;
    /// others as those of an index.
    pub fn apply<M: Medium>(&self, table: &Table<M>, changes: &[Mutation]) -> Result<FixedBitSet> {
        changes
            .iter()
            .try_for_each(|change| table.check_lengths(change))?;
        let key = |i: usize| changes[i].key();
        let key_and_value = |i: usize| {
            prefetch::lines(changes[i].key());
            if let Mutation::Put { value, .. } = changes[i] {
                prefetch::lines(value);
            }
        };
        self.split(
            table,
            changes.len(),
            (key, key_and_value),
            |i| changes[i].stores(),
            |session, target, hint, i| match changes[i] {
                Mutation::Put {
                    key,
                    value,
                    sequence,
                } => {
                    let content = Content::variable(key, value, sequence);
                    Ok(!session.upsert(target, hint, &content)?)
                }
                Mutation::Delete { .. } => session.remove(target, hint),
            },
        )
    }

    /// Calls `found` with the position, the sequence number and the value of each of `keys` that is
    /// there, in their order, in a table of variable length.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) when a slot names a record outside the file, or one
    /// whose checksum does not match.
    pub fn get_many<M: Medium>(
        &self,
        table: &Table<M>,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        self.for_members(table, keys, |session, member, i| {
            session.read_variable(member, keys[i], Check::AsTold, |sequence, value| {
                found(i, sequence, value);
            })
        })
    }

    /// As [`get_many`](Self::get_many), of keys whose tables are numbered.
    pub fn get_many_of<'t, 'k, M: Medium + 't>(
        &self,
        table: impl Fn(u8) -> &'t Table<M>,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8],
        mut found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        for (part, numbers) in numbers.chunks(PINNED_OPS_MAX).enumerate() {
            let first = part * PINNED_OPS_MAX;
            let whole = ValuePart::whole(&table(numbers[0]).shape);
            let target = |i: usize| table(numbers[i]).target(key(first + i));
            let mut sessions = SessionsOf::begin(numbers, &table);
            lookup(
                &mut sessions,
                whole,
                numbers.len(),
                target,
                |session, member, i| {
                    let nth = first + i;
                    session.read_variable(member, key(nth), Check::AsTold, |sequence, value| {
                        found(nth, sequence, value);
                    })
                },
            )?;
        }
        Ok(())
    }

    /// As [`get_many`](Self::get_many), in no order. `hints` has for each key the offset of a record which, if its key is
    /// this one, has been this one's since the caller was pinned, or 0: so no bucket is looked at.
    pub fn get_hinted<M: Medium>(
        &self,
        table: &Table<M>,
        keys: &[&[u8]],
        hints: &[u64],
        mut found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        let mut others = Vec::new();
        let mut session = table.read_session();
        let ask = |i: usize| prefetch_record_at(table, hints[i]);
        for i in prefetch::in_turn(0..keys.len(), HINT_DISTANCE_OPS, ask) {
            let found = |sequence, value: Cow<'_, [u8]>| found(i, sequence, value);
            if session.read_hinted(hints[i], keys[i], found)?.is_none() {
                others.push(i);
            }
        }
        session.count((keys.len() - others.len()) as u64);
        drop(session);
        let left: Vec<&[u8]> = others.iter().map(|&i| keys[i]).collect();
        self.get_many(table, &left, |nth, sequence, value| {
            found(others[nth], sequence, value);
        })
    }

    /// As [`get_many`](Self::get_many). Every checksum is compared, and `found` is given the errors.
    pub fn copy_many<M: Medium>(
        &self,
        table: &Table<M>,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, Result<(u64, &[u8])>),
    ) -> Result<()> {
        self.for_members(table, keys, |session, member, i| {
            let read = session.read_variable(member, keys[i], Check::Always, |sequence, value| {
                found(i, Ok((sequence, &value)));
            });
            if let Err(error) = read {
                found(i, Err(error));
            }
            Ok(())
        })
    }

    /// As [`get_many`](Self::get_many), without the values, which are not read.
    pub fn sequences<M: Medium>(
        &self,
        table: &Table<M>,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, u64),
    ) -> Result<()> {
        self.for_members(table, keys, |session, member, i| {
            found(i, session.read_sequence(member)?);
            Ok(())
        })
    }

    /// Calls `each` with the member of each of `keys` that is there, and its position.
    fn for_members<M: Medium>(
        &self,
        table: &Table<M>,
        keys: &[&[u8]],
        mut each: impl FnMut(&mut Session<'_, M>, Occupied, usize) -> Result<()>,
    ) -> Result<()> {
        let mut session = table.read_session();
        for start in (0..keys.len()).step_by(PINNED_OPS_MAX) {
            let part = PINNED_OPS_MAX.min(keys.len() - start);
            let target = |i: usize| table.target(keys[start + i]);
            let whole = ValuePart::whole(&table.shape);
            lookup(&mut session, whole, part, target, |session, member, i| {
                each(session, member, start + i)
            })?;
            session.count(part as u64);
            if start + part < keys.len() {
                session.unpin_briefly();
            }
        }
        Ok(())
    }

    /// Gives `found` one item of each of `ids` that has one, in their order, of tables of variable length, up to
    /// where it wants no more.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) when a slot names a record outside the file, or one whose
    /// key has another fingerprint, or, where the value is read, one whose checksum does not match.
    pub fn find_many<'t, M: Medium + 't>(
        &self,
        table: impl Fn(u8) -> &'t Table<M>,
        ids: &[ItemId],
        found: &mut impl Found,
    ) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut has_ended = false;
        for (part, ids) in ids.chunks(PINNED_OPS_MAX).enumerate() {
            let numbers: Vec<u8> = ids.iter().map(|id| id.table).collect();
            let mut sessions = SessionsOf::begin(&numbers, &table);
            let target = |i: usize| ProbeKey::of_fingerprint(ids[i].fingerprint, Identity::Any);
            lookup(
                &mut sessions,
                ValuePart::whole(&table(ids[0].table).shape),
                ids.len(),
                target,
                |session, member, i| {
                    if has_ended {
                        return Ok(());
                    }
                    let buffers = (&mut key, &mut value);
                    let table = session.table;
                    let wanted = |key: &[u8], value_bytes| {
                        found.wanted(part * PINNED_OPS_MAX + i, key, value_bytes)
                    };
                    match table.read_wanted(member, ids[i].fingerprint, buffers, wanted)? {
                        Some(sequence) => found.take(&key, sequence, &mut value),
                        None => has_ended = true,
                    }
                    Ok(())
                },
            )?;
            if has_ended {
                break;
            }
        }
        Ok(())
    }

    /// One verb on one key of variable length: what [`apply`](Self::apply) has not, too.
    #[cfg(test)]
    pub fn write_one<M: Medium>(
        &self,
        table: &Table<M>,
        verb: Write,
        key: &[u8],
        value: &[u8],
        sequence: u64,
    ) -> Result<bool> {
        let put = Mutation::Put {
            key,
            value,
            sequence,
        };
        let content = Content::variable(key, value, sequence);
        let mut session = table.session();
        let target = table.target(key);
        let hint = ProbeHint::of(table, &target);
        match verb {
            Write::Insert => Ok(session.insert(&target, &hint, &content)? == Inserted::New),
            Write::Update => session.update(&target, &hint, &content),
            Write::Upsert | Write::Remove => {
                drop(session);
                let is_upsert = verb == Write::Upsert;
                let change = if is_upsert {
                    put
                } else {
                    Mutation::Delete { key }
                };
                Ok(self.apply(table, &[change])?.contains(0) != is_upsert)
            }
        }
    }

    /// Runs an operation on `len` keys, on each thread those of its own keys in order. `ask` asks for what
    /// the caller has passed for one: threads that take every some of it do not find it in their caches.
    fn split<'k, 't, M: Medium>(
        &self,
        table: &'t Table<M>,
        len: usize,
        (key, ask): (
            impl Fn(usize) -> &'k [u8] + Copy + Sync,
            impl Fn(usize) + Copy + Sync,
        ),
        stores: impl Fn(usize) -> Stores + Copy + Sync,
        operation: impl Fn(&mut Session<'t, M>, &ProbeKey, &ProbeHint<'t>, usize) -> Result<bool> + Sync,
    ) -> Result<FixedBitSet> {
        let parts = self.parts(len);
        if parts == 1 {
            let all = prefetch::in_turn(0..len, INPUT_DISTANCE_OPS, ask);
            return each(table, key, len, all, stores, operation);
        }
        // The top bits choose buckets, so each thread gets buckets of its own as well.
        let part_of = |i| to_usize(product_top(table.target(key(i)).hash.0, parts as u64));
        let partition = Partition::new(len, parts, part_of);
        let made = parallel::map(0..parts, |part| {
            let mine = prefetch::in_turn(partition.positions(part), INPUT_DISTANCE_OPS, ask);
            each(table, key, len, mine, stores, &operation)
        });
        union(len, made)
    }
}

fn sizes<M>(table: &Table<M>) -> (usize, usize) {
    (
        to_usize(table.shape.key_size),
        to_usize(table.shape.value_size),
    )
}

impl Mutation<'_> {
    /// What the change will store to.
    fn stores(&self) -> Stores {
        match self {
            Mutation::Put { key, value, .. } => {
                Stores::RecordAndSlot(Content::class(key.len(), value.len()))
            }
            Mutation::Delete { .. } => Stores::Nothing,
        }
    }
}

/// How many packed keys there are, and each of them.
fn packed<'k, M>(table: &Table<M>, keys: &'k [u8]) -> (usize, impl Fn(usize) -> &'k [u8] + Copy) {
    let size = sizes(table).0;
    (keys.len() / size, move |i| nth(keys, size, i))
}

/// The answers to `len` operations, of which each part has some.
fn union(len: usize, parts: Vec<Result<FixedBitSet>>) -> Result<FixedBitSet> {
    let parts: Vec<FixedBitSet> = parts.into_iter().collect::<Result<_>>()?;
    let mut answers = FixedBitSet::with_capacity(len);
    let blocks = answers.as_mut_slice().chunks_mut(UNION_BLOCKS);
    parallel::map(blocks.enumerate(), |(nth, blocks)| {
        for part in &parts {
            let of_part = part
                .as_slice()
                .get(nth * UNION_BLOCKS..)
                .unwrap_or_default();
            blocks
                .iter_mut()
                .zip(of_part)
                .for_each(|(block, more)| *block |= more);
        }
    });
    Ok(answers)
}

/// The bytes of element `i` of a packed slice.
#[inline]
fn nth(bytes: &[u8], size: usize, i: usize) -> &[u8] {
    &bytes[i * size..][..size]
}

/// Runs `operation` on the keys at `positions`, in that order.
fn each<'k, 't, M: Medium>(
    table: &'t Table<M>,
    key: impl Fn(usize) -> &'k [u8] + Copy,
    len: usize,
    positions: impl Iterator<Item = usize>,
    stores: impl Fn(usize) -> Stores + Copy,
    operation: impl Fn(&mut Session<'t, M>, &ProbeKey, &ProbeHint<'t>, usize) -> Result<bool>,
) -> Result<FixedBitSet> {
    let mut answers = FixedBitSet::with_capacity(len);
    let mut session = table.session();
    let mut positions = positions.peekable();
    while positions.peek().is_some() {
        let mut done = 0;
        let (mut taken, mut bytes) = (0, 0);
        let part = std::iter::from_fn(|| {
            let is_full = taken >= PINNED_OPS_MAX || bytes >= PINNED_BYTES_MAX;
            let position = if is_full { None } else { positions.next() }?;
            taken += 1;
            bytes += stores(position).record_bytes(&table.shape);
            Some(position)
        });
        change(
            &mut session,
            part,
            key,
            stores,
            |session, target, hint, i| {
                answers.set(i, operation(session, target, hint, i)?);
                done += 1;
                Ok(())
            },
        )?;
        session.count(done);
        if positions.peek().is_some() {
            session.unpin_briefly();
        }
    }
    Ok(answers)
}

/// Looks up packed keys that stand from position `first` on.
fn get_part<M: Medium>(
    table: &Table<M>,
    wanted: ValuePart,
    keys: &[u8],
    values: &mut [u8],
    first: usize,
) -> Result<FixedBitSet> {
    let (key_size, value_size) = (sizes(table).0, wanted.len as usize);
    let len = keys.len() / key_size;
    let mut answers = FixedBitSet::with_capacity(first + len);
    let mut session = table.read_session();
    for start in (0..len).step_by(PINNED_OPS_MAX) {
        let part = PINNED_OPS_MAX.min(len - start);
        let key = |i| nth(keys, key_size, start + i);
        let target = |i| table.target(key(i));
        lookup(&mut session, wanted, part, target, |session, member, i| {
            answers.insert(first + start + i);
            let value = &mut values[(start + i) * value_size..][..value_size];
            session.read(member, key(i), wanted, value)
        })?;
        session.count(part as u64);
        if start + part < len {
            session.unpin_briefly();
        }
    }
    Ok(answers)
}
