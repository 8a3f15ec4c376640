//! What to compact next.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::Job;
use super::slices::Slice;
use crate::lsm::sst::Sst;
use crate::lsm::version::{LEVELS, LiveValues, LsmVersion};
use crate::pool::backoff::Backoff;
use crate::{Error, Result};

/// Runs of level 0 from which on it is compacted, whatever its slices have, and at full speed.
pub const LEVEL_RUNS_MAX: usize = 26;

/// How many times what it may have a level has before it is compacted at full speed.
const OVERFULL_TIMES: u64 = 2;

/// Runs of level 0 from which on additions wait.
pub const STALL_RUNS_MIN: usize = 32;

/// The share of the entries of a hurried file that may be tombstones before it is due.
const HIDING_SHARE: u64 = 8;

/// How many times more each level may have than the one above.
const LEVEL_SIZE_RATIO: u64 = 10;

/// For how long nothing is tried with the files of a job that was refused something, at first and at most, each time for
/// twice as long: others rest for less.
const REFUSAL_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));

/// The same of damage.
const DAMAGE_PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));

/// What is known of a file that is not compacted.
#[derive(Debug)]
struct SetAside {
    until: Instant,
    /// How long that is.
    pause: Duration,
    error: Error,
}

/// Which files are being compacted, and where to go on.
#[derive(Debug, Default)]
pub struct Plan {
    busy: HashSet<u64>,
    /// Files of jobs that have failed, maybe for one of them.
    set_aside: HashMap<u64, SetAside>,
    /// The largest key that was last compacted from each level: it goes round.
    last_keys: [Vec<u8>; LEVELS as usize],
    tries: Backoff,
    pub is_stopping: bool,
}

impl Plan {
    /// A job whose files nobody else works on, if there is one to do. They are busy until it is
    /// [done](Self::done). Of `hurried` files, level 0 and what may hide values of deeper levels is due at once.
    pub fn pick(
        &mut self,
        version: &Arc<LsmVersion>,
        level_bytes: u64,
        hurried: &HashSet<u64>,
    ) -> Option<Job> {
        let slices = due_slices(version, level_bytes, hurried);
        let newest = slices.iter().any(|slice| self.can_do(version, slice));
        let job = slices.iter().find_map(|slice| self.slice(version, slice));
        let mut due: Vec<(u64, u32)> = (1..LEVELS - 1)
            // Level 0 waits for files of level 1, which must become free.
            .filter(|&level| !(newest && level == 1))
            .filter(|&level| is_due(version, level, level_bytes))
            .map(|level| (bytes(version, level) / limit(level, level_bytes), level))
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        let job = job
            .or_else(|| {
                due.iter()
                    .find_map(|&(_, level)| self.deeper(version, level))
            })
            .or_else(|| self.dead(version, hurried).filter(|_| !newest))
            .or_else(|| self.worn(version).filter(|_| !newest))
            // Nobody waits for it.
            .or_else(|| self.read_often(version))?;
        self.busy.extend(job.numbers());
        Some(job)
    }

    /// A slice of level 0, with what level 1 has of its keys.
    fn slice(&self, version: &Arc<LsmVersion>, slice: &Slice) -> Option<Job> {
        let below = slice.below(version).to_vec();
        let inputs = slice.runs.iter().cloned().chain([below]);
        self.free(Job::new(version, 1, inputs))
    }

    /// A slice that ranges have read often.
    fn read_often(&self, version: &Arc<LsmVersion>) -> Option<Job> {
        let slices = Slice::all(version);
        let mut often = slices.iter().filter(|slice| slice.is_read_often(version));
        often.find_map(|slice| self.slice(version, slice))
    }

    /// Whether a slice can be compacted, now or once its files are free.
    fn can_do(&self, version: &LsmVersion, slice: &Slice) -> bool {
        let mut files = slice.runs.iter().flatten().chain(slice.below(version));
        files.all(|sst| !self.is_set_aside(sst.number()))
    }

    /// A file of a level that is too large, each time the next one.
    fn deeper(&mut self, version: &Arc<LsmVersion>, level: u32) -> Option<Job> {
        let files = version.level(level);
        let last = &self.last_keys[level as usize];
        let start = files.partition_point(|sst| sst.properties().smallest <= *last);
        let mut round = files[start..].iter().chain(&files[..start]);
        let (sst, job) = round.find_map(|sst| Some((sst, self.file(version, level, sst)?)))?;
        self.last_keys[level as usize] = sst.properties().largest.clone();
        Some(job)
    }

    /// A file that has more tombstones than values, so that what they hide goes although its level
    /// is not too large; or that has some, if it is hurried.
    fn dead(&self, version: &Arc<LsmVersion>, hurried: &HashSet<u64>) -> Option<Job> {
        version
            .files()
            .filter(|(level, sst)| {
                let properties = sst.properties();
                let least = match hurried.contains(&sst.number()) {
                    true => properties.entries / HIDING_SHARE,
                    false => properties.entries / 2,
                };
                *level > 0 && properties.tombstones > least
            })
            .find_map(|(level, sst)| self.file(version, level, sst))
    }

    /// A file that refers to a value file which is worn, so that its values are written anew. Level 0 has them
    /// written when it is compacted.
    fn worn(&self, version: &Arc<LsmVersion>) -> Option<Job> {
        let is_worn = |file: &&LiveValues| file.is_worn();
        let mut worn = version.values().iter().filter(is_worn);
        worn.find_map(|worn| {
            let refers = |sst: &Arc<Sst>| {
                let values = &sst.properties().values;
                values.iter().any(|of| of.file == worn.file.number())
            };
            let mut files = version
                .files()
                .filter(|(level, sst)| *level > 0 && refers(sst));
            files.find_map(|(level, sst)| {
                let inputs = [vec![Arc::clone(sst)]];
                self.free(Job::new(version, level, inputs))
            })
        })
    }

    /// A file of a level, with what the next one has of its keys, if there is a next one.
    fn file(&self, version: &Arc<LsmVersion>, level: u32, sst: &Arc<Sst>) -> Option<Job> {
        let properties = sst.properties();
        let below = version.level(level + 1);
        let below = overlap(below, &properties.smallest, &properties.largest).to_vec();
        let into = (level + 1).min(LEVELS - 1);
        self.free(Job::new(version, into, [vec![Arc::clone(sst)], below]))
    }

    fn free(&self, job: Job) -> Option<Job> {
        let is_free = |number| !self.busy.contains(&number) && !self.is_set_aside(number);
        let all = job.numbers().all(is_free);
        all.then_some(job)
    }

    fn is_set_aside(&self, number: u64) -> bool {
        let found = self.set_aside.get(&number);
        found.is_some_and(|found| found.until > Instant::now())
    }

    /// When to try again what was set aside.
    pub fn retry(&self) -> Option<Duration> {
        let now = Instant::now();
        let untils = self.set_aside.values().map(|found| found.until);
        let next = untils.filter(|until| *until > now).min()?;
        Some(next - now)
    }

    /// Why files are set aside that a version has, if some are.
    pub fn failure(&self, version: &LsmVersion) -> Option<Error> {
        let numbers = version.files().map(|(_, sst)| sst.number());
        let mut numbers = numbers.filter(|&number| self.is_set_aside(number));
        let found = self.set_aside.get(&numbers.next()?)?;
        Some(found.error.clone())
    }

    /// Has all files tried again.
    pub fn try_all(&mut self) {
        self.set_aside.clear();
    }

    /// Whether some of these files are being compacted.
    pub fn is_busy_with(&self, files: &HashSet<u64>) -> bool {
        !self.busy.is_disjoint(files)
    }

    /// Notes how a job has ended. If it has failed, the others go on without its files.
    pub fn done(&mut self, numbers: impl Iterator<Item = u64>, done: &Result<()>) {
        let error = done.as_ref().err();
        let is_damage = error.is_some_and(|error| !error.is_refusal());
        let (shortest, longest) = if is_damage {
            DAMAGE_PAUSES
        } else {
            REFUSAL_PAUSES
        };
        let now = Instant::now();
        // What has not been tried for so long is gone.
        self.set_aside
            .retain(|_, found| found.until + DAMAGE_PAUSES.1 > now);
        for number in numbers {
            self.busy.remove(&number);
            let before = self.set_aside.remove(&number);
            if let Some(error) = error {
                let twice = before.map_or(shortest, |before| 2 * before.pause);
                let pause = twice.clamp(shortest, longest);
                let found = SetAside {
                    until: now + pause,
                    pause,
                    error: error.clone(),
                };
                self.set_aside.insert(number, found);
            }
        }
        if !is_damage {
            self.tries.note(done.is_ok());
        }
    }

    /// Whether the last job has failed, or files are damaged, so that it makes no sense to wait for the next one.
    pub fn is_failing(&self) -> bool {
        self.tries.is_failing() || self.retry().is_some()
    }

    /// How long to do nothing.
    pub fn rest(&self) -> Option<Duration> {
        self.tries.rest()
    }
}

fn bytes(version: &LsmVersion, level: u32) -> u64 {
    let files = version.files().filter(|(of, _)| *of == level);
    files.map(|(_, sst)| sst.len()).sum()
}

/// Bytes that a level may have.
fn limit(level: u32, level_bytes: u64) -> u64 {
    let times = LEVEL_SIZE_RATIO.saturating_pow(level.saturating_sub(1));
    level_bytes.saturating_mul(times).max(1)
}

fn is_due(version: &LsmVersion, level: u32, level_bytes: u64) -> bool {
    bytes(version, level) > limit(level, level_bytes)
}

/// Whether a level has far more bytes than it may have.
pub fn is_overfull(version: &LsmVersion, level_bytes: u64) -> bool {
    let most = |level| limit(level, level_bytes).saturating_mul(OVERFULL_TIMES);
    let is_far = |level| bytes(version, level) > most(level);
    (1..LEVELS - 1).any(is_far)
}

/// The slices of level 0 that are due, those of the most runs first. If all of it is too large, its largest one is.
fn due_slices(version: &LsmVersion, level_bytes: u64, hurried: &HashSet<u64>) -> Vec<Slice> {
    let mut slices = Slice::all(version);
    slices.sort_by_cached_key(|slice| Reverse((slice.runs.len(), slice.bytes())));
    // Many slices of few runs can be many runs, all of which a reader asks.
    let many = version.newest().len() >= LEVEL_RUNS_MAX;
    let mut is_large = many || is_due(version, 0, level_bytes);
    let is_hurried = |slice: &Slice| {
        let mut files = slice.runs.iter().flatten();
        files.any(|sst| hurried.contains(&sst.number()))
    };
    slices.retain(|slice| {
        std::mem::take(&mut is_large) || slice.is_due(version) || is_hurried(slice)
    });
    slices
}

/// The files that may have keys from `smallest` to `largest`.
pub fn overlap<'v>(files: &'v [Arc<Sst>], smallest: &[u8], largest: &[u8]) -> &'v [Arc<Sst>] {
    let from = files.partition_point(|sst| *sst.properties().largest < *smallest);
    let to = files.partition_point(|sst| *sst.properties().smallest <= *largest);
    &files[from..to.max(from)]
}

#[cfg(test)]
mod tests;
