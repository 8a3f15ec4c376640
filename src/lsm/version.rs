//! What a spill holds at one moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::header::HEADER;
use super::sst::{Block, BlockHandle, MetaBlocks, Sst, key_hash};
use super::values::{Value, ValueFile, ValueRef};
use super::{NotRead, WaitsFor};
use crate::pool::clock::Held;
use crate::{Error, Result};

/// Levels there are.
pub const LEVELS: u32 = 8;

/// The number of the newest request of a key, and the value that it has left, or `None` for a tombstone.
type Newest = (u64, Option<Vec<u8>>);

/// A value that was not read, unless it is beside its key.
#[derive(Debug)]
pub enum Located<'v> {
    Inline(Vec<u8>),
    Apart(&'v ValueFile, ValueRef),
}

/// Files in the order of their keys, no two of which have a key in common.
#[derive(Debug, Clone)]
pub struct Run {
    pub level: u32,
    pub files: Vec<Arc<Sst>>,
}

impl Run {
    /// The file that has the key if any has.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<Sst>> {
        let behind = |sst: &Arc<Sst>| *sst.properties().largest < *key;
        let sst = self.files.get(self.files.partition_point(behind))?;
        sst.spans(key).then_some(sst)
    }

    /// Where a file belongs, unless it may have a key in common with another one.
    fn index_of(&self, sst: &Sst) -> Option<usize> {
        let (new, files) = (sst.properties(), &self.files);
        let nth = files.partition_point(|file| file.properties().largest < new.smallest);
        let next = files.get(nth).map(|next| next.properties());
        next.is_none_or(|next| new.largest < next.smallest)
            .then_some(nth)
    }
}

/// The files of a spill at one moment. They stay on the disk while it lives.
#[derive(Debug)]
pub struct LsmVersion {
    store_id: [u64; 2],
    /// The newest first: those of level 0, then one for each deeper level that has files.
    runs: Vec<Run>,
    entries: u64,
    /// The value files to which the files refer, in the order of their numbers.
    values: Vec<LiveValues>,
}

/// What the files of a version have in one value file.
#[derive(Debug, Clone)]
pub struct LiveValues {
    pub file: Arc<ValueFile>,
    /// Bytes of values to which a file refers. Of a key that several files have, each counts its own.
    pub bytes: u64,
}

impl LiveValues {
    /// Whether so much of the file is dead that the rest should be written anew: more than a third. It is not if a
    /// value could not be read for that.
    pub fn is_worn(&self) -> bool {
        let is_dead = |len: u64| {
            let values = len.saturating_sub(HEADER as u64);
            values.saturating_sub(self.bytes) > values / 3
        };
        self.file.len().is_some_and(is_dead) && !self.file.is_damaged()
    }
}

impl LsmVersion {
    /// The version with these files and their levels.
    ///
    /// # Errors
    /// [`Error::Damaged`] for `dir` if there cannot be such levels.
    pub fn new(
        store_id: [u64; 2],
        dir: &Path,
        files: impl IntoIterator<Item = (u32, Arc<Sst>)>,
    ) -> Result<Self> {
        let mut files: Vec<(u32, Arc<Sst>)> = files.into_iter().collect();
        files.sort_by(|(a_level, a), (b_level, b)| {
            let order = a_level.cmp(b_level);
            order.then_with(|| match a_level {
                0 => a.number().cmp(&b.number()),
                _ => a.properties().smallest.cmp(&b.properties().smallest),
            })
        });
        let mut runs: Vec<Run> = Vec::new();
        for (level, sst) in files {
            let run = runs.last_mut().filter(|run| run.level == level);
            let index = run.as_ref().and_then(|run| run.index_of(&sst));
            match (run, index) {
                // Files of level 0 that were added together are one run, too, in whatever order.
                (Some(run), Some(nth)) => run.files.insert(nth, sst),
                (Some(_), None) if level > 0 => {
                    return Err(impossible(dir, &sst, "overlaps another one of its level"));
                }
                _ if level >= LEVELS => {
                    return Err(impossible(dir, &sst, "is on a level that there is not"));
                }
                _ => runs.push(Run {
                    level,
                    files: vec![sst],
                }),
            }
        }
        let newest = runs.iter().take_while(|run| run.level == 0).count();
        runs[..newest].reverse();
        let files = runs.iter().flat_map(|run| &run.files);
        let entries = files.clone().map(|sst| sst.properties().entries).sum();
        let values = live_values(files);
        Ok(Self {
            store_id,
            runs,
            entries,
            values,
        })
    }

    /// Its runs, the newest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    /// The files of a level below 0, in the order of their keys.
    pub fn level(&self, level: u32) -> &[Arc<Sst>] {
        let run = self.runs.iter().find(|run| run.level == level);
        run.map_or(&[], |run| &run.files)
    }

    /// Runs of level 0.
    pub fn newest(&self) -> &[Run] {
        let count = self.runs.iter().take_while(|run| run.level == 0).count();
        &self.runs[..count]
    }

    /// The files and their levels.
    pub fn files(&self) -> impl Iterator<Item = (u32, &Arc<Sst>)> {
        self.runs
            .iter()
            .flat_map(|run| run.files.iter().map(|sst| (run.level, sst)))
    }

    /// The value files to which the files refer, in the order of their numbers.
    pub fn values(&self) -> &[LiveValues] {
        &self.values
    }

    /// What the files have in value file `number`, if any refers to it.
    pub fn values_of(&self, number: u64) -> Option<&LiveValues> {
        let values = &self.values;
        let nth = values.binary_search_by_key(&number, |of| of.file.number());
        Some(&values[nth.ok()?])
    }

    /// Whether a file refers to value file `number`.
    pub fn refers_to(&self, number: u64) -> bool {
        self.values_of(number).is_some()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many entries all files have, tombstones among them: at least as many as there are keys.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The lengths of the first and the last key of each file, and its entries.
    pub fn key_lens(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        self.files().map(|(_, sst)| {
            let properties = sst.properties();
            let lens = [properties.smallest.len(), properties.largest.len()];
            let [first, last] = lens;
            (first.min(last), first.max(last), properties.entries)
        })
    }

    /// The largest sequence number of an entry.
    pub fn newest_sequence(&self) -> u64 {
        let newest = self
            .files()
            .map(|(_, sst)| sst.properties().largest_sequence);
        newest.max().unwrap_or(0)
    }

    /// Whether a key may be here, as a tombstone, too: it errs for about one key in 200 for each run. Filters that are
    /// not in memory are read.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn may_have(&self, key: &[u8]) -> Result<bool> {
        self.any_may_have(key, |_| true)
    }

    /// As [`may_have`](Self::may_have), but reads nothing: `None` if a filter that is not in memory may say so.
    pub fn may_have_unread(&self, key: &[u8]) -> Option<bool> {
        let hash = key_hash(self.store_id, key);
        let mut answer = Some(false);
        for sst in self.runs.iter().filter_map(|run| run.find(key)) {
            match sst.meta_if_held() {
                Some(meta) if meta.may_have(hash) => return Some(true),
                Some(_) => {}
                None => answer = None,
            }
        }
        answer
    }

    /// As [`may_have`](Self::may_have), of the levels below this one.
    ///
    /// # Errors
    /// As there.
    pub fn may_have_below(&self, level: u32, key: &[u8]) -> Result<bool> {
        self.any_may_have(key, |run| run.level > level)
    }

    fn any_may_have(&self, key: &[u8], is_asked: impl Fn(&Run) -> bool) -> Result<bool> {
        let mut hash = None;
        for run in self.runs.iter().filter(|run| is_asked(run)) {
            if let Some(sst) = run.find(key) {
                let hash = *hash.get_or_insert_with(|| key_hash(self.store_id, key));
                if sst.meta()?.may_have(hash) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The newest that is known of a key: its sequence number and its value, or `None` for a
    /// tombstone.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn get(&self, key: &[u8]) -> Result<Option<Newest>> {
        self.newest_of(key, Sst::meta, Sst::block, Sst::value)
    }

    /// Where the newest value of a key is, or `None` for a tombstone.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn locate<'v>(
        &'v self,
        key: &[u8],
        waits_for: WaitsFor,
    ) -> Result<Option<Option<Located<'v>>>, NotRead> {
        let meta = |sst: &'v Sst| match waits_for {
            WaitsFor::Nothing => sst.try_meta(),
            WaitsFor::Filters | WaitsFor::Blocks => Ok(sst.meta()?),
        };
        let block = |sst: &Sst, handle| match waits_for {
            WaitsFor::Nothing | WaitsFor::Filters => sst.try_block(handle),
            WaitsFor::Blocks => Ok(sst.block(handle)?),
        };
        let found = self.newest_of(key, meta, block, |sst, handle, value| match value {
            Value::Inline(bytes) => Ok(Located::Inline(bytes.to_vec())),
            Value::Apart(value) => Ok(Located::Apart(sst.value_file(handle, &value)?, value)),
        })?;
        Ok(found.map(|(_, value)| value))
    }

    /// As [`get`](Self::get), with the length of the value: one apart is not read.
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, key: &[u8]) -> Result<Option<(u64, Option<u64>)>> {
        self.newest_of(key, Sst::meta, Sst::block, |_, _, value| {
            Ok(value.bytes() as u64)
        })
    }

    /// The newest that is known of a key, with what `of` gives of a value in a data block of an SST. `meta` and `block`
    /// give what must be read for it.
    fn newest_of<'v, T, E: From<Error>>(
        &'v self,
        key: &[u8],
        meta: impl Fn(&'v Sst) -> Result<Held<'v, MetaBlocks>, E>,
        block: impl Fn(&Sst, BlockHandle) -> Result<Arc<Block>, E>,
        of: impl Fn(&'v Sst, BlockHandle, Value) -> Result<T, E>,
    ) -> Result<Option<(u64, Option<T>)>, E> {
        let hash = key_hash(self.store_id, key);
        for run in &self.runs {
            let Some(sst) = run.find(key) else {
                continue;
            };
            let meta = meta(sst)?;
            if !meta.may_have(hash) {
                continue;
            }
            let handle = meta.find(key);
            drop(meta);
            let block = block(sst, handle)?;
            let found = block.get(key).map_err(|found| sst.damage(handle, found))?;
            if let Some(found) = found {
                let value = found.value.as_ref().map(|value| block.value(value));
                let value = value.map(|value| of(sst, handle, value)).transpose()?;
                return Ok(Some((found.sequence, value)));
            }
        }
        Ok(None)
    }
}

fn live_values<'s>(files: impl Iterator<Item = &'s Arc<Sst>>) -> Vec<LiveValues> {
    let mut values: BTreeMap<u64, LiveValues> = BTreeMap::new();
    for sst in files {
        for (file, of) in sst.values().iter().zip(&sst.properties().values) {
            let live = values.entry(of.file).or_insert_with(|| {
                let file = Arc::clone(file);
                LiveValues { file, bytes: 0 }
            });
            live.bytes = live.bytes.saturating_add(of.bytes);
        }
    }
    values.into_values().collect()
}

fn impossible(dir: &Path, sst: &Sst, what: &str) -> Error {
    Error::Damaged {
        path: dir.to_path_buf(),
        what: "levels of the SSTs",
        at: 0,
        found: format!("file {} {what}", sst.number()),
    }
}
