//! A page of a range, and how it fills.

use std::ops::Bound;

use super::{Item, Limits};
use crate::store::mvcc::old_versions::Value;
use crate::table::item::Wanted;
use crate::width::to_usize;

/// Most bytes of keys and values in a page, unless a single item is longer.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Items that are read from the indexes at a time.
const READ_ITEMS_MAX: usize = 256;

/// What a page is to have.
#[derive(Debug, Clone, Copy)]
pub struct PageOf<'b> {
    pub range: Limits<'b>,
    /// Most items.
    pub items: usize,
    /// Items, or keys alone: then all values are empty.
    pub what: Wanted,
}

/// Part of a range.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order, or in the opposite order for a page from the end.
    pub items: Vec<Item>,
    /// There are no others in the range.
    pub is_last: bool,
}

/// Where a key is, in the direction in which a page fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Within,
    Behind,
}

/// A page that fills, from the start of its range or from its end. Keys come in that direction.
pub struct Filling<'b> {
    page: PageOf<'b>,
    is_from_end: bool,
    items: Vec<Item>,
    /// Keys and values that have been wanted.
    bytes: usize,
    /// No key comes any more that is before the range.
    has_begun: bool,
    /// A key came that is behind the range.
    has_ended: bool,
    /// The next item is too long for what is left of the page.
    is_full: bool,
}

impl<'b> Filling<'b> {
    /// A page from the start of its range; the first keys may be before that.
    pub fn from_start(page: PageOf<'b>) -> Self {
        Self::new(page, false)
    }

    /// A page from the end of its range, in which the first key is.
    pub fn from_end(page: PageOf<'b>) -> Self {
        Self::new(page, true)
    }

    fn new(page: PageOf<'b>, is_from_end: bool) -> Self {
        Self {
            page,
            is_from_end,
            items: Vec::with_capacity(page.items.min(READ_ITEMS_MAX)),
            bytes: 0,
            has_begun: is_from_end,
            has_ended: false,
            is_full: false,
        }
    }

    /// How many more items may be read now.
    pub fn missing(&self) -> usize {
        match self.is_full || self.has_ended {
            true => 0,
            false => (self.page.items - self.items.len()).min(READ_ITEMS_MAX),
        }
    }

    /// What is wanted of items that are in the page.
    pub fn what(&self) -> Wanted {
        self.page.what
    }

    fn side(&self, key: &[u8]) -> Side {
        let range = self.page.range;
        let is_behind = match self.is_from_end {
            true => !is_behind_start(key, range),
            false => !is_before_end(key, range),
        };
        match is_behind {
            true => Side::Behind,
            false if !self.has_begun && !is_behind_start(key, range) => Side::Before,
            false => Side::Within,
        }
    }

    /// What is wanted of the next item, with a value of so many bytes.
    pub fn wanted(&mut self, key: &[u8], value_bytes: u64) -> Wanted {
        if self.has_ended {
            return Wanted::End;
        }
        match self.side(key) {
            Side::Within => {}
            // That it is this key is for its checksum to say.
            Side::Behind => {
                self.has_ended = true;
                return Wanted::Key;
            }
            Side::Before => return Wanted::Key,
        }
        self.has_begun = true;
        let value_bytes = match self.page.what {
            Wanted::Item => to_usize(value_bytes),
            Wanted::Key | Wanted::End => 0,
        };
        match self.take_room(key.len() + value_bytes) {
            true => self.page.what,
            false => Wanted::End,
        }
    }

    /// Takes room for an item of so many bytes, if there is any.
    fn take_room(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes + bytes;
        self.is_full = self.bytes > 0 && bytes > PAGE_BYTES_MAX;
        if !self.is_full {
            self.bytes = bytes;
        }
        !self.is_full
    }

    /// Takes the item of which something was [wanted](Self::wanted).
    pub fn take(&mut self, key: &[u8], value: impl FnOnce() -> Value) {
        if self.has_begun && !self.has_ended {
            self.items.push((key.to_vec(), value()));
        }
    }

    /// Takes an item that was read without being asked for. `false` if the page has no room for it.
    pub fn take_read(&mut self, (key, value): Item) -> bool {
        match self.side(&key) {
            Side::Before => {}
            Side::Behind => self.has_ended = true,
            Side::Within => {
                self.has_begun = true;
                let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
                if !self.take_room(bytes) {
                    return false;
                }
                self.items.push((key, value));
            }
        }
        true
    }

    /// Ends the page before an item that cannot be read, if it has some: the next page begins there.
    pub fn end_early(&mut self) -> bool {
        // A damaged key does not say where it is.
        self.has_ended = false;
        self.is_full = self.is_full || !self.items.is_empty();
        self.is_full
    }

    /// The page where what it was read of has ended, unless it needs more. That was `all`, or there may be more.
    pub fn end(self, are_all: bool) -> Option<Page> {
        let is_done = self.missing() == 0;
        (are_all || is_done).then(|| self.close(are_all))
    }

    /// The page as it is. `are_all` says that nothing is left to read.
    pub fn close(self, are_all: bool) -> Page {
        Page {
            is_last: self.has_ended || are_all && !self.is_full,
            items: self.items,
        }
    }
}

/// Whether a key is not before the start of a range.
fn is_behind_start(key: &[u8], range: Limits) -> bool {
    match range.0 {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    }
}

/// Whether a key is not behind the end of a range.
fn is_before_end(key: &[u8], range: Limits) -> bool {
    match range.1 {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    }
}
