//! A position among the entries of a run, from which one goes on in one direction.

use std::ops::Bound;
use std::sync::Arc;

use super::Entry;
use super::sst::{Block, Decoded, Sst};
use crate::Result;

/// Which way to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Backward,
}

/// How data blocks are had.
pub type Fetch = fn(&Sst, usize) -> Result<Arc<Block>>;

/// See the [module](self).
pub struct Cursor<'r> {
    /// Files in the order of their keys, which no two share.
    run: &'r [Arc<Sst>],
    direction: Direction,
    fetch: Fetch,
    /// The file and the block in which the cursor is.
    file: usize,
    block: usize,
    decoded: Option<Decoded>,
    /// The entry in that block.
    nth: usize,
}

impl<'r> Cursor<'r> {
    /// At the first entry of the run that is not before `from` in the direction.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers.
    pub fn seek(
        run: &'r [Arc<Sst>],
        from: Bound<&[u8]>,
        direction: Direction,
        fetch: Fetch,
    ) -> Result<Self> {
        let mut cursor = Self {
            run,
            direction,
            fetch,
            file: 0,
            block: 0,
            decoded: None,
            nth: 0,
        };
        let key = match from {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        };
        let file = match (direction, key) {
            (Direction::Forward, None) => Some(0),
            (Direction::Backward, None) => run.len().checked_sub(1),
            (Direction::Forward, Some(key)) => {
                Some(run.partition_point(|sst| *sst.properties().largest < *key))
            }
            (Direction::Backward, Some(key)) => run
                .partition_point(|sst| *sst.properties().smallest <= *key)
                .checked_sub(1),
        };
        let Some(file) = file.filter(|&file| file < run.len()) else {
            return Ok(cursor);
        };
        let sst = &run[file];
        let block = match (direction, key) {
            (_, Some(key)) => sst.find(key),
            (Direction::Forward, None) => 0,
            (Direction::Backward, None) => sst.blocks() - 1,
        };
        cursor.enter(file, block)?;
        if let Some(decoded) = &cursor.decoded {
            let before = decoded.partition(|found| match (direction, from) {
                (Direction::Forward, Bound::Included(key)) => found < key,
                (Direction::Forward, Bound::Excluded(key)) => found <= key,
                (Direction::Backward, Bound::Included(key)) => found <= key,
                (Direction::Backward, Bound::Excluded(key)) => found < key,
                (Direction::Forward, Bound::Unbounded) => false,
                (Direction::Backward, Bound::Unbounded) => true,
            });
            match direction {
                Direction::Forward => cursor.nth = before,
                // One too far, and a step back.
                Direction::Backward => {
                    cursor.nth = before;
                    return cursor.advance().map(|()| cursor);
                }
            }
        }
        cursor.leave_ends()?;
        Ok(cursor)
    }

    fn enter(&mut self, file: usize, block: usize) -> Result<()> {
        let sst = &self.run[file];
        let decoded = sst.decode(block, (self.fetch)(sst, block)?)?;
        (self.file, self.block) = (file, block);
        self.nth = match self.direction {
            Direction::Forward => 0,
            Direction::Backward => decoded.len(),
        };
        self.decoded = Some(decoded);
        Ok(())
    }

    /// Goes on to another block while there is no entry left in this one.
    fn leave_ends(&mut self) -> Result<()> {
        while let Some(decoded) = &self.decoded {
            let next = match self.direction {
                Direction::Forward if self.nth < decoded.len() => return Ok(()),
                Direction::Forward if self.block + 1 < self.run[self.file].blocks() => {
                    Some((self.file, self.block + 1))
                }
                Direction::Forward => Some((self.file + 1, 0)),
                // `nth` has no number for what is before the first entry.
                Direction::Backward if self.nth > 0 => {
                    self.nth -= 1;
                    return Ok(());
                }
                Direction::Backward if self.block > 0 => Some((self.file, self.block - 1)),
                Direction::Backward => self.file.checked_sub(1).map(|file| {
                    let blocks = self.run[file].blocks();
                    (file, blocks - 1)
                }),
            };
            match next.filter(|&(file, _)| file < self.run.len()) {
                Some((file, block)) => self.enter(file, block)?,
                None => self.decoded = None,
            }
        }
        Ok(())
    }

    /// The entry at which the cursor is; `None` behind the last one.
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.decoded.as_ref().map(|decoded| decoded.entry(self.nth))
    }

    /// The key of that entry.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.decoded.as_ref().map(|decoded| decoded.key(self.nth))
    }

    /// Goes on to the next entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn advance(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            self.nth += 1;
        }
        self.leave_ends()
    }
}
