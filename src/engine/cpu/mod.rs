//! The CPU engine: a batch on the caller's thread, a large one on several.
//!
//! A batch behaves as if its operations ran one after another. Reads do whatever order they run
//! in. Changes of one key must keep theirs, so a large batch is split by key, not by position:
//! every thread runs the operations of its keys in the order given.
//!
//! Within a thread, operations run in groups: all of a group are hashed and their buckets asked
//! for before the first is looked at, so that the memory's latency is paid once a group.

mod group;

use bytemuck::Pod;
use fixedbitset::FixedBitSet;
use rayon::prelude::*;

use crate::Result;
use crate::index::insert::Inserted;
use crate::index::table::{Session, Table};
use crate::index::target::Target;
use crate::pm::Medium;
use group::{GROUP, Group};

/// Batches below this length run on the caller's thread alone.
const PARALLEL: usize = 16 << 10;

/// Operations after which a batch lets others reclaim, checkpoint and resize.
const BREATH: usize = 64 * GROUP;

/// Runs batches on threads of the CPU.
pub struct CpuEngine {
    threads: usize,
}

impl CpuEngine {
    /// At most `threads` threads a batch; 0 for one a core.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: match threads {
                0 => rayon::current_num_threads(),
                threads => threads,
            },
        }
    }

    fn parts(&self, operations: usize) -> usize {
        if operations < PARALLEL { 1 } else { self.threads }
    }

    /// Copies the values of those keys that are there.
    pub fn get<M: Medium, K: Pod, V: Pod>(
        &self,
        table: &Table<M>,
        keys: &[K],
        values: &mut [V],
    ) -> Result<FixedBitSet> {
        let len = keys.len();
        let part = len.div_ceil(self.parts(len)).max(1);
        let values: &mut [u8] = bytemuck::cast_slice_mut(values);
        bytemuck::cast_slice::<K, u8>(keys)
            .par_chunks(part * size_of::<K>())
            .zip(values.par_chunks_mut(part * size_of::<V>()))
            .enumerate()
            .map(|(index, (keys, values))| get_part::<M, K, V>(table, keys, values, index * part))
            .reduce(|| Ok(FixedBitSet::new()), union)
            .map(|answers| sized(answers, len))
    }

    /// Says which keys are there.
    pub fn contains<M: Medium, K: Pod>(&self, table: &Table<M>, keys: &[K]) -> Result<FixedBitSet> {
        let len = keys.len();
        let part = len.div_ceil(self.parts(len)).max(1);
        let keys: &[u8] = bytemuck::cast_slice(keys);
        (0..len.div_ceil(part))
            .into_par_iter()
            .map(|index| {
                let positions = index * part..len.min((index + 1) * part);
                let mut answers = FixedBitSet::with_capacity(positions.end);
                each::<M, K>(table, keys, positions, |session, target, i| {
                    answers.set(i, session.contains(target));
                    Ok(())
                })?;
                Ok(answers)
            })
            .reduce(|| Ok(FixedBitSet::new()), union)
            .map(|answers| sized(answers, len))
    }

    /// Stores the values of those keys that are absent.
    pub fn insert<M: Medium, K: Pod, V: Pod>(
        &self,
        table: &Table<M>,
        keys: &[K],
        values: &[V],
    ) -> Result<FixedBitSet> {
        let values: &[u8] = bytemuck::cast_slice(values);
        self.change(table, keys, |session, target, i| {
            Ok(session.insert(target, nth::<V>(values, i))? == Inserted::New)
        })
    }

    /// Stores all values; says which keys were absent.
    pub fn upsert<M: Medium, K: Pod, V: Pod>(
        &self,
        table: &Table<M>,
        keys: &[K],
        values: &[V],
    ) -> Result<FixedBitSet> {
        let values: &[u8] = bytemuck::cast_slice(values);
        self.change(table, keys, |session, target, i| {
            session.upsert(target, nth::<V>(values, i))
        })
    }

    /// Stores the values of those keys that are there.
    pub fn update<M: Medium, K: Pod, V: Pod>(
        &self,
        table: &Table<M>,
        keys: &[K],
        values: &[V],
    ) -> Result<FixedBitSet> {
        let values: &[u8] = bytemuck::cast_slice(values);
        self.change(table, keys, |session, target, i| {
            session.update(target, nth::<V>(values, i))
        })
    }

    /// Removes keys; says which were there.
    pub fn remove<M: Medium, K: Pod>(&self, table: &Table<M>, keys: &[K]) -> Result<FixedBitSet> {
        self.change(table, keys, |session, target, _| session.remove(target))
    }

    fn change<M: Medium, K: Pod>(
        &self,
        table: &Table<M>,
        keys: &[K],
        operation: impl Fn(&mut Session<M>, &Target, usize) -> Result<bool> + Sync,
    ) -> Result<FixedBitSet> {
        let len = keys.len();
        let keys: &[u8] = bytemuck::cast_slice(keys);
        let run = |positions: &mut dyn Iterator<Item = usize>| {
            let mut answers = FixedBitSet::with_capacity(len);
            each::<M, K>(table, keys, positions, |session, target, i| {
                answers.set(i, operation(session, target, i)?);
                Ok(())
            })?;
            Ok(answers)
        };
        let parts = self.parts(len);
        if parts == 1 {
            return run(&mut (0..len));
        }
        let owners: Vec<u16> = keys
            .par_chunks_exact(size_of::<K>())
            .with_min_len(4096)
            .map(|key| {
                // The top bits choose buckets, so each thread gets buckets of its own as well.
                ((u128::from(table.target(key).hash.0) * parts as u128) >> 64) as u16
            })
            .collect();
        (0..parts as u16)
            .into_par_iter()
            .map(|part| {
                let mut mine = (0..len).filter(|&i| owners[i] == part);
                run(&mut mine)
            })
            .reduce(|| Ok(FixedBitSet::new()), union)
            .map(|answers| sized(answers, len))
    }
}

fn union(left: Result<FixedBitSet>, right: Result<FixedBitSet>) -> Result<FixedBitSet> {
    let (mut left, right) = (left?, right?);
    left.union_with(&right);
    Ok(left)
}

fn sized(mut answers: FixedBitSet, len: usize) -> FixedBitSet {
    answers.grow(len);
    answers
}

/// The bytes of element `i` of a slice of `T`.
#[inline]
fn nth<T>(bytes: &[u8], i: usize) -> &[u8] {
    &bytes[i * size_of::<T>()..][..size_of::<T>()]
}

/// Runs `operation` on the keys at `positions`, in that order, group by group.
fn each<M: Medium, K: Pod>(
    table: &Table<M>,
    keys: &[u8],
    mut positions: impl Iterator<Item = usize>,
    mut operation: impl FnMut(&mut Session<M>, &Target, usize) -> Result<()>,
) -> Result<()> {
    let mut session = table.session();
    let mut done = 0;
    loop {
        let mut group = Group::new();
        for i in positions.by_ref().take(GROUP) {
            group.push(table, nth::<K>(keys, i), i);
        }
        for (target, i) in group.iter() {
            operation(&mut session, target, i)?;
        }
        session.count(group.len() as u64);
        if group.len() < GROUP {
            return Ok(());
        }
        done += GROUP;
        if done % BREATH == 0 {
            session.breathe();
        }
    }
}

fn get_part<M: Medium, K: Pod, V: Pod>(
    table: &Table<M>,
    keys: &[u8],
    values: &mut [u8],
    first: usize,
) -> Result<FixedBitSet> {
    let len = keys.len() / size_of::<K>();
    let mut answers = FixedBitSet::with_capacity(first + len);
    each::<M, K>(table, keys, 0..len, |session, target, i| {
        let value = &mut values[i * size_of::<V>()..][..size_of::<V>()];
        if session.get(target, value)? {
            answers.insert(first + i);
        }
        Ok(())
    })?;
    Ok(answers)
}
