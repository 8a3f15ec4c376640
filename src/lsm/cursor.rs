//! A position among the entries of a run, from which one goes on in one direction.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::Entry;
use super::sst::{Block, BlockHandle, Decoded, MetaBlocks, Sst};
use super::values::{ValueFile, ValueRef};
use crate::pool::clock::Held;
use crate::{Error, Result};

/// Which way to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Backward,
}

impl Direction {
    /// Which of two keys comes first.
    #[inline]
    pub fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Forward => a.cmp(b),
            Self::Backward => b.cmp(a),
        }
    }

    /// Whether a key comes before what a range begins with.
    #[inline]
    fn is_before(self, key: &[u8], from: Bound<&[u8]>) -> bool {
        match from {
            Bound::Unbounded => false,
            Bound::Included(from) => self.order(key, from).is_lt(),
            Bound::Excluded(from) => self.order(key, from).is_le(),
        }
    }

    /// The first of so many.
    fn first(self, len: usize) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => len - 1,
        }
    }

    /// The one behind another.
    #[inline]
    fn next(self, nth: usize) -> Option<usize> {
        match self {
            Self::Forward => Some(nth + 1),
            Self::Backward => nth.checked_sub(1),
        }
    }
}

/// How data blocks are had.
pub type Fetch<'f> = &'f dyn Fn(&Sst, BlockHandle) -> Result<Arc<Block>>;

/// See the [module](self).
pub struct Cursor<'r> {
    /// Files in the order of their keys, which no two share.
    run: &'r [Arc<Sst>],
    direction: Direction,
    fetch: Fetch<'r>,
    /// The file and the block in which the cursor is.
    file: usize,
    block: usize,
    /// The filter and the index of that file, once they were needed.
    meta: Option<Held<'r, MetaBlocks>>,
    /// The block that was read last.
    read: BlockHandle,
    position: Position,
}

/// Where in its run a cursor is.
enum Position {
    /// At this entry of a group of its block.
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
        fetch: Fetch<'r>,
    ) -> Result<Self> {
        let (mut cursor, is_inside) = Self::before(run, from, direction, fetch)?;
        if is_inside {
            cursor.seek_in_block(from)?;
        }
        Ok(cursor)
    }

    /// As [`seek`](Self::seek) in each of several runs. A disk reads the blocks of all of them side by side.
    ///
    /// # Errors
    /// As there.
    pub fn seek_each(
        runs: impl Iterator<Item = &'r [Arc<Sst>]>,
        from: Bound<&[u8]>,
        direction: Direction,
        fetch: Fetch<'r>,
    ) -> Result<Vec<Self>> {
        let before = |run| Self::before(run, from, direction, fetch);
        let mut cursors: Vec<(Self, bool)> = runs.map(before).collect::<Result<_>>()?;
        if cursors.iter().filter(|(_, is_inside)| *is_inside).count() > 1 {
            for (cursor, _) in cursors.iter_mut().filter(|(_, is_inside)| *is_inside) {
                let handle = cursor.handle()?;
                cursor.sst().prefetch_block(handle)?;
            }
        }
        for (cursor, is_inside) in &mut cursors {
            if *is_inside {
                cursor.seek_in_block(from)?;
            }
        }
        Ok(cursors.into_iter().map(|(cursor, _)| cursor).collect())
    }

    /// Before the block of that entry, and whether the entry may be within it.
    fn before(
        run: &'r [Arc<Sst>],
        from: Bound<&[u8]>,
        direction: Direction,
        fetch: Fetch<'r>,
    ) -> Result<(Self, bool)> {
        let mut cursor = Self {
            run,
            direction,
            fetch,
            file: 0,
            block: 0,
            meta: None,
            read: BlockHandle::default(),
            position: Position::End,
        };
        let is_before = |key: &[u8]| direction.is_before(key, from);
        let file = match direction {
            Direction::Forward => {
                Some(run.partition_point(|sst| is_before(&sst.properties().largest)))
            }
            Direction::Backward => run
                .partition_point(|sst| !is_before(&sst.properties().smallest))
                .checked_sub(1),
        };
        let Some(file) = file.filter(|&file| file < run.len()) else {
            return Ok((cursor, false));
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
                let meta = sst.meta()?;
                cursor.enter(file, meta.find(key).nth);
                cursor.meta = Some(meta.for_long());
                return Ok((cursor, true));
            }
        }
        Ok((cursor, false))
    }

    /// The file in which it is.
    fn sst(&self) -> &'r Sst {
        &self.run[self.file]
    }

    /// The filter and the index of that file.
    fn meta(&mut self) -> Result<&MetaBlocks> {
        let meta = match self.meta.take() {
            Some(meta) => meta,
            None => self.sst().meta()?.for_long(),
        };
        Ok(self.meta.insert(meta))
    }

    /// Where its block is.
    fn handle(&mut self) -> Result<BlockHandle> {
        let block = self.block;
        Ok(self.meta()?.index.handle(block))
    }

    /// Goes to the beginning of a block.
    fn enter(&mut self, file: usize, block: usize) {
        if self.file != file {
            self.meta = None;
        }
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

    /// Goes to the first entry of its block that is not before where it seeks to.
    fn seek_in_block(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let direction = self.direction;
        let is_low =
            |key: &[u8]| direction.is_before(key, from) == (direction == Direction::Forward);
        let block = self.fetch()?;
        let group = block.find_group(is_low);
        let decoded = group.and_then(|group| Decoded::of_group(block, group));
        let decoded = decoded.map_err(|found| self.damage(found))?;
        let low = decoded.partition(is_low);
        let next = match direction {
            Direction::Forward => Some(low),
            Direction::Backward => low.checked_sub(1),
        };
        self.stop_at(decoded, next)
    }

    /// Goes to this entry of a group of its block, or to the first one behind the group.
    fn stop_at(&mut self, decoded: Decoded, next: Option<usize>) -> Result<()> {
        if let Some(next) = next.filter(|&next| next < decoded.count()) {
            self.position = Position::Entry(decoded, next);
            return Ok(());
        }
        let (block, group) = decoded.group();
        self.enter_group(block, self.direction.next(group))
    }

    /// Goes to the first entry of its block in this group or behind it.
    fn enter_group(&mut self, block: &Arc<Block>, mut group: Option<usize>) -> Result<()> {
        while let Some(nth) = group.filter(|&nth| nth < block.groups()) {
            let decoded = Decoded::of_group(Arc::clone(block), nth);
            let decoded = decoded.map_err(|found| self.damage(found))?;
            if decoded.count() > 0 {
                let first = self.direction.first(decoded.count());
                self.position = Position::Entry(decoded, first);
                return Ok(());
            }
            group = self.direction.next(nth);
        }
        self.enter_next();
        Ok(())
    }

    /// Reads its block.
    fn fetch(&mut self) -> Result<Arc<Block>> {
        self.read = self.handle()?;
        (self.fetch)(self.sst(), self.read)
    }

    /// The error for what is wrong with that.
    fn damage(&self, found: String) -> Error {
        self.sst().damage(self.read, found)
    }

    /// Bytes that its block has in the file, if that must be read.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn unread_bytes(&mut self) -> Result<u64> {
        match self.is_read() {
            true => Ok(0),
            false => Ok(self.handle()?.bytes()),
        }
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
            let block = self.fetch()?;
            self.enter_group(&block, Some(self.direction.first(block.groups())))?;
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
                let sst = self.sst();
                // A file of which no block was needed yet is entered at its end.
                Some(match (self.direction, &self.meta) {
                    (Direction::Forward, Some(meta)) => sst.not_behind(meta, self.block),
                    (Direction::Forward, None) => &sst.properties().smallest,
                    (Direction::Backward, Some(meta)) => sst.not_before(meta, self.block),
                    (Direction::Backward, None) => &sst.properties().largest,
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
        value
            .map(|value| self.sst().value(self.read, value))
            .transpose()
    }

    /// The value file that has a value of the entry at which the cursor is.
    ///
    /// # Errors
    /// [`Error::Damaged`] if its file does not name that.
    pub fn value_file(&self, value: &ValueRef) -> Result<&'r ValueFile> {
        self.sst().value_file(self.read, value)
    }

    /// Goes on to the next entry, or before the next block.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn advance(&mut self) -> Result<()> {
        let Position::Entry(decoded, nth) = &mut self.position else {
            return Ok(());
        };
        let next = self.direction.next(*nth);
        if let Some(next) = next.filter(|&next| next < decoded.count()) {
            *nth = next;
            return Ok(());
        }
        match std::mem::replace(&mut self.position, Position::End) {
            Position::Entry(decoded, _) => self.stop_at(decoded, None),
            Position::Unread | Position::End => Ok(()),
        }
    }
}
