//! The entries of several runs in the order of their keys, each key once with what the newest run has.

use super::Entry;
use super::cursor::{Cursor, Direction};
use super::values::{ValueFile, ValueRef};
use crate::Result;

/// See the [module](self).
pub struct Merge<'r> {
    /// One cursor a run. Of two runs that can have a key in common the newer one comes first.
    cursors: Vec<Cursor<'r>>,
    direction: Direction,
    /// The cursors that are not at their end, in the order of their keys. Of one key those come first whose block has
    /// not been read, then the newest.
    order: Vec<usize>,
    /// Those that leave a key.
    leaving: Vec<usize>,
}

impl<'r> Merge<'r> {
    /// Merges from where these cursors are, the newest first, which all go in this direction.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn new(cursors: Vec<Cursor<'r>>, direction: Direction) -> Result<Self> {
        let mut merge = Self::before(cursors, direction);
        merge.find()?;
        Ok(merge)
    }

    /// As [`new`](Self::new); reads no block yet.
    pub fn before(cursors: Vec<Cursor<'r>>, direction: Direction) -> Self {
        let mut merge = Self {
            order: Vec::with_capacity(cursors.len()),
            leaving: Vec::new(),
            cursors,
            direction,
        };
        for nth in 0..merge.cursors.len() {
            merge.insert(nth);
        }
        merge
    }

    /// Reads the blocks that may have the next key, and no others.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn find(&mut self) -> Result<()> {
        self.find_if(|_| true)
    }

    /// As [`find`](Self::find), while `is_wanted` says so of a key before which none of the next block comes.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn find_if(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<()> {
        while let Some(&nth) = self.order.first()
            && !self.cursors[nth].is_read()
            && self.cursors[nth].key().is_some_and(&is_wanted)
        {
            self.cursors[nth].read()?;
            self.order.remove(0);
            self.insert(nth);
        }
        Ok(())
    }

    /// Puts a cursor in the order, unless it is at its end.
    fn insert(&mut self, nth: usize) {
        let cursor = &self.cursors[nth];
        let Some(key) = cursor.key() else { return };
        let is_before = |&other: &usize| {
            let before = &self.cursors[other];
            let order = before.key().map(|before| self.direction.order(before, key));
            let order = order.map(|order| order.then(before.is_read().cmp(&cursor.is_read())));
            order.is_some_and(|order| order.then(other.cmp(&nth)).is_lt())
        };
        let at = self.order.partition_point(is_before);
        self.order.insert(at, nth);
    }

    /// The cursors at the first key of the order.
    fn at_first(&self) -> impl Iterator<Item = &Cursor<'r>> {
        let cursors = self.order.iter().map(|&nth| &self.cursors[nth]);
        let key = cursors.clone().next().and_then(Cursor::key);
        cursors.take_while(move |cursor| cursor.key() == key)
    }

    /// The entry at which the merge is; `None` behind the last one.
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.cursors[*self.order.first()?].entry()
    }

    /// The bytes of the value of that entry, unless it is a tombstone.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn value(&self) -> Result<Option<Vec<u8>>> {
        let nth = self.order.first();
        nth.map_or(Ok(None), |&nth| self.cursors[nth].value())
    }

    /// The value file that has a value of that entry.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn value_file(&self, value: &ValueRef) -> Result<&'r ValueFile> {
        self.cursors[self.order[0]].value_file(value)
    }

    /// Leaves the key at which the merge is. Gives the bytes of the blocks that must be read to
    /// [find](Self::find) the next one.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn leave(&mut self) -> Result<u64> {
        if let Some(&first) = self.order.first()
            && self.is_first_alone()
        {
            // Most keys of a run lie together, so that it mostly stays the first one.
            let advanced = self.cursors[first].advance();
            if advanced.is_ok() && self.is_first_before() {
                return self.cursors[first].unread_bytes();
            }
            self.order.remove(0);
            advanced?;
            self.insert(first);
        } else {
            let count = self.at_first().count();
            self.leaving.clear();
            self.leaving.extend(self.order.drain(..count));
            for at in 0..self.leaving.len() {
                let nth = self.leaving[at];
                self.cursors[nth].advance()?;
                self.insert(nth);
            }
        }
        let count = self.at_first().count();
        let unread = |&nth: &usize| self.cursors[nth].unread_bytes();
        self.order[..count].iter().map(unread).sum()
    }

    /// Whether no other cursor has the key of the first one of the order.
    fn is_first_alone(&self) -> bool {
        match &self.order[..] {
            [first, second, ..] => self.cursors[*first].key() != self.cursors[*second].key(),
            _ => true,
        }
    }

    /// Whether the first cursor of the order is before all others.
    fn is_first_before(&self) -> bool {
        let mut keys = self.order.iter().map(|&nth| self.cursors[nth].key());
        match (keys.next().flatten(), keys.next().flatten()) {
            (Some(first), Some(second)) => self.direction.order(first, second).is_lt(),
            (first, _) => first.is_some(),
        }
    }

    /// Goes on to the next key.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers.
    pub fn advance(&mut self) -> Result<()> {
        self.leave()?;
        self.find()
    }
}
