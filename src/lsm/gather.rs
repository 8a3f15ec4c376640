//! Making one level of files whose levels are not known: of each key what the newest request has left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::cache::FileCache;
use super::sst;
use super::sst::{Decoded, Salvage, Writer};
use super::values;
use super::values::ValueSalvage;
use super::{Entry, LevelFile};
use crate::Result;
use crate::pm::Dir;

/// Bytes after which a file ends and the next one begins.
const FILE_BYTES: u64 = 32 << 20;

/// The level that the files are given.
const LEVEL: u32 = 1;

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The new files, in the order of their keys.
    pub files: Vec<LevelFile>,
    /// Entries of all old files, and of the new ones.
    pub read: u64,
    pub kept: u64,
    /// Entries that are not whole, or whose values are not, as far as anything says so.
    pub lost: u64,
    /// The largest sequence number among them.
    pub sequence: u64,
}

/// Numbers of the files in the directory, whatever they hold.
///
/// # Errors
/// What the operating system answers.
pub(crate) fn numbers(dir: &Dir) -> Result<Vec<u64>> {
    let names = dir.names()?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| sst::number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A number that no file in the directory has, and none after it.
///
/// # Errors
/// What the operating system answers.
pub(crate) fn next_number(dir: &Dir) -> Result<u64> {
    let last = numbers(dir)?.last().copied().unwrap_or(0);
    let last = last.max(values::last_number(dir)?);
    Ok(last.saturating_add(1))
}

/// The store that a file says that it belongs to, if its header is whole.
///
/// # Errors
/// What the operating system answers, [`Error::NewerFormat`](crate::Error::NewerFormat) and
/// [`Error::OlderFormat`](crate::Error::OlderFormat).
pub(crate) fn store_of(dir: &Dir, number: u64) -> Result<Option<[u64; 2]>> {
    let file = dir.open_file(&sst::name(number), false)?;
    sst::store_of(&file)
}

/// Whether a file has a block of this store that is whole, whatever its header says.
///
/// # Errors
/// What the operating system answers.
pub(crate) fn has_block_of(dir: &Dir, store_id: [u64; 2], number: u64) -> Result<bool> {
    let cache = Arc::new(FileCache::without_blocks(dir.clone()));
    let salvage = Salvage::open(&cache, store_id, number)?;
    let first = salvage.blocks().next();
    first.transpose().map(|first| first.is_some())
}

/// Reads the data blocks of these files that are whole, and writes of each key the newest entry whose value is whole
/// into files from number `next` on: durably, but for their names. The files stay as they are.
///
/// # Errors
/// What the operating system answers; the new files are removed again.
pub(crate) fn gather(
    dir: &Dir,
    store_id: [u64; 2],
    numbers: &[u64],
    next: u64,
) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let filled = gather_into(&mut gathered, dir, store_id, numbers, next);
    filled.inspect_err(|_| remove(dir, &gathered.files))?;
    Ok(gathered)
}

/// Removes files that no list has. One that stays is removed by the next opening.
pub(crate) fn remove(dir: &Dir, files: &[LevelFile]) {
    for file in files {
        if let Err(error) = dir.remove_file(&sst::name(file.number)) {
            tracing::warn!(%error, "a file that no list has stays");
        }
    }
}

fn gather_into(
    gathered: &mut Gathered,
    dir: &Dir,
    store_id: [u64; 2],
    numbers: &[u64],
    next: u64,
) -> Result<()> {
    let cache = Arc::new(FileCache::without_blocks(dir.clone()));
    let salvages = numbers
        .iter()
        .map(|number| Salvage::open(&cache, store_id, *number))
        .collect::<Result<Vec<_>>>()?;
    let mut sources: Vec<Source<'_>> = salvages.iter().map(Source::new).collect();
    let mut heap = BinaryHeap::new();
    for (nth, source) in sources.iter_mut().enumerate() {
        heap.extend(
            source
                .next()?
                .map(|(key, newest)| Reverse((key, newest, nth))),
        );
    }
    let values = ValueSalvage::new(dir, store_id);
    let mut output = Output {
        dir,
        store_id,
        next,
        writer: None,
    };
    let mut last: Option<Vec<u8>> = None;
    while let Some(Reverse((key, _, nth))) = heap.pop() {
        let source = &mut sources[nth];
        gathered.read += 1;
        let entry = source.entry();
        // A block that has been forged may have keys of others.
        if last.as_deref() < Some(key.as_slice()) {
            match values.has_value_of(&entry)? {
                true => {
                    gathered.sequence = gathered.sequence.max(entry.sequence);
                    gathered.kept += 1;
                    output.add(&entry, &mut gathered.files)?;
                    last = Some(key);
                }
                false => gathered.lost += 1,
            }
        }
        heap.extend(
            source
                .next()?
                .map(|(key, newest)| Reverse((key, newest, nth))),
        );
    }
    for (salvage, source) in salvages.iter().zip(&sources) {
        let stated = salvage.entries().unwrap_or_default();
        gathered.lost += stated.saturating_sub(source.given);
    }
    output.end(&mut gathered.files)
}

/// The entries of a file, one after the other.
struct Source<'s> {
    blocks: Box<dyn Iterator<Item = Result<Decoded>> + 's>,
    block: Option<Decoded>,
    /// The entry behind the one that was given last.
    nth: usize,
    /// How many were given.
    given: u64,
}

impl<'s> Source<'s> {
    fn new(salvage: &'s Salvage) -> Self {
        Self {
            blocks: Box::new(salvage.blocks()),
            block: None,
            nth: 0,
            given: 0,
        }
    }

    /// Goes on to the next entry; gives its key and, the newest first, its sequence number.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Reverse<u64>)>> {
        loop {
            if let Some(block) = self.block.as_ref().filter(|block| self.nth < block.count()) {
                let entry = block.entry(self.nth);
                self.nth += 1;
                self.given += 1;
                return Ok(Some((entry.key.to_vec(), Reverse(entry.sequence))));
            }
            self.block = self.blocks.next().transpose()?;
            self.nth = 0;
            if self.block.is_none() {
                return Ok(None);
            }
        }
    }

    /// The entry that was given last.
    fn entry(&self) -> Entry<'_> {
        let block = self.block.as_ref().expect("an entry was given");
        block.entry(self.nth - 1)
    }
}

struct Output<'f> {
    dir: &'f Dir,
    store_id: [u64; 2],
    next: u64,
    writer: Option<Writer>,
}

impl Output<'_> {
    fn add(&mut self, entry: &Entry, files: &mut Vec<LevelFile>) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let (name, number) = (sst::name(self.next), self.next);
                let writer = Writer::create(self.dir, name, self.store_id, number, 0)?;
                self.writer.insert(writer)
            }
        };
        writer.add(entry)?;
        match writer.len() >= FILE_BYTES {
            true => self.end(files),
            false => Ok(()),
        }
    }

    fn end(&mut self, files: &mut Vec<LevelFile>) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let len = writer.finish()?;
            files.push(LevelFile {
                number: self.next,
                level: LEVEL,
                len,
            });
            self.dir
                .open_file(&sst::name(self.next), false)?
                .sync_dir()?;
            self.next += 1;
        }
        Ok(())
    }
}
