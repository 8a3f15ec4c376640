//! Records: what stands in them, and how much of it can be believed.
//!
//! In a table of fixed sizes a record is a value. In one of variable length it begins with a header
//! and the key (see [`size_class`]), so comparing keys reads records. A session may do that with a
//! record word that it read while pinned. A record goes through the epochs before it is used again,
//! also that of an insertion that lost. The lengths in a header are checked against the file before
//! anything behind it is read.

use std::borrow::Cow;
use std::ops::Range;

use bytemuck::Zeroable;
use xxhash_rust::xxh3::Xxh3;

use super::Table;
use super::item::Wanted;
use super::key::{Identity, ProbeKey};
use super::probe::Occupied;
use crate::Result;
use crate::layout::checksum::{checksum_of_words, value_checksum};
use crate::layout::shape::record_alignment;
use crate::layout::size_class;
use crate::layout::size_class::{
    MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE, RecordHeader, SMALLEST_RECORD, class_of,
};
use crate::layout::{DATA_START, KeyClass, KeyHash, LINE, RecordWord, Shape, record_hasher};
use crate::pm::Medium;
use crate::width::{low_half, to_usize, u32_of};

/// Bytes of a record's header.
const HEADER: u64 = size_of::<RecordHeader>() as u64;

/// Bytes of a long value that are copied and hashed at a time: they stay in the cache in between.
const COPY_PART_BYTES: u64 = 64 << 10;

/// What is wrong with a record that something has changed since it was written.
pub(in crate::table) const CHECKSUM_DIFFERS: &str = "its checksum does not match";

/// Why no record is too long.
const CHECKED: &str = "lengths are checked before a batch begins";

/// What a record is filled with, beside the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content<'v> {
    /// Size class of the record.
    pub(crate) class: u32,
    header: Option<RecordHeader>,
    value: &'v [u8],
}

impl<'v> Content<'v> {
    /// A value of a table of fixed sizes.
    #[inline]
    pub(crate) fn fixed(value: &'v [u8]) -> Self {
        Self {
            class: 0,
            header: None,
            value,
        }
    }

    /// A value of variable length beside its key, neither of them too long.
    ///
    /// # Panics
    /// If one of them is.
    pub(crate) fn variable(key: &[u8], value: &'v [u8], sequence: u64) -> Self {
        let header = RecordHeader::new(key, value, sequence);
        Self {
            class: Self::class(key.len(), value.len()),
            header: Some(header.expect(CHECKED)),
            value,
        }
    }

    /// Size class of the record of a key and a value of these lengths.
    ///
    /// # Panics
    /// If one of them is too long.
    #[inline]
    pub(crate) fn class(key: usize, value: usize) -> u32 {
        class_of(size_class::record_len(key as u64, value as u64)).expect(CHECKED)
    }
}

/// Bytes of each value of fixed size that a lookup copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePart {
    /// The first of them.
    pub(crate) offset: u32,
    /// How many, at least one.
    pub(crate) len: u32,
}

impl ValuePart {
    /// All of a value.
    #[inline]
    pub(crate) fn whole(shape: &Shape) -> Self {
        Self {
            offset: 0,
            len: u32_of(shape.value_size),
        }
    }

    /// The bytes of the record at `at`.
    #[inline]
    pub(crate) fn range_in(self, at: u64) -> Range<u64> {
        let start = at + u64::from(self.offset);
        start..start + u64::from(self.len)
    }
}

/// Lengths of the key and the value of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

impl Lengths {
    /// Bytes of a record of these.
    pub(crate) fn record(self) -> u64 {
        size_class::record_len(self.key, self.value)
    }
}

/// Whether the checksum of a record is compared when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Unless the table was told not to.
    AsTold,
    /// Whatever it was told.
    Always,
}

impl<M: Medium> Table<M> {
    /// The lengths that the record at `at` states, if they leave it inside the file.
    #[inline]
    pub(crate) fn lengths(&self, at: u64) -> Option<Lengths> {
        let len = self.medium.len();
        if at < DATA_START || !at.is_multiple_of(8) || at + SMALLEST_RECORD > len {
            return None;
        }
        let word = self.medium.load(at);
        let lengths = Lengths {
            key: word & u64::from(u32::MAX),
            value: word >> 32,
        };
        let fits = lengths.key <= MAX_VARIABLE_KEY
            && lengths.value <= MAX_VARIABLE_VALUE
            && lengths.record() <= len - at;
        fits.then_some(lengths)
    }

    /// Whether a record word of a member names a record: what recovery has checked, and what a
    /// file cleanly closed is believed.
    #[inline]
    pub(crate) fn record_in_bounds(&self, record: RecordWord) -> bool {
        let at = record.offset();
        match self.shape.key_class() {
            KeyClass::Word | KeyClass::Wide => {
                let stride = self.shape.record_stride;
                at >= DATA_START
                    && at.is_multiple_of(record_alignment(stride))
                    && at + stride <= self.medium.len()
            }
            KeyClass::Variable => self.lengths(at).is_some(),
        }
    }

    /// Whether the record that a slot names has the target's key, given that the fingerprints
    /// agree. Of a word without a record nobody knows, and one that leads astray is for its reader
    /// to complain about: both count as equal.
    #[inline]
    pub(crate) fn record_has_key(&self, record: RecordWord, target: &ProbeKey) -> bool {
        let at = record.offset();
        if at == 0 {
            return true;
        }
        match target.identity {
            Identity::Key => {}
            Identity::Record(own) => return at == own,
            Identity::Any => return true,
        }
        let Some(lengths) = self.lengths(at) else {
            return true;
        };
        if lengths.key == target.key.len() as u64 && self.stored_key_is(at, target.key) {
            return true;
        }
        // Two keys of one fingerprint are rare; one key that was damaged is what this would hide.
        self.verifies_records() && !self.record_is_whole(at, lengths)
    }

    /// The lengths of a record of variable length at `at` that has this key, if there is one.
    #[inline]
    pub(in crate::table) fn lengths_of_key(&self, at: u64, key: &[u8]) -> Option<Lengths> {
        let lengths = self.lengths(at)?;
        let is_equal = lengths.key == key.len() as u64 && self.stored_key_is(at, key);
        is_equal.then_some(lengths)
    }

    /// Whether the record at `at` has the checksum that it states. It reads all of it.
    #[inline(never)]
    fn record_is_whole(&self, at: u64, lengths: Lengths) -> bool {
        let mut header = RecordHeader::zeroed();
        self.medium.read(at, bytemuck::bytes_of_mut(&mut header));
        let len = lengths.record() - HEADER;
        if len <= COPY_PART_BYTES {
            return self
                .medium
                .show(at + HEADER, len, |body| header.matches(body));
        }
        let (mut hasher, value_at) = self.hasher_of_key(at, lengths, None, &header);
        let end = value_at + lengths.value;
        // A hostile file states lengths that memory has no room for.
        let mut buffer = vec![0; to_usize(lengths.value.min(COPY_PART_BYTES))];
        for from in (value_at..end).step_by(to_usize(COPY_PART_BYTES)) {
            let part = &mut buffer[..to_usize((end - from).min(COPY_PART_BYTES))];
            self.medium.read(at + from, part);
            hasher.update(part);
        }
        hasher.digest() == header.checksum
    }

    /// Whether the record at `at` has these bytes behind its header.
    #[inline]
    fn stored_key_is(&self, at: u64, key: &[u8]) -> bool {
        let (words, rest) = key.as_chunks::<8>();
        let mut stored = (at + HEADER..).step_by(8).map(|at| self.medium.load(at));
        if !words
            .iter()
            .zip(stored.by_ref())
            .all(|(word, stored)| u64::from_le_bytes(*word) == stored)
        {
            return false;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // What fills up the last word means nothing.
        let mask = (1 << (rest.len() * 8)) - 1;
        rest.is_empty()
            || self.medium.load(at + HEADER + words.len() as u64 * 8) & mask
                == u64::from_le_bytes(last)
    }

    /// Whether a record of the content's key is what the same request has left. Where only values of a
    /// fixed size are stored, nobody knows.
    #[inline]
    pub(crate) fn record_is(&self, record: RecordWord, content: &Content) -> bool {
        let at = record.offset();
        content.header.is_some_and(|header| {
            // Damage may have it lead astray.
            self.lengths(at).is_some()
                && self.medium.load(at + 8) == header.sequence
                && self.medium.load(at + 16) == header.checksum
        })
    }

    /// Fills a record that is the caller's alone.
    #[inline]
    pub(crate) fn write_record(&self, at: u64, target: &ProbeKey, content: &Content) {
        let Some(header) = &content.header else {
            self.medium.write(at, content.value);
            if let Some(offset) = self.shape.checksum_offset() {
                let sum = value_checksum(target.hash, content.value);
                self.medium.write(at + offset, &sum.to_le_bytes());
            }
            return;
        };
        self.medium.write(at, bytemuck::bytes_of(header));
        let (words, rest) = target.key.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.medium.write(at + HEADER, words.as_flattened());
        if !rest.is_empty() {
            self.medium
                .write(at + HEADER + words.len() as u64 * 8, &last);
        }
        let value = at + size_class::value_offset(target.key.len() as u64);
        self.medium.write(value, content.value);
    }

    /// Bytes of the record at `at` that mean something; it has been written, or found in bounds.
    #[inline]
    pub(crate) fn record_len(&self, at: u64) -> u64 {
        match self.shape.key_class() {
            KeyClass::Word | KeyClass::Wide => self.shape.value_record_len(),
            KeyClass::Variable => self.lengths(at).map_or(HEADER, Lengths::record),
        }
    }

    /// Bytes that the record at `at` takes in the arena; it has been written, or found in bounds.
    #[inline]
    pub(crate) fn record_size_at(&self, at: u64) -> u64 {
        let class = match self.shape.key_class() {
            KeyClass::Word | KeyClass::Wide => 0,
            KeyClass::Variable => class_of(self.record_len(at)).unwrap_or(0),
        };
        self.shape.record_size(class)
    }

    pub(in crate::table) fn member_lengths(&self, member: Occupied) -> Result<Lengths> {
        self.lengths(member.record.offset())
            .ok_or_else(|| self.dangling(member))
    }

    /// Puts the key of the record at `at` into a buffer.
    #[inline]
    fn read_key_of(&self, at: u64, lengths: Lengths, key: &mut Vec<u8>) {
        key.resize(to_usize(lengths.key), 0);
        self.medium.read(at + HEADER, key);
    }

    /// Puts the value of the record at `at` into `buffer`; gives its sequence number.
    ///
    /// # Errors
    /// Those of [`with_value`](Self::with_value).
    pub(in crate::table) fn read_value(
        &self,
        at: u64,
        lengths: Lengths,
        buffer: &mut Vec<u8>,
        check: Check,
    ) -> Result<u64> {
        self.with_value(at, lengths, None, check, |sequence, value| {
            match value {
                Cow::Borrowed(value) => {
                    buffer.clear();
                    buffer.extend_from_slice(value);
                }
                Cow::Owned(value) => *buffer = value,
            }
            sequence
        })
    }

    /// Gives `read` the sequence number and the value of the record at `at`. What its checksum should be is compared
    /// before, as far as `check` wants it. A caller who knows the `key` makes up for what is wrong with it. A value that no
    /// cache holds is a copy, so that it is read once.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if the checksum is another one.
    #[inline]
    pub(in crate::table) fn with_value<R>(
        &self,
        at: u64,
        lengths: Lengths,
        key: Option<&[u8]>,
        check: Check,
        read: impl FnOnce(u64, Cow<'_, [u8]>) -> R,
    ) -> Result<R> {
        let mut header = RecordHeader::zeroed();
        self.medium.read(at, bytemuck::bytes_of_mut(&mut header));
        let is_checked = check == Check::Always || self.verifies_records();
        let value_at = size_class::value_offset(lengths.key) - HEADER;
        let len = value_at + lengths.value;
        let is_whole = |body: &[u8]| !is_checked || header.matches(body);
        if len <= COPY_PART_BYTES && self.medium.show(at + HEADER, len, is_whole) {
            let value =
                |body: &[u8]| read(header.sequence, Cow::Borrowed(&body[to_usize(value_at)..]));
            return Ok(self.medium.show(at + HEADER, len, value));
        }
        let (value, is_whole) = self.copy_value(at, lengths, key, &header);
        match is_whole || !is_checked {
            true => Ok(read(header.sequence, Cow::Owned(value))),
            false => Err(self.spoilt(at)),
        }
    }

    /// The value of the record at `at`, copied and hashed part by part behind this `key` or what is stored, and whether
    /// that is the checksum.
    #[inline(never)]
    fn copy_value(
        &self,
        at: u64,
        lengths: Lengths,
        key: Option<&[u8]>,
        header: &RecordHeader,
    ) -> (Vec<u8>, bool) {
        let (mut hasher, value_at) = self.hasher_of_key(at, lengths, key, header);
        let mut value = vec![0; to_usize(lengths.value)];
        let parts = value.chunks_mut(to_usize(COPY_PART_BYTES));
        for (part, at) in parts.zip((at + value_at..).step_by(to_usize(COPY_PART_BYTES))) {
            self.medium.read(at, part);
            hasher.update(part);
        }
        (value, hasher.digest() == header.checksum)
    }

    /// The checksum of the record at `at` up to its value, behind this `key` or what is stored, and where that is.
    fn hasher_of_key(
        &self,
        at: u64,
        lengths: Lengths,
        key: Option<&[u8]>,
        header: &RecordHeader,
    ) -> (Xxh3, u64) {
        let value_at = size_class::value_offset(lengths.key);
        let mut before = vec![0; to_usize(value_at - HEADER)];
        match key.filter(|key| key.len() as u64 == lengths.key) {
            Some(key) => before[..key.len()].copy_from_slice(key),
            None => self.medium.read(at + HEADER, &mut before),
        }
        let mut hasher = record_hasher(header);
        hasher.update(&before);
        (hasher, value_at)
    }

    /// Whether the record of fixed size at `at` has the checksum of its value under a key with this hash, if
    /// records have checksums.
    #[inline]
    pub(crate) fn value_is_whole(&self, at: u64, key: KeyHash) -> bool {
        let Some(offset) = self.shape.checksum_offset() else {
            return true;
        };
        let value_size = self.shape.value_size;
        // What fills up the last word means nothing.
        let mask = u64::MAX >> ((offset - value_size) * 8);
        let word = |nth: u64| match self.medium.load(at + nth * 8) {
            last if nth * 8 + 8 == offset => last & mask,
            word => word,
        };
        checksum_of_words(key, (0..offset / 8).map(word)) == self.medium.load(at + offset)
    }

    /// Whether lookups compare the checksums of values of fixed size.
    #[inline]
    pub(crate) fn verifies_values(&self) -> bool {
        self.shape.checksums && self.verifies_records
    }

    /// The error for a record that does not have the checksum that it states.
    #[cold]
    pub(crate) fn spoilt(&self, at: u64) -> crate::Error {
        self.damaged("record", at, CHECKSUM_DIFFERS.into())
    }

    /// Puts key and value of a member into buffers; gives the sequence number. The caller is pinned.
    pub(crate) fn read_item(
        &self,
        member: Occupied,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
        check: Check,
    ) -> Result<u64> {
        let at = member.record.offset();
        let lengths = self.member_lengths(member)?;
        self.read_key_of(at, lengths, key);
        self.read_value(at, lengths, value, check)
    }

    /// Puts the key of a member into a buffer and, if `wanted` says so of this key and a value of so many
    /// bytes, its value into another one, which is empty else. Gives the sequence number, or `None` at the
    /// end. The caller is pinned.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) for a key that has not the fingerprint of its slot, or, where
    /// the value is read, a record that does not have the checksum that it states.
    pub(crate) fn read_wanted(
        &self,
        member: Occupied,
        fingerprint: u64,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
        wanted: impl FnOnce(&[u8], u64) -> Wanted,
    ) -> Result<Option<u64>> {
        let at = member.record.offset();
        let lengths = self.member_lengths(member)?;
        self.read_key_of(at, lengths, key);
        match wanted(key, lengths.value) {
            Wanted::Item => self.read_value(at, lengths, value, Check::AsTold).map(Some),
            Wanted::Key => {
                value.clear();
                self.check_fingerprint(at, fingerprint, key)?;
                Ok(Some(self.medium.load(at + 8)))
            }
            Wanted::End => Ok(None),
        }
    }

    /// Puts the key of a member into a buffer, if it has the fingerprint of its slot. The caller is
    /// pinned.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if it has another one.
    pub(crate) fn read_member_key(
        &self,
        member: Occupied,
        fingerprint: u64,
        key: &mut Vec<u8>,
    ) -> Result<()> {
        let at = member.record.offset();
        let lengths = self.member_lengths(member)?;
        self.read_key_of(at, lengths, key);
        self.check_fingerprint(at, fingerprint, key)
    }

    /// Checks that the key of the record at `at` has the fingerprint of its slot.
    fn check_fingerprint(&self, at: u64, fingerprint: u64, key: &[u8]) -> Result<()> {
        match self.target(key).word == fingerprint {
            true => Ok(()),
            false => Err(self.damaged(
                "record",
                at,
                format!("a key that has not the fingerprint {fingerprint:#x} of its slot"),
            )),
        }
    }

    /// Checks the record of variable length at `at`, of `class`; puts its key into a buffer.
    pub(crate) fn check_record(
        &self,
        at: u64,
        class: u32,
        key: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let Some(lengths) = self
            .lengths(at)
            .filter(|lengths| class_of(lengths.record()) == Some(class))
        else {
            let word = self.medium.load(at);
            return Err(format!(
                "a key of {} and a value of {} bytes in a record of {}",
                low_half(word),
                word >> 32,
                size_class::class_size(class)
            ));
        };
        self.read_key_of(at, lengths, key);
        match self.record_is_whole(at, lengths) {
            true => Ok(()),
            false => Err(CHECKSUM_DIFFERS.into()),
        }
    }

    /// Starts the write-back of a record.
    #[inline]
    pub(crate) fn persist_record(&self, at: u64) {
        let len = match self.shape.key_class() {
            KeyClass::Word | KeyClass::Wide => self.shape.record_stride,
            KeyClass::Variable => self.record_len(at),
        };
        self.medium.write_back(at, len);
    }

    /// Lines that hold the record at `at`.
    #[inline]
    pub(crate) fn record_touches(&self, at: u64) -> u64 {
        (at + self.record_len(at) - 1) / LINE - at / LINE + 1
    }
}
