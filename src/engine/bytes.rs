//! What an engine does for a table of byte strings.

use std::borrow::Cow;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::cpu::CpuEngine;
use crate::pm::Mapping;
use crate::table::Table;
use crate::table::item::{Found, Item, ItemId, Mutation, Wanted};
use crate::table::maintenance::{Maintainer, Pace};
use crate::{Engine, Result};

/// An engine for tables of variable length. Calls on several threads may run at the same time.
///
/// # Errors
/// Lookups give [`Error::Damaged`](crate::Error::Damaged) when a slot names a record outside the file, or, where
/// they read the value, one whose checksum does not match.
pub(crate) trait BytesEngine {
    /// Which engine this is.
    fn engine(&self) -> Engine;

    /// Starts the maintenance of `table`.
    fn maintain(&self, table: &Arc<Table<Mapping>>) -> Maintainer<Mapping>;

    /// Puts the value of `key` into `value` and gives its sequence number, if the key is there.
    fn get(&self, table: &Table<Mapping>, key: &[u8], value: &mut Vec<u8>) -> Result<Option<u64>>;

    /// Calls `found` with the position, the sequence number and the value of each of `keys` that is there, in
    /// their order.
    fn get_many(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()>;

    /// As [`get_many`](Self::get_many), of the keys of positions whose tables have these `numbers`.
    fn get_many_of<'t, 'k>(
        &self,
        table: impl Fn(u8) -> &'t Table<Mapping>,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()>;

    /// As [`get_many`](Self::get_many), in no order. `hints` has for each key the offset of a record which, if its key is
    /// this one, has been this one's in the table since the caller was pinned, or 0.
    fn get_hinted(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        hints: &[u64],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()>;

    /// As [`get_many`](Self::get_many). Every checksum is compared, and `found` is given the errors.
    fn copy_many(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        found: impl FnMut(usize, Result<(u64, &[u8])>),
    ) -> Result<()>;

    /// As [`get_many`](Self::get_many), without the values, which are not read.
    fn sequences(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        found: impl FnMut(usize, u64),
    ) -> Result<()>;

    /// Gives every item of a fingerprint, in no order, with what is `wanted` of them.
    fn find(&self, table: &Table<Mapping>, fingerprint: u64, wanted: Wanted) -> Result<Vec<Item>>;

    /// Gives `found` one item of each of `ids` that has one, in their order, up to where it wants no more. The tables
    /// are numbered.
    fn find_many<'t>(
        &self,
        table: impl Fn(u8) -> &'t Table<Mapping>,
        ids: &[ItemId],
        found: &mut impl Found,
    ) -> Result<()>;

    /// Executes changes, each whole, those of one key in the order given. Bit *i* of the result says that the key
    /// of change *i* was there before.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) before anything is done if a key or a value is too long.
    /// [`Error::NoSpace`](crate::Error::NoSpace) or [`Error::Limit`](crate::Error::Limit) when the table cannot
    /// grow: then some of the changes may have been done.
    fn apply(&self, table: &Table<Mapping>, changes: &[Mutation]) -> Result<FixedBitSet>;
}

impl BytesEngine for CpuEngine {
    fn engine(&self) -> Engine {
        Engine::Cpu
    }

    fn maintain(&self, table: &Arc<Table<Mapping>>) -> Maintainer<Mapping> {
        // Its store compacts it, with a checkpoint of its own.
        let mut pace = Pace::default();
        Maintainer::start(table, move |table| table.maintain(&mut pace))
    }

    fn get(&self, table: &Table<Mapping>, key: &[u8], value: &mut Vec<u8>) -> Result<Option<u64>> {
        table.read_session().get(key, value)
    }

    fn get_many(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        CpuEngine::get_many(self, table, keys, found)
    }

    fn get_many_of<'t, 'k>(
        &self,
        table: impl Fn(u8) -> &'t Table<Mapping>,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        CpuEngine::get_many_of(self, table, numbers, key, found)
    }

    fn get_hinted(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        hints: &[u64],
        found: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        CpuEngine::get_hinted(self, table, keys, hints, found)
    }

    fn copy_many(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        found: impl FnMut(usize, Result<(u64, &[u8])>),
    ) -> Result<()> {
        CpuEngine::copy_many(self, table, keys, found)
    }

    fn sequences(
        &self,
        table: &Table<Mapping>,
        keys: &[&[u8]],
        found: impl FnMut(usize, u64),
    ) -> Result<()> {
        CpuEngine::sequences(self, table, keys, found)
    }

    fn find(&self, table: &Table<Mapping>, fingerprint: u64, wanted: Wanted) -> Result<Vec<Item>> {
        table.read_session().find_all(fingerprint, wanted)
    }

    fn find_many<'t>(
        &self,
        table: impl Fn(u8) -> &'t Table<Mapping>,
        ids: &[ItemId],
        found: &mut impl Found,
    ) -> Result<()> {
        CpuEngine::find_many(self, table, ids, found)
    }

    fn apply(&self, table: &Table<Mapping>, changes: &[Mutation]) -> Result<FixedBitSet> {
        CpuEngine::apply(self, table, changes)
    }
}
