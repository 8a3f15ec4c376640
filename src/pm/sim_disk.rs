//! A disk that exists only in a test: it knows what a power cut may take back of the files in a
//! directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rand::{Rng, RngExt};
use xxhash_rust::xxh3::Xxh3;

use super::{Call, Faults, FileEvent};

/// Bytes that reach the disk whole or not at all.
const SECTOR: usize = 512;

/// Hears of all that is done to files. After a power cut each sector holds what was certain, or any
/// version that was written since; the same goes for lengths, and for what a name leads to. An
/// `fdatasync` makes the contents and the length of its file certain, and an `fsync` of the directory
/// the names. One that [fails](Disk::fail) forgets, as Linux does, what it was to write: programs go on
/// seeing it, and no later one makes it certain unless it is written again.
#[derive(Debug, Default)]
pub struct Disk(Mutex<DiskInner>);

#[derive(Debug, Default)]
struct DiskInner {
    now: DiskState,
    /// What is going on, in the words of the test.
    moment: u64,
    recorded: Vec<(u64, DiskState)>,
    /// How often something was done to a file, by its name or else its extension.
    changes: BTreeMap<String, u64>,
    fails: Option<FailingCall>,
    /// What there was when it failed, with what was going on.
    failed: Option<(u64, DiskState)>,
}

/// A call that is to fail.
#[derive(Debug, Clone, Copy)]
struct FailingCall {
    /// Which calls count.
    counts: fn(Call) -> bool,
    /// How many of them succeed before.
    left: u64,
}

/// What a power cut may leave.
#[derive(Debug, Clone, Default)]
pub struct DiskState {
    names: BTreeMap<PathBuf, Name>,
    /// Shared with the states before and after in which they are the same: there is one at each change.
    files: Vec<Arc<FileState>>,
}

/// Which file a name leads to, by its number.
#[derive(Debug, Clone, Default)]
struct Name {
    certain: Option<usize>,
    /// Since then.
    pending: Vec<Option<usize>>,
}

#[derive(Debug, Clone, Default)]
struct FileState {
    certain: Arc<Vec<u8>>,
    /// Lengths since the last sync.
    lengths: Vec<usize>,
    /// What was written since the last sync, by the number of the sector.
    sectors: BTreeMap<usize, Arc<Vec<[u8; SECTOR]>>>,
    /// Those of them that a failed sync has forgotten.
    forgotten: BTreeSet<usize>,
}

/// Contents of files by their paths.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

fn sector(bytes: &[u8], number: usize) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let bytes = bytes.get(number * SECTOR..).unwrap_or_default();
    let len = bytes.len().min(SECTOR);
    sector[..len].copy_from_slice(&bytes[..len]);
    sector
}

/// Puts a sector where there is room for it.
fn put(contents: &mut [u8], number: usize, sector: &[u8; SECTOR]) {
    let room = contents.get_mut(number * SECTOR..).unwrap_or_default();
    let len = room.len().min(SECTOR);
    room[..len].copy_from_slice(&sector[..len]);
}

impl Name {
    fn now(&self) -> Option<usize> {
        *self.pending.last().unwrap_or(&self.certain)
    }
}

impl FileState {
    fn len(&self) -> usize {
        *self.lengths.last().unwrap_or(&self.certain.len())
    }

    /// What programs see of a sector.
    fn sector(&self, number: usize) -> [u8; SECTOR] {
        let written = self
            .sectors
            .get(&number)
            .and_then(|versions| versions.last());
        *written.unwrap_or(&sector(&self.certain, number))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        if at + bytes.len() > self.len() {
            self.lengths.push(at + bytes.len());
        }
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() {
            let before = self.sector(at / SECTOR);
            let mut version = before;
            let room = &mut version[at % SECTOR..];
            let (part, rest) = bytes.split_at(bytes.len().min(room.len()));
            room[..part.len()].copy_from_slice(part);
            // What is written once more can be left in no other way than before, unless it had been forgotten.
            if self.forgotten.remove(&(at / SECTOR)) || version != before {
                let versions = self.sectors.entry(at / SECTOR).or_default();
                Arc::make_mut(versions).push(version);
            }
            at += part.len();
            bytes = rest;
        }
    }

    fn set_len(&mut self, len: usize) {
        // What is cut off does not come back when the file grows again.
        let mut end = self.len();
        while end > len {
            let start = (end - 1) / SECTOR * SECTOR;
            let zeros = [0; SECTOR];
            let from = start.max(len);
            self.write(from, &zeros[..end - from]);
            end = from;
        }
        self.lengths.push(len);
    }

    fn contents(&self) -> Vec<u8> {
        let last = self.sectors.values().map(|versions| versions.len());
        let ways: Vec<usize> = iter::once(self.lengths.len()).chain(last).collect();
        self.chosen(&ways)
    }

    /// What is left where the length and each sector went these ways, 0 being what was certain.
    fn chosen(&self, ways: &[usize]) -> Vec<u8> {
        let len = match ways[0] {
            0 => self.certain.len(),
            nth => self.lengths[nth - 1],
        };
        let mut contents = vec![0; len];
        let kept = len.min(self.certain.len());
        contents[..kept].copy_from_slice(&self.certain[..kept]);
        for ((&number, versions), way) in self.sectors.iter().zip(&ways[1..]) {
            if let Some(nth) = way.checked_sub(1) {
                put(&mut contents, number, &versions[nth]);
            }
        }
        contents
    }

    fn sync(&mut self) {
        let len = self.len();
        let certain = Arc::make_mut(&mut self.certain);
        certain.resize(len, 0);
        self.sectors.retain(|number, versions| {
            let is_forgotten = self.forgotten.contains(number);
            if !is_forgotten {
                put(certain, *number, &versions[versions.len() - 1]);
            }
            is_forgotten
        });
        self.lengths.clear();
    }

    fn fail_sync(&mut self) {
        self.forgotten = self.sectors.keys().copied().collect();
    }
}

impl DiskState {
    /// What is there if only the processes die.
    pub fn files(&self) -> Files {
        let named = |(path, name): (&PathBuf, &Name)| {
            let contents = self.files[name.now()?].contents();
            Some((path.clone(), contents))
        };
        self.names.iter().filter_map(named).collect()
    }

    /// What a power cut may leave: all of it, if that are at most `most` images, else so many of
    /// them, chosen by `rng`.
    pub fn power_cuts(&self, most: usize, rng: &mut impl Rng) -> Vec<Files> {
        let options = self.options();
        let count = options.iter().try_fold(1usize, |product, &options| {
            product
                .checked_mul(options)
                .filter(|&product| product <= most)
        });
        match count {
            Some(count) => (0..count)
                .map(|nth| {
                    let mut rest = nth;
                    self.image(|options| {
                        let choice = rest % options;
                        rest /= options;
                        choice
                    })
                })
                .collect(),
            None => (0..most)
                .map(|_| {
                    // Many bugs show when a single sector is missing, or a single one has arrived.
                    let missing = [0.01, 0.1, 0.5, 0.9, 0.99][rng.random_range(0..5)];
                    self.image(|options| match rng.random_bool(missing) {
                        true => rng.random_range(0..options),
                        false => options - 1,
                    })
                })
                .collect(),
        }
    }

    /// How many ways there are for each name, length and sector.
    fn options(&self) -> Vec<usize> {
        let of_file = |file: &Arc<FileState>| {
            let sectors = file.sectors.values().map(|versions| 1 + versions.len());
            let sectors: Vec<usize> = sectors.collect();
            iter::once(1 + file.lengths.len()).chain(sectors)
        };
        let names = self.names.values().map(|name| 1 + name.pending.len());
        self.files.iter().flat_map(of_file).chain(names).collect()
    }

    /// The image in which `choose` says of each name, length and sector which of so many ways it
    /// went, the last one being the newest.
    fn image(&self, mut choose: impl FnMut(usize) -> usize) -> Files {
        // Contents are made of those alone that have a name: of most files that there have been, none has.
        let chosen: Vec<Vec<usize>> = self
            .files
            .iter()
            .map(|file| {
                let sectors = file.sectors.values().map(|versions| versions.len());
                let options = iter::once(file.lengths.len()).chain(sectors);
                options.map(|later| choose(1 + later)).collect()
            })
            .collect();
        let named = |(path, name): (&PathBuf, &Name)| {
            let file = match choose(1 + name.pending.len()) {
                0 => name.certain,
                nth => name.pending[nth - 1],
            };
            Some((path.clone(), self.files[file?].chosen(&chosen[file?])))
        };
        self.names.iter().filter_map(named).collect()
    }
}

impl Disk {
    /// A disk that holds `files` for certain, at `path`s of the real one to which they are written.
    pub fn holding(files: &Files) -> Arc<Self> {
        let mut now = DiskState::default();
        for (number, (path, contents)) in files.iter().enumerate() {
            write(path, contents).unwrap();
            let name = Name {
                certain: Some(number),
                pending: Vec::new(),
            };
            now.names.insert(path.clone(), name);
            now.files.push(Arc::new(FileState {
                certain: Arc::new(contents.clone()),
                ..FileState::default()
            }));
        }
        Arc::new(Self(Mutex::new(DiskInner {
            now,
            ..DiskInner::default()
        })))
    }

    /// A disk that goes on from `state`, whose files are written to their paths: all processes have
    /// died, and what was not certain still is not.
    pub fn after_death(state: &DiskState) -> Arc<Self> {
        for (path, contents) in &state.files() {
            write(path, contents).unwrap();
        }
        Arc::new(Self(Mutex::new(DiskInner {
            now: state.clone(),
            ..DiskInner::default()
        })))
    }

    /// Says what is going on from now on.
    pub fn begin(&self, moment: u64) {
        let mut state = self.state();
        state.moment = moment;
        let now = state.now.clone();
        state.recorded.push((moment, now));
    }

    /// Lets the call fail that comes after so many others that count, whatever they are of.
    pub fn fail(&self, counts: fn(Call) -> bool, after: u64) {
        self.state().fails = Some(FailingCall {
            counts,
            left: after,
        });
    }

    /// What there was when a call [failed](Self::fail), with what was going on.
    pub fn failed(&self) -> Option<(u64, DiskState)> {
        self.state().failed.clone()
    }

    /// What there is.
    pub fn now(&self) -> DiskState {
        self.state().now.clone()
    }

    /// What a power cut would have left, each time that something was done, with what was going on.
    pub fn recorded(&self) -> Vec<(u64, DiskState)> {
        std::mem::take(&mut self.state().recorded)
    }

    /// How often something was done to the files of each extension, or of each name if they have none.
    pub fn changes(&self) -> BTreeMap<String, u64> {
        self.state().changes.clone()
    }

    fn state(&self) -> MutexGuard<'_, DiskInner> {
        self.0.lock()
    }
}

impl Faults for Disk {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        match &mut state.fails {
            Some(fails) if (fails.counts)(call) => match fails.left.checked_sub(1) {
                Some(left) => {
                    fails.left = left;
                    return Ok(());
                }
                None => state.fails = None,
            },
            _ => return Ok(()),
        }
        let DiskState { names, files } = &mut state.now;
        if call == Call::Sync
            && let Some(number) = names.get(path).and_then(Name::now)
        {
            Arc::make_mut(&mut files[number]).fail_sync();
        }
        state.failed = Some((state.moment, state.now.clone()));
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    fn after(&self, event: FileEvent, path: &Path) {
        let mut guard = self.state();
        let state = &mut *guard;
        let kind = path.extension().or_else(|| path.file_name());
        let kind = kind.unwrap_or_default().to_string_lossy().into_owned();
        *state.changes.entry(kind).or_default() += 1;
        let DiskState { names, files } = &mut state.now;
        let name = names.entry(path.to_path_buf()).or_default();
        if matches!(event, FileEvent::Created) {
            name.pending.push(Some(files.len()));
            files.push(Arc::default());
        }
        let file = name.now().map(|number| Arc::make_mut(&mut files[number]));
        match (event, file) {
            (FileEvent::Wrote(at, bytes), Some(file)) => file.write(in_memory(at), bytes),
            (FileEvent::SetLen(len), Some(file)) => file.set_len(in_memory(len)),
            (FileEvent::Allocated(len), Some(file)) if in_memory(len) > file.len() => {
                file.set_len(in_memory(len));
            }
            (FileEvent::Punched(at, len), Some(file)) => {
                file.write(in_memory(at), &vec![0; in_memory(len)]);
            }
            (FileEvent::Synced, Some(file)) => file.sync(),
            (FileEvent::Removed, _) => name.pending.push(None),
            (FileEvent::Renamed(to), Some(_)) => {
                let number = name.now();
                name.pending.push(None);
                let name = names.entry(to.to_path_buf()).or_default();
                name.pending.push(number);
            }
            (FileEvent::SyncedDir, _) => {
                let dir = path.parent();
                for (_, name) in names.iter_mut().filter(|(path, _)| path.parent() == dir) {
                    name.certain = name.now();
                    name.pending.clear();
                }
            }
            _ => {}
        }
        let now = state.now.clone();
        state.recorded.push((state.moment, now));
    }
}

/// Equal for equal files.
pub fn hash(files: &BTreeMap<PathBuf, impl AsRef<[u8]>>) -> u64 {
    let mut hash = Xxh3::new();
    for (path, contents) in files {
        hash.update(path.as_os_str().as_encoded_bytes());
        let contents = contents.as_ref();
        hash.update(&(contents.len() as u64).to_le_bytes());
        hash.update(contents);
    }
    hash.digest()
}

/// Writes a file. One of zeros alone, as room that is held, takes no pages: to get and to give back as many as it is
/// long takes longer than to write all others.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    // Each byte is compared with the next one, many at a time.
    let is_empty = contents.is_empty();
    match is_empty || contents[0] == 0 && contents[1..] == contents[..contents.len() - 1] {
        true => File::create(path)?.set_len(contents.len() as u64),
        false => fs::write(path, contents),
    }
}

/// An offset in a file as one in memory.
fn in_memory(at: u64) -> usize {
    usize::try_from(at).expect("the file is in memory")
}

#[cfg(test)]
mod tests;
