//! A group of operations whose memory is asked for together.
//!
//! An operation reads its home bucket, perhaps its other candidate buckets, then the record:
//! misses that depend on each other. A group takes each of these steps for all its operations
//! before the next one, and asks for what the next step will read. So a core has as many misses under
//! way as it can, and their latency is paid once a group.

use std::ops::ControlFlow;

use crate::Result;
use crate::index::lookup::Member;
use crate::index::table::{Session, Table};
use crate::index::target::{Bucket, Target};
use crate::layout::RecordWord;
use crate::pm::Medium;

/// Operations in a group: enough to keep the core's misses under way, few enough that what was
/// asked for is still in the first-level cache when it is used.
pub const GROUP: usize = 32;

/// Bytes of a line of the CPU's cache.
const LINE: u64 = 64;

/// Most lines of a record that are asked for; the processor sees the pattern of longer ones.
const RECORD_LINES: u64 = 8;

/// Up to [`GROUP`] targets with their positions in the batch.
pub struct Group<'k> {
    targets: [Option<(Target<'k>, usize)>; GROUP],
    len: usize,
}

impl<'k> Group<'k> {
    /// An empty group.
    #[inline]
    pub fn new() -> Self {
        Self {
            targets: [const { None }; GROUP],
            len: 0,
        }
    }

    /// Hashes a key for a look-up and asks for its home bucket.
    #[inline]
    pub fn push_read<M: Medium>(&mut self, table: &Table<M>, key: &'k [u8], position: usize) {
        let target = table.target(key);
        let home = table.home(&target, table.directory.levels().top);
        prefetch_bucket(table, home);
        self.push(target, position);
    }

    /// Hashes a key for a change and asks for all of its buckets.
    #[inline]
    pub fn push_write<M: Medium>(&mut self, table: &Table<M>, key: &'k [u8], position: usize) {
        let target = table.target(key);
        prefetch_candidates(table, &target);
        self.push(target, position);
    }

    #[inline]
    fn push(&mut self, target: Target<'k>, position: usize) {
        self.targets[self.len] = Some((target, position));
        self.len += 1;
    }

    /// Operations in the group.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The targets and their positions, in the order they came.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&Target<'k>, usize)> {
        self.targets[..self.len]
            .iter()
            .flatten()
            .map(|(target, position)| (target, *position))
    }

    /// Finds the members of all keys, asks for their records, and calls `found` with each of
    /// them and its key's position.
    #[inline]
    pub fn find<M: Medium>(
        &self,
        session: &mut Session<M>,
        mut found: impl FnMut(&mut Session<M>, Member, usize) -> Result<()>,
    ) -> Result<()> {
        let table = session.table;
        let mut members: [Option<Member>; GROUP] = [None; GROUP];
        for ((target, _), member) in self.iter().zip(&mut members) {
            *member = table.find_at_home(target);
            match member {
                Some(member) => {
                    session.touches += 1;
                    prefetch_record(table, member.record);
                }
                None => prefetch_candidates(table, target),
            }
        }
        for ((target, _), member) in self.iter().zip(&mut members) {
            if member.is_none() {
                *member = table.find(target, &mut session.touches);
                if let Some(member) = member {
                    prefetch_record(table, member.record);
                }
            }
        }
        for ((_, position), member) in self.iter().zip(members) {
            if let Some(member) = member {
                found(session, member, position)?;
            }
        }
        Ok(())
    }
}

/// Asks for the state and record words of a bucket.
#[inline]
fn prefetch_bucket<M: Medium>(table: &Table<M>, bucket: Bucket) {
    table.medium.prefetch(bucket.at);
    let records = u64::from(table.shape.slots) * 8;
    table.medium.prefetch(bucket.at + records);
}

/// Asks for the candidate buckets of the first round.
#[inline]
fn prefetch_candidates<M: Medium>(table: &Table<M>, target: &Target) {
    let levels = table.directory.levels();
    let _ = table.candidates::<()>(target, 0, levels.top, levels.bottom, |bucket| {
        prefetch_bucket(table, bucket);
        ControlFlow::Continue(())
    });
}

#[inline]
fn prefetch_record<M: Medium>(table: &Table<M>, record: RecordWord) {
    if table.record_in_bounds(record) {
        let lines = table.shape.value_size.div_ceil(LINE).min(RECORD_LINES);
        for line in 0..lines {
            table.medium.prefetch(record.offset() + line * LINE);
        }
    }
}
