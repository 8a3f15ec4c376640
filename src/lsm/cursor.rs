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
    position: Position,
}

/// Where in its run a cursor is.
enum Position {
    /// At this entry of its block.
    Entry(Decoded, usize),
    /// Before all entries of its block, which has not been read. Blocks can be long, and most often the reader
    /// stops before the next one.
    Unread,
    /// Behind the last entry.
    End,
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
            position: Position::End,
        };
        let is_before = |key: &[u8]| match (direction, from) {
            (_, Bound::Unbounded) => false,
            (Direction::Forward, Bound::Included(from)) => key < from,
            (Direction::Forward, Bound::Excluded(from)) => key <= from,
            (Direction::Backward, Bound::Included(from)) => key > from,
            (Direction::Backward, Bound::Excluded(from)) => key >= from,
        };
        let file = match direction {
            Direction::Forward => {
                Some(run.partition_point(|sst| is_before(&sst.properties().largest)))
            }
            Direction::Backward => run
                .partition_point(|sst| !is_before(&sst.properties().smallest))
                .checked_sub(1),
        };
        let Some(file) = file.filter(|&file| file < run.len()) else {
            return Ok(cursor);
        };
        let sst = &run[file];
        let key = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        match direction {
            Direction::Forward if !is_before(&sst.properties().smallest) => cursor.enter(file, 0),
            Direction::Backward if !is_before(&sst.properties().largest) => {
                cursor.enter(file, sst.blocks() - 1);
            }
            _ => {
                cursor.enter(file, sst.find(key));
                cursor.read()?;
                cursor.skip(is_before);
            }
        }
        Ok(cursor)
    }

    /// Goes to the beginning of a block.
    fn enter(&mut self, file: usize, block: usize) {
        (self.file, self.block, self.position) = (file, block, Position::Unread);
    }

    /// Goes to the beginning of the next block.
    fn enter_next(&mut self) {
        let (file, block) = (self.file, self.block);
        match self.direction {
            Direction::Forward if block + 1 < self.run[file].blocks() => {
                self.enter(file, block + 1)
            }
            Direction::Forward if file + 1 < self.run.len() => self.enter(file + 1, 0),
            Direction::Backward if block > 0 => self.enter(file, block - 1),
            Direction::Backward if file > 0 => {
                self.enter(file - 1, self.run[file - 1].blocks() - 1)
            }
            Direction::Forward | Direction::Backward => self.position = Position::End,
        }
    }

    /// Goes past entries of its block, which has been read.
    fn skip(&mut self, is_before: impl Fn(&[u8]) -> bool) {
        let Position::Entry(decoded, nth) = &mut self.position else {
            return;
        };
        let next = match self.direction {
            Direction::Forward => Some(decoded.partition(is_before)),
            Direction::Backward => decoded.partition(|key| !is_before(key)).checked_sub(1),
        };
        match next.filter(|&next| next < decoded.len()) {
            Some(next) => *nth = next,
            None => self.enter_next(),
        }
    }

    /// Bytes that its block has in the file.
    pub fn block_bytes(&self) -> u64 {
        let (from, to) = self.run[self.file].index().range(self.block);
        to - from
    }

    /// Whether it is at an entry, or at the end.
    pub fn is_read(&self) -> bool {
        !matches!(self.position, Position::Unread)
    }

    /// Reads the block that it is before.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn read(&mut self) -> Result<()> {
        while !self.is_read() {
            let sst = &self.run[self.file];
            let decoded = sst.decode(self.block, (self.fetch)(sst, self.block)?)?;
            let first = match self.direction {
                Direction::Forward => 0,
                Direction::Backward => decoded.len().saturating_sub(1),
            };
            match decoded.len() {
                0 => self.enter_next(),
                _ => self.position = Position::Entry(decoded, first),
            }
        }
        Ok(())
    }

    /// The entry at which the cursor is; `None` behind the last one, and before a block that has not been
    /// [read](Self::read).
    pub fn entry(&self) -> Option<Entry<'_>> {
        match &self.position {
            Position::Entry(decoded, nth) => Some(decoded.entry(*nth)),
            Position::Unread | Position::End => None,
        }
    }

    /// The key of that entry. Before a block that has not been read, one that no key of the block comes before.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.position {
            Position::Entry(decoded, nth) => Some(decoded.key(*nth)),
            Position::Unread => {
                let sst = &self.run[self.file];
                Some(match self.direction {
                    Direction::Forward => sst.not_behind(self.block),
                    Direction::Backward => sst.not_before(self.block),
                })
            }
            Position::End => None,
        }
    }

    /// The bytes of the value of the entry at which the cursor is, unless that is a tombstone.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn value(&self) -> Result<Option<Vec<u8>>> {
        let value = self.entry().and_then(|entry| entry.value);
        let sst = || &self.run[self.file];
        value
            .map(|value| sst().value(self.block, value))
            .transpose()
    }

    /// Goes on to the next entry, or before the next block.
    pub fn advance(&mut self) {
        let Position::Entry(decoded, nth) = &mut self.position else {
            return;
        };
        let next = match self.direction {
            Direction::Forward => Some(*nth + 1),
            Direction::Backward => nth.checked_sub(1),
        };
        match next.filter(|&next| next < decoded.len()) {
            Some(next) => *nth = next,
            None => self.enter_next(),
        }
    }
}
