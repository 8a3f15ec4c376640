//! Goes through the crash images of recorded states, until its budget is used up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::Kind;
use super::check::{check, explain};
use super::history::{Allowed, History, Model};
use super::kind::{keys, open};
use crate::pm::sim::{Image, Recording, Simulated};

/// Distinct images that all tests together check, unless `GPHASH_CRASH_IMAGES` says otherwise.
const IMAGES: u64 = 150_000;

/// How deep crashes of recoveries are nested.
const DEPTH: u32 = 3;

/// So many states are had from a recording at a time.
const STATES: usize = 64;

/// One in so many images is also recovered with crashes in between.
const NESTED: u32 = 6;

/// The seed of this run: `GPHASH_TEST_SEED`, or a random one.
pub(super) fn seed() -> u64 {
    let seed = std::env::var("GPHASH_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(rand::random)
}

/// The budget of a test that gets `percent` of all.
pub(super) fn budget(percent: u64) -> u64 {
    let images = std::env::var("GPHASH_CRASH_IMAGES").ok();
    let images = images.and_then(|images| images.parse().ok());
    (images.unwrap_or(IMAGES) * percent).div_ceil(100)
}

/// Runs `work` where the parallel passes of recoveries stay on one thread: they are so short that
/// waking others takes longer.
pub(super) fn on_one_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.unwrap().install(work)
}

/// Explores one of `runs` after the other until the budget of a test is used up that gets `percent`
/// of all. The first one has the seed of the run, so that the seed of any one repeats it at once.
pub(super) fn explore_runs(
    what: &str,
    runs: &str,
    percent: u64,
    mut run: impl FnMut(&mut Explorer, u64, &mut SmallRng) + Send,
) {
    on_one_thread(|| {
        let mut explorer = Explorer::new(budget(percent));
        let first = seed();
        println!("{what}: GPHASH_TEST_SEED={first}");
        let mut count = 0;
        while !explorer.is_spent() {
            let seed = first.wrapping_add(count);
            run(&mut explorer, seed, &mut rng(seed));
            count += 1;
        }
        explorer.report(&format!("{what}, {count} {runs}"));
    });
}

/// Tells, when a test fails, what it was at.
pub(super) struct Described {
    pub(super) seed: u64,
    pub(super) text: String,
}

impl Drop for Described {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("repeated by GPHASH_TEST_SEED={}: {}", self.seed, self.text);
        }
    }
}

/// What was checked.
#[derive(Debug, Default)]
pub(super) struct Explorer {
    /// Distinct images that may be checked.
    pub(super) budget: u64,
    /// Images that were made.
    pub(super) all: u64,
    /// Those of them that were opened: equal ones are opened once.
    pub(super) distinct: u64,
    /// Of the table under test: what was found in the images so far.
    seen: HashMap<u64, Model>,
}

impl Explorer {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.distinct >= self.budget
    }

    /// Checks images of the states of a recording, at most `most` of each, in random order: after power cuts, after
    /// the death of the process, and after crashes of their recoveries. Stops at `limit` distinct
    /// ones.
    pub(super) fn explore(
        &mut self,
        kind: &Kind,
        history: &History,
        recording: &Recording,
        count: u64,
        (most, limit): (usize, u64),
        rng: &mut SmallRng,
    ) {
        self.seen.clear();
        let mut order: Vec<usize> = (0..recording.count()).collect();
        order.shuffle(rng);
        let limit = self.distinct.saturating_add(limit).min(self.budget);
        for numbers in order.chunks_mut(STATES) {
            numbers.sort_unstable();
            for state in recording.states_at(numbers) {
                if self.distinct >= limit {
                    return;
                }
                let allowed = history.allowed(state.step, keys(count));
                let mut case = Case {
                    kind,
                    count,
                    allowed,
                    trail: vec![state.step],
                };
                let mut images = vec![state.process_crash()];
                images.extend(state.power_cuts(most, rng));
                for image in images {
                    if self.visit(&case, &image) && rng.random_ratio(1, NESTED) {
                        self.recover(&mut case, image.memory(), DEPTH, rng);
                    }
                }
                if rng.random_ratio(1, 2) {
                    self.recover(&mut case, state.after_kill(), DEPTH, rng);
                }
            }
        }
    }

    /// Checks an image, unless an equal one has been; then only whether what was found is still
    /// what was promised. Says whether it was a new one.
    fn visit(&mut self, case: &Case, image: &Image) -> bool {
        self.all += 1;
        match self.seen.entry(image.hash()) {
            Entry::Occupied(seen) => {
                explain(seen.get(), &case.allowed);
                false
            }
            Entry::Vacant(entry) => {
                let memory = image.memory();
                entry.insert(check(case.kind, memory, case.count, &case.allowed));
                self.distinct += 1;
                true
            }
        }
    }

    /// Recovers `memory`, and crashes and recovers that, `depth` times.
    fn recover(&mut self, case: &mut Case, memory: Simulated, depth: u32, rng: &mut SmallRng) {
        memory.record();
        let recording = open(memory).0.medium.recorded();
        let states = recording.states_at(&[rng.random_range(0..recording.count())]);
        let state = &states[0];
        case.trail.push(state.step);
        self.visit(case, &state.process_crash());
        for image in state.power_cuts(4, rng) {
            self.visit(case, &image);
        }
        if depth > 1 {
            let memory = if rng.random() {
                state.after_kill()
            } else {
                state.power_cut(rng).memory()
            };
            self.recover(case, memory, depth - 1, rng);
        }
        case.trail.pop();
    }

    /// Says what was checked, here and in all tests of this process so far.
    pub(super) fn report(&self, what: &str) {
        static ALL: AtomicU64 = AtomicU64::new(0);
        static DISTINCT: AtomicU64 = AtomicU64::new(0);
        let all = ALL.fetch_add(self.all, Ordering::Relaxed) + self.all;
        let distinct = DISTINCT.fetch_add(self.distinct, Ordering::Relaxed) + self.distinct;
        println!(
            "{what}: {} crash images hold what they must, {} of them distinct; in all tests so \
             far {all} and {distinct}",
            self.all, self.distinct
        );
    }
}

/// What the images of one state must hold.
struct Case<'k> {
    kind: &'k Kind,
    count: u64,
    allowed: Allowed,
    /// The step of the crash, and those of the crashes of recoveries after it.
    trail: Vec<u64>,
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("in {:?}, crashed at steps {:?}", self.kind, self.trail);
        }
    }
}

/// A generator for `seed`.
pub(super) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}
