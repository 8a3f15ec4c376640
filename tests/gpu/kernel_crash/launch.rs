//! A launch of a kernel, and what a crash inside it may leave of the file.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use gphash::{Note, WriteTrace};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// What a launch has stored.
#[derive(Debug)]
pub struct Launch {
    pub kernel: &'static str,
    /// The file before it.
    pub before: Vec<u8>,
    pub notes: Vec<Note>,
}

impl Launch {
    /// How many notes there are up to each store and with it.
    pub fn stores(&self) -> Vec<usize> {
        let stores = self.notes.iter().enumerate();
        stores
            .filter(|(_, note)| !matches!(note.kind, Note::FENCE | Note::NOTHING))
            .map(|(nth, _)| nth + 1)
            .collect()
    }

    /// The file when all stores of the first `count` notes have been done, and no others.
    pub fn after(&self, count: usize) -> Vec<u8> {
        self.without(count, &[])
    }

    /// The same without some of them, given in their order.
    pub fn without(&self, count: usize, lost: &[usize]) -> Vec<u8> {
        let mut image = self.before.clone();
        let mut lost = lost.iter().peekable();
        for (nth, note) in self.notes[..count].iter().enumerate() {
            if lost.next_if(|&&next| next == nth).is_none() {
                apply(note, &mut image);
            }
        }
        image
    }

    /// Which of the first `count` notes are stores that their threads have not fenced by then, so
    /// that a power cut may take any of them back.
    pub fn unfenced(&self, count: usize) -> Vec<usize> {
        let mut pending: HashMap<u32, Vec<usize>> = HashMap::new();
        for (nth, note) in self.notes[..count].iter().enumerate() {
            match note.kind {
                Note::FENCE => drop(pending.remove(&note.thread)),
                Note::NOTHING => {}
                _ => pending.entry(note.thread).or_default().push(nth),
            }
        }
        let mut unfenced: Vec<usize> = pending.into_values().flatten().collect();
        unfenced.sort_unstable();
        unfenced
    }
}

/// The words of the file that a power cut after these launches may put back to what they were, since
/// no thread has fenced what it stored there: where each one is, and what it was. `now` is the file.
pub fn words_to_lose(launches: &[Launch], now: &[u8]) -> Vec<(usize, [u8; 8])> {
    let word = |image: &[u8], at: usize| -> [u8; 8] { image[at..at + 8].try_into().unwrap() };
    let mut words = BTreeMap::new();
    for launch in launches {
        let count = launch.notes.len();
        let unfenced = launch.unfenced(count);
        let (all, certain) = (launch.after(count), launch.without(count, &unfenced));
        for nth in unfenced {
            let at = usize::try_from(launch.notes[nth].at).unwrap() / 8 * 8;
            // What has been stored there since then is another store's business.
            if word(now, at) == word(&all, at) && word(&certain, at) != word(&all, at) {
                words.insert(at, word(&certain, at));
            }
        }
    }
    words.into_iter().collect()
}

/// Does what a note says.
fn apply(note: &Note, image: &mut [u8]) {
    let at = usize::try_from(note.at).unwrap();
    match note.kind {
        Note::FENCE | Note::NOTHING => {}
        Note::OR => {
            let word = &mut image[at..at + 8];
            let old = u64::from_le_bytes((&*word).try_into().unwrap());
            word.copy_from_slice(&(old | note.word).to_le_bytes());
        }
        len => {
            let bytes = note.word.to_le_bytes();
            image[at..at + len as usize].copy_from_slice(&bytes[..len as usize]);
        }
    }
}

/// Keeps the launches on one file. Some of them get a budget of stores: what the device has left of
/// the file then must be what the notes say, and only then the rest is stored.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    blocks: u32,
    short: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: SmallRng,
    /// Whether a launch may be cut short. It must not read from the file what it has stored there.
    has_budgets: bool,
    before: Vec<u8>,
    budget: u64,
    cut_short: u64,
    launches: Vec<Launch>,
}

/// Where the kernels are that note their stores.
const KERNELS_PTX: &str = "GPHASH_LOGGING_PTX";

impl Watch {
    pub fn new(path: &Path, seed: u64, has_budgets: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let blocks = 1 << rng.random_range(0..8);
        // Of half of the tables, threads of the host write most values.
        let short = [2, 1 << 13][rng.random_range(0..2)];
        let state = State {
            rng,
            has_budgets,
            before: Vec::new(),
            budget: 0,
            cut_short: 0,
            launches: Vec::new(),
        };
        Self {
            path: path.to_path_buf(),
            blocks,
            short,
            state: Mutex::new(state),
        }
    }

    /// The launches since the last time that have stored something.
    pub fn take(&self) -> Vec<Launch> {
        std::mem::take(&mut self.state.lock().unwrap().launches)
    }

    /// How many launches were cut short.
    pub fn cut_short(&self) -> u64 {
        self.state.lock().unwrap().cut_short
    }
}

impl WriteTrace for Watch {
    fn kernels(&self) -> &str {
        static KERNELS: OnceLock<String> = OnceLock::new();
        KERNELS.get_or_init(|| {
            // The device of the CPU has its own.
            if std::env::var_os("GPHASH_TEST_ENGINE").is_none() {
                return String::new();
            }
            let path = std::env::var_os(KERNELS_PTX).unwrap_or_else(|| {
                panic!(
                    "{KERNELS_PTX} names no file; `python3 ptx/build.py --logging FILE` makes one"
                )
            });
            fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", Path::new(&path).display()))
        })
    }

    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn short(&self) -> usize {
        self.short
    }

    fn begin(&self, _: &'static str) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.before = fs::read(&self.path).unwrap();
        state.budget = u64::MAX;
        if state.has_budgets && state.rng.random() {
            let scale = state.rng.random_range(0..12);
            state.budget = state.rng.random_range(0..1 << scale);
        }
        state.budget
    }

    fn end(&self, kernel: &'static str, notes: &[Note]) {
        let mut state = self.state.lock().unwrap();
        let launch = Launch {
            kernel,
            before: std::mem::take(&mut state.before),
            notes: notes.to_vec(),
        };
        let done = notes
            .len()
            .min(state.budget.try_into().unwrap_or(usize::MAX));
        let found = fs::read(&self.path).unwrap();
        assert!(
            found == launch.after(done),
            "after {done} of {} notes of {kernel} the file is not what they say",
            notes.len()
        );
        if done < notes.len() {
            state.cut_short += 1;
            let whole = launch.after(notes.len());
            let file = File::options().write(true).open(&self.path).unwrap();
            for note in &notes[done..] {
                let at = usize::try_from(note.at).unwrap() / 8 * 8;
                file.write_all_at(&whole[at..at + 8], at as u64).unwrap();
            }
        }
        if !launch.stores().is_empty() {
            state.launches.push(launch);
        }
    }
}
