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
    pub fn new(cursors: Vec<Cursor<'r>>, direction: Direction) -> Self {
        let mut merge = Self {
            cursors,
            direction,
            at: Vec::new(),
        };
        merge.choose();
        merge
    }

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

    /// Goes on to the next key.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers.
    pub fn advance(&mut self) -> Result<()> {
        for &nth in &self.at {
            self.cursors[nth].advance()?;
        }
        self.choose();
        Ok(())
    }
}
