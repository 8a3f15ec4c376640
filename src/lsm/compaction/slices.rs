//! Level 0 in slices: each has a range of keys to itself, so it can be compacted without the others.
//!
//! Nothing says where slices begin and end but the files. Additions are cut at the same keys as those before them,
//! so their files make the same slices; after others, the slices are larger until they are compacted.

use std::sync::Arc;

use super::plan::overlap;
use crate::lsm::sst::Sst;
use crate::lsm::version::LsmVersion;

/// Most slices.
const SLICES_MAX: usize = 8;

/// Files of level 1 that a slice is worth: those at its ends are written for the slices beside it, too.
const SLICE_FILES_MIN: usize = 4;

/// Runs of a slice from which on it is compacted if that does not write much more than there is to add.
const RUNS_MIN: usize = 4;

/// Runs of a slice from which on it is compacted in any case.
const RUNS_MAX: usize = 20;

/// What a run of a slice costs each range that is read through it, in bytes of a compaction: four times what is compacted in
/// that time where the files are in memory.
const SEEK_BYTES: u64 = 2 << 10;

/// How many times more than what was added may be written anew because ranges read it.
const READ_SHARE: u64 = 16;

/// How many times the bytes of the files are apart, if most are.
const APART_MIN: u64 = 4;

/// Files of level 0 that overlap each other, directly or through others, and no other file of it.
pub struct Slice {
    /// The newest first.
    pub runs: Vec<Vec<Arc<Sst>>>,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
}

impl Slice {
    /// All of level 0, in the order of the keys.
    pub fn all(version: &LsmVersion) -> Vec<Self> {
        let runs = version.newest();
        let numbered = runs.iter().enumerate();
        let mut files: Vec<(usize, &Arc<Sst>)> = numbered
            .flat_map(|(nth, run)| run.files.iter().map(move |sst| (nth, sst)))
            .collect();
        files.sort_by_key(|(_, sst)| &sst.properties().smallest);
        let mut slices: Vec<Self> = Vec::new();
        for (nth, sst) in files {
            let properties = sst.properties();
            let last = slices.last();
            if last.is_none_or(|last| last.largest < properties.smallest) {
                slices.push(Self {
                    runs: vec![Vec::new(); runs.len()],
                    smallest: properties.smallest.clone(),
                    largest: properties.largest.clone(),
                });
            }
            let slice = slices.last_mut().expect("there is one");
            slice.runs[nth].push(Arc::clone(sst));
            if slice.largest < properties.largest {
                slice.largest.clone_from(&properties.largest);
            }
        }
        for slice in &mut slices {
            slice.runs.retain(|run| !run.is_empty());
        }
        slices
    }

    /// What level 1 has of its keys.
    pub fn below<'v>(&self, version: &'v LsmVersion) -> &'v [Arc<Sst>] {
        overlap(version.level(1), &self.smallest, &self.largest)
    }

    pub fn bytes(&self) -> u64 {
        self.runs.iter().flatten().map(|sst| sst.len()).sum()
    }

    /// Whether it is time to compact it. A few runs are, when they have as many entries as what is written anew for them:
    /// then each entry of level 1 is written about twice until there are ten times more. Entries count, not bytes, as
    /// tombstones have few.
    pub fn is_due(&self, version: &LsmVersion) -> bool {
        let entries = |sst: &Arc<Sst>| sst.properties().entries;
        let above: u64 = self.runs.iter().flatten().map(entries).sum();
        let below: u64 = self.below(version).iter().map(entries).sum();
        let is_worth_it = above >= below || self.is_apart() || self.runs.len() >= RUNS_MAX;
        self.runs.len() >= RUNS_MIN && is_worth_it
    }

    /// Whether ranges have lost so much time by its runs that it should be compacted. So that takes no more than a few times
    /// what they have lost, and writes no more than so many times what was added. LevelDB counts seeks of a file for that.
    pub fn is_read_often(&self, version: &LsmVersion) -> bool {
        let seeks: u64 = self.runs.iter().flatten().map(|sst| sst.seeks()).sum();
        let below: u64 = self.below(version).iter().map(|sst| sst.len()).sum();
        let above = self.bytes();
        seeks.saturating_mul(SEEK_BYTES) >= above + below && READ_SHARE * above >= below
    }

    /// Whether most of what was added lies in value files: to write the rest anew costs little beside that, and ranges
    /// read each run.
    fn is_apart(&self) -> bool {
        let values = |sst: &Arc<Sst>| -> u64 {
            let uses = sst.properties().values.iter();
            uses.map(|of_file| of_file.bytes).sum()
        };
        let apart: u64 = self.runs.iter().flatten().map(values).sum();
        apart >= APART_MIN * self.bytes()
    }
}

/// Whether there is a slice that is [read often](Slice::is_read_often).
pub fn has_slice_read_often(version: &LsmVersion) -> bool {
    let slices = Slice::all(version);
    slices.iter().any(|slice| slice.is_read_often(version))
}

/// Keys at which additions are cut so that their files make slices, each of which has about as much of level 1: those
/// of the `last` addition, and others if slices have become too few.
pub fn cuts(version: &LsmVersion, last: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let slices = Slice::all(version);
    let mut cuts = match (slices.is_empty(), last.is_empty()) {
        // Nothing must be cut as what is there, and keys may be others by now.
        (true, _) => Vec::new(),
        // The spill has just been opened.
        (false, true) => {
            let step = slices.len().div_ceil(SLICES_MAX);
            let begun = slices.into_iter().step_by(step).skip(1);
            begun.map(|slice| slice.smallest).collect()
        }
        (false, false) => last,
    };
    let files = version.level(1);
    let smallest = |nth: usize| &files[nth].properties().smallest;
    let begins = |cut: &Vec<u8>| files.partition_point(|sst| sst.properties().smallest < *cut);
    let mut starts: Vec<usize> = cuts.iter().map(begins).collect();
    let wanted = (files.len() / SLICE_FILES_MIN).clamp(1, SLICES_MAX);
    while cuts.len() + 1 < wanted {
        let ends = starts.iter().copied().chain([files.len()]);
        let slices = [0].into_iter().chain(starts.iter().copied()).zip(ends);
        let widest = slices.enumerate().max_by_key(|(_, (from, to))| to - from);
        let Some((nth, (from, to))) = widest else {
            break;
        };
        let middle = from.midpoint(to);
        if middle == from {
            break;
        }
        cuts.insert(nth, smallest(middle).clone());
        starts.insert(nth, middle);
    }
    cuts
}
