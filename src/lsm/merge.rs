//! The entries of several runs in the order of their keys, each key once with what the newest run has.

use super::Entry;
use super::cursor::{Cursor, Direction};
use crate::Result;

/// See the [module](self).
pub struct Merge<'r> {
    /// One cursor a run, the newest run first.
    cursors: Vec<Cursor<'r>>,
    direction: Direction,
    /// The cursors at the next key, the newest first.
    at: Vec<usize>,
}

impl<'r> Merge<'r> {
    /// Merges from where these cursors are, the newest first, which all go in this direction.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn new(cursors: Vec<Cursor<'r>>, direction: Direction) -> Result<Self> {
        let mut merge = Self {
            cursors,
            direction,
            at: Vec::new(),
        };
        merge.choose();
        merge.find()?;
        Ok(merge)
    }

    /// Reads the blocks that may have the next key, and no others.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn find(&mut self) -> Result<()> {
        loop {
            let Some(nth) = self.unread().next() else {
                return Ok(());
            };
            self.cursors[nth].read()?;
            self.choose();
        }
    }

    /// The cursors that may be before the next key in a block that has not been read.
    fn unread(&self) -> impl Iterator<Item = usize> {
        let at = self.at.iter().copied();
        at.filter(|&nth| !self.cursors[nth].is_read())
    }

    /// Chooses the cursors at the next key, or before a block that can have it.
    fn choose(&mut self) {
        self.at.clear();
        let mut best: Option<&[u8]> = None;
        for (nth, cursor) in self.cursors.iter().enumerate() {
            let Some(key) = cursor.key() else { continue };
            let order = best.map(|best| match self.direction {
                Direction::Forward => key.cmp(best),
                Direction::Backward => best.cmp(key),
            });
            match order {
                Some(std::cmp::Ordering::Greater) => {}
                Some(std::cmp::Ordering::Equal) => self.at.push(nth),
                Some(std::cmp::Ordering::Less) | None => {
                    best = Some(key);
                    self.at.clear();
                    self.at.push(nth);
                }
            }
        }
    }

    /// The entry at which the merge is; `None` behind the last one.
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.cursors[*self.at.first()?].entry()
    }

    /// The bytes of the value of that entry, unless it is a tombstone.
    ///
    /// # Errors
    /// Those of [`advance`](Self::advance).
    pub fn value(&self) -> Result<Option<Vec<u8>>> {
        let nth = self.at.first();
        nth.map_or(Ok(None), |&nth| self.cursors[nth].value())
    }

    /// Leaves the key at which the merge is. Gives the bytes of the blocks that must be read to
    /// [find](Self::find) the next one, or `None` if there is none.
    pub fn leave(&mut self) -> Option<u64> {
        for &nth in &self.at {
            self.cursors[nth].advance();
        }
        self.choose();
        let unread = self.unread().map(|nth| self.cursors[nth].block_bytes());
        let bytes = unread.sum();
        (!self.at.is_empty()).then_some(bytes)
    }

    /// Goes on to the next key.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers.
    pub fn advance(&mut self) -> Result<()> {
        self.leave();
        self.find()
    }
}
