//! A page of a range: of each key what is above the files, or else the newest that they have.

use std::ops::Bound;
use std::{mem, ptr, vec};

use super::cursor::{Cursor, Direction};
use super::merge::Merge;
use super::sst::Sst;
use super::values::{Value, ValueFile, ValueRef};
use super::version::LsmVersion;
use crate::width::to_usize;
use crate::{Error, Result};

/// A key with the newest that is known of it: a value, or `None` for a tombstone.
pub(crate) type Item = (Vec<u8>, Option<Vec<u8>>);

/// A part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub items: Vec<Item>,
    /// Nothing of the range is left behind them.
    pub is_last: bool,
}

/// What a page is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageOf<'r> {
    pub range: (Bound<&'r [u8]>, Bound<&'r [u8]>),
    /// Its last items, the last one first.
    pub from_end: bool,
    /// Most items.
    pub items: usize,
    /// Most bytes of keys and values, unless a single item is longer.
    pub bytes: usize,
    /// Otherwise all values are empty.
    pub with_values: bool,
}

/// A value that is not beside its key.
struct Apart<'v> {
    /// Whose it is.
    item: usize,
    file: &'v ValueFile,
    value: ValueRef,
}

impl Page {
    /// Reads a page of versions that have no key in common, and of items above them in the order of the page, of which
    /// those that it has are taken. Each key is there once, tombstones are among them, and at least one item if there
    /// is one.
    ///
    /// Blocks are read whole, as each has one checksum. So a long value is read for the sake of its key, too, but no
    /// block behind the page is. Values apart are read of the items of the page alone. A page ends before an item that
    /// cannot be read, unless that is its first.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn read<'v>(
        versions: impl IntoIterator<Item = &'v LsmVersion>,
        above: &mut vec::IntoIter<Item>,
        of: PageOf,
    ) -> Result<Self> {
        let mut page = Self {
            items: Vec::with_capacity(of.items.min(64)),
            is_last: false,
        };
        let mut apart = Vec::new();
        let filled = page.fill(versions, above, of, &mut apart);
        if page.items.is_empty() {
            filled?;
        }
        page.read_apart(apart)?;
        Ok(page)
    }

    /// Reads all of it but the values apart.
    fn fill<'v>(
        &mut self,
        versions: impl IntoIterator<Item = &'v LsmVersion>,
        above: &mut vec::IntoIter<Item>,
        of: PageOf,
        apart: &mut Vec<Apart<'v>>,
    ) -> Result<()> {
        let (direction, from, to) = match of.from_end {
            false => (Direction::Forward, of.range.0, of.range.1),
            true => (Direction::Backward, of.range.1, of.range.0),
        };
        let is_inside = |key: &[u8]| match to {
            Bound::Unbounded => true,
            Bound::Included(to) => direction.order(key, to).is_le(),
            Bound::Excluded(to) => direction.order(key, to).is_lt(),
        };
        let runs = versions.into_iter().flat_map(LsmVersion::runs);
        let runs = runs.map(|run| &run.files[..]);
        let cursors = Cursor::seek_each(runs, from, direction, &Sst::block)?;
        let mut merge = Merge::before(cursors, direction);
        let mut bytes = 0;
        while self.items.len() < of.items {
            let next = above.as_slice().first();
            merge.find_if(|key| {
                let is_due = |(next, _): &Item| direction.order(key, next).is_le();
                is_inside(key) && next.is_none_or(is_due)
            })?;
            let entry = merge.entry().filter(|entry| is_inside(entry.key));
            let is_first = |(key, _): &&Item| {
                entry.is_none_or(|entry| direction.order(key, entry.key).is_le())
            };
            let upper = next.filter(is_first);
            let (key, value_bytes) = match (upper, entry) {
                (Some((key, value)), _) => (&key[..], value.as_ref().map(Vec::len)),
                (None, Some(entry)) => (entry.key, entry.value.map(|value| value.bytes())),
                (None, None) => {
                    self.is_last = true;
                    break;
                }
            };
            bytes += key.len() + value_bytes.filter(|_| of.with_values).unwrap_or(0);
            if !self.items.is_empty() && bytes > of.bytes {
                break;
            }
            let is_left = entry.is_some_and(|entry| entry.key == key);
            if upper.is_some() {
                self.items.extend(above.next());
            } else if let Some(entry) = entry {
                let value = match entry.value {
                    Some(Value::Inline(bytes)) if of.with_values => Some(bytes.to_vec()),
                    Some(Value::Apart(value)) if of.with_values => {
                        let (item, file) = (self.items.len(), merge.value_file(&value)?);
                        apart.push(Apart { item, file, value });
                        Some(Vec::new())
                    }
                    value => value.map(|_| Vec::new()),
                };
                self.items.push((entry.key.to_vec(), value));
            }
            if is_left && self.items.len() < of.items {
                let unread = merge.leave()?;
                if of.with_values && bytes as u64 + unread > of.bytes as u64 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads values apart, those that adjoin with one call, and all side by side; ends the page before the first one that
    /// cannot be read.
    fn read_apart(&mut self, mut apart: Vec<Apart>) -> Result<()> {
        let mut failed: Option<(usize, Error)> = None;
        apart.sort_unstable_by_key(|of| (ptr::from_ref(of.file), of.value.offset));
        let adjoin =
            |a: &Apart, b: &Apart| ptr::eq(a.file, b.file) && a.value.end() == Some(b.value.offset);
        let len = |run: &[Apart]| run.iter().map(|of| of.value.len).sum();
        let runs: Vec<&[Apart]> = apart.chunk_by(adjoin).collect();
        let try_run = |run: &&[Apart]| {
            let Apart { file, value, .. } = &run[0];
            let bytes = || file.try_bytes(value.offset, len(run)).ok();
            // One alone waits beside no other. What fails is read again below.
            (runs.len() > 1).then(bytes).flatten()
        };
        let tried: Vec<Option<Vec<u8>>> = runs.iter().map(try_run).collect();
        for (run, bytes) in runs.iter().zip(tried) {
            let (file, start) = (run[0].file, run[0].value.offset);
            let mut joint = match bytes {
                None if run.len() > 1 => file.bytes(start, len(run)).ok(),
                bytes => bytes,
            };
            for of in *run {
                let read = match &mut joint {
                    None => file.read(&of.value),
                    Some(alone) if run.len() == 1 => file.checked(&of.value, mem::take(alone)),
                    Some(joint) => {
                        let from = joint.len().min(to_usize(of.value.offset - start));
                        let to = joint.len().min(from + of.value.len);
                        file.checked(&of.value, joint[from..to].to_vec())
                    }
                };
                match read {
                    Ok(value) => self.items[of.item].1 = Some(value),
                    Err(error) if failed.as_ref().is_none_or(|(item, _)| of.item < *item) => {
                        failed = Some((of.item, error));
                    }
                    Err(_) => {}
                }
            }
        }
        match failed {
            None => Ok(()),
            Some((0, error)) => Err(error),
            Some((item, _)) => {
                self.items.truncate(item);
                self.is_last = false;
                Ok(())
            }
        }
    }
}
