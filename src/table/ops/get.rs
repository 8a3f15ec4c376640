//! get and contains.
//!
//! The record of a member does not change, and is not used again while a session is pinned that may
//! have found it. So the value is lent without a check afterwards, and is never torn.

use std::borrow::Cow;

use crate::Result;
use crate::layout::LINE;
use crate::pm::Medium;
use crate::table::Session;
use crate::table::item::{Item, Wanted};
use crate::table::key::{Identity, ProbeKey};
use crate::table::probe::{Occupied, Walk};
use crate::table::probe_hint::ProbeHint;
use crate::table::record::{Check, ValuePart};

impl<M: Medium> Session<'_, M> {
    /// Copies a part of the value of the member of `key` that was found while this session was pinned. It is
    /// as long as `value`.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if the slot names no record, or one without the checksum of the
    /// value and the key where that is compared.
    #[inline]
    pub(crate) fn read(
        &mut self,
        member: Occupied,
        key: &[u8],
        part: ValuePart,
        value: &mut [u8],
    ) -> Result<()> {
        let (table, at) = (self.table, member.record.offset());
        if !table.record_in_bounds(member.record) {
            return Err(table.dangling(member));
        }
        let bytes = part.range_in(at);
        self.touches += (bytes.end - 1) / LINE - bytes.start / LINE + 1;
        table.medium.read(bytes.start, value);
        if table.verifies_values() && !table.value_is_whole(at, table.target(key).hash) {
            return Err(table.spoilt(at));
        }
        Ok(())
    }

    /// As [`read`](Self::read), of variable length: gives `read` the sequence number and the value of
    /// `key`.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if the record does not have the checksum that it states.
    #[inline]
    pub(crate) fn read_variable<R>(
        &mut self,
        member: Occupied,
        key: &[u8],
        check: Check,
        read: impl FnOnce(u64, Cow<'_, [u8]>) -> R,
    ) -> Result<R> {
        let (table, at) = (self.table, member.record.offset());
        let lengths = table.member_lengths(member)?;
        self.touches += (at + lengths.record() - 1) / LINE - at / LINE + 1;
        table.with_value(at, lengths, Some(key), check, read)
    }

    /// As [`read_variable`](Self::read_variable) from the record at `at`, if one with this key is there.
    #[inline]
    pub(crate) fn read_hinted<R>(
        &mut self,
        at: u64,
        key: &[u8],
        read: impl FnOnce(u64, Cow<'_, [u8]>) -> R,
    ) -> Result<Option<R>> {
        let table = self.table;
        let Some(lengths) = table.lengths_of_key(at, key) else {
            return Ok(None);
        };
        self.touches += (at + lengths.record() - 1) / LINE - at / LINE + 1;
        table
            .with_value(at, lengths, Some(key), Check::AsTold, read)
            .map(Some)
    }

    /// The sequence number of a member of variable length.
    pub(crate) fn read_sequence(&mut self, member: Occupied) -> Result<u64> {
        self.table.member_lengths(member)?;
        self.touches += 1;
        Ok(self.table.medium.load(member.record.offset() + 8))
    }

    /// Puts the value of a key into `buffer`, and gives its sequence number, if it is there.
    pub(crate) fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        let target = self.table.target(key);
        self.count(1);
        match self.table.find(&target, &mut self.touches) {
            Some(member) => self
                .read_variable(member, key, Check::AsTold, |sequence, value| {
                    *buffer = value.into_owned();
                    sequence
                })
                .map(Some),
            None => Ok(None),
        }
    }

    /// All items of variable length that have a fingerprint, with what is `wanted` of them.
    pub(crate) fn find_all(&mut self, fingerprint: u64, wanted: Wanted) -> Result<Vec<Item>> {
        let table = self.table;
        let target = ProbeKey::of_fingerprint(fingerprint, Identity::Any);
        let mut members: Vec<Occupied> = Vec::with_capacity(1);
        table.walk(&target, &mut self.touches, |addr, record| {
            // An item that is being moved comes twice.
            let is_new = members
                .iter()
                .all(|other| other.record.offset() != record.offset());
            if record.is_member() && is_new {
                members.push(Occupied { addr, record });
            }
            Walk::Next
        });
        self.count(1);
        let mut found: Vec<Item> = Vec::with_capacity(members.len());
        for member in members {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let buffers = (&mut key, &mut value);
            let read = table.read_wanted(member, fingerprint, buffers, |_, _| wanted);
            let Some(sequence) = read? else { break };
            // One that was moved and changed while we walked, too: what comes last is valid.
            found.retain(|(other, ..)| *other != key);
            found.push((key, sequence, value));
        }
        Ok(found)
    }

    /// Whether the target's key is there.
    #[inline]
    pub(crate) fn contains(&mut self, target: &ProbeKey, hint: &ProbeHint) -> bool {
        self.table
            .find_with(target, hint, &mut self.touches)
            .is_some()
    }
}
