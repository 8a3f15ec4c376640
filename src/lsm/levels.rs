//! The files of an open spill, and how they come and go.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::cache::{FileCache, FileKind};
use super::compaction::{
    Job, LEVEL_RUNS_MAX, Plan, STALL_RUNS_MIN, compact_due, cuts, has_slice_read_often, is_overfull,
};
use super::sst;
use super::sst::{Sst, Writer, is_next};
use super::stats::Counts;
use super::values;
use super::values::{Value, ValueFile, ValueWriter};
use super::version::{LEVELS, LsmVersion};
use super::{Catalog, Entry, LevelFile, SpillOptions};
#[cfg(feature = "cuda")]
use super::{pieces::PIECE_BYTES, sst::MadeBlock, values::ValueUse};
use crate::pm::Dir;
use crate::pool::parallel;
use crate::pool::rate_limiter::Lift;
use crate::pool::worker::{Worker, words};
use crate::{Error, Result};

/// The longest time that an addition waits for compaction.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);

/// After so many reads of files of level 0 for ranges it is looked whether they are worth a compaction.
const SEEKS_ASKED: u64 = 1 << 12;

/// What all threads of a spill share.
pub struct Levels {
    options: SpillOptions,
    catalog: Arc<dyn Catalog>,
    cache: Arc<FileCache>,
    current: RwLock<Arc<LsmVersion>>,
    /// That has no files: most stores have none, and asking takes a load.
    is_empty: AtomicBool,
    next_number: AtomicU64,
    /// Files that an edit which failed may have taken into the list; they stay until another one
    /// succeeds. Held by the one who edits.
    doubtful: Mutex<Vec<Arc<Sst>>>,
    plan: Mutex<Plan>,
    /// There while compaction is so late that it does not wait for its rate.
    behind: Mutex<Option<Lift>>,
    /// Files of level 0 that were read for ranges.
    seeks: AtomicU64,
    /// Keys at which additions are cut.
    cuts: Mutex<Vec<Vec<u8>>>,
    /// Something was compacted, or not.
    pub changed: Condvar,
    /// The threads that compact.
    workers: Vec<Worker>,
    pub counts: Counts,
}

impl Levels {
    /// See [`Spill::open`](super::Spill::open).
    pub fn open(
        dir: Dir,
        files: &[LevelFile],
        catalog: Arc<dyn Catalog>,
        options: SpillOptions,
    ) -> Result<Self> {
        dir.create()?;
        let names = dir.names()?;
        let (open_files, meta) = (options.open_files, Arc::clone(&options.meta));
        let cache = Arc::new(FileCache::new(dir, open_files, options.cache_bytes, meta));
        let open = |file: &LevelFile| {
            let sst = Sst::open(&cache, options.store_id, file)?;
            Ok((file.level, Arc::new(sst)))
        };
        let opened = parallel::map(files, open)
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        let dir = cache.dir();
        let version = LsmVersion::new(options.store_id, dir.path(), opened)?;
        let number = |name: &String| sst::number(name).or_else(|| values::number(name));
        let there = || names.iter().filter_map(number);
        let counts = |number| files.iter().any(|file| file.number == number);
        let is_old = |name: &&String| {
            let is_old_sst = sst::number(name).is_some_and(|number| !counts(number));
            let of_values = values::number(name);
            let has_old_values = of_values.is_some_and(|number| !version.refers_to(number));
            sst::is_left_behind(name) || is_old_sst || has_old_values
        };
        let old: Vec<&String> = names.iter().filter(is_old).collect();
        if !old.is_empty() {
            // The list may not be durable yet: a power cut could bring back one that has them.
            catalog.edit(&[], &[])?;
        }
        for name in old {
            if let Err(error) = dir.remove_file(name) {
                tracing::warn!(%error, "an obsolete file stays");
            }
        }
        let numbers = there().chain(files.iter().map(|file| file.number));
        // A number is used once: what bears it is what it was.
        let next_number = numbers.max().unwrap_or(0).saturating_add(1);
        let next_number = next_number.max(options.next_number);
        let workers = (0..options.threads).map(|_| Worker::new("gphash-compaction"));
        let workers = workers.collect();
        let behind = Mutex::new(lift_if_behind(&version, &options));
        Ok(Self {
            behind,
            is_empty: AtomicBool::new(version.is_empty()),
            current: RwLock::new(Arc::new(version)),
            next_number: AtomicU64::new(next_number),
            options,
            catalog,
            cache,
            doubtful: Mutex::new(Vec::new()),
            plan: Mutex::new(Plan::default()),
            seeks: AtomicU64::new(0),
            cuts: Mutex::default(),
            changed: Condvar::new(),
            workers,
            counts: Counts::default(),
        })
    }

    /// See [`Catalog::may_compact`].
    pub fn may_compact(&self) -> bool {
        self.catalog.may_compact()
    }

    pub fn options(&self) -> &SpillOptions {
        &self.options
    }

    pub fn dir(&self) -> &Dir {
        self.cache.dir()
    }

    pub fn cache(&self) -> &FileCache {
        &self.cache
    }

    /// A number that no file has had.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// What it holds at this moment.
    pub fn version(&self) -> Arc<LsmVersion> {
        let current = self.current.read();
        Arc::clone(&current)
    }

    /// What it holds at this moment, if there is anything.
    #[inline]
    pub fn version_if_any(&self) -> Option<Arc<LsmVersion>> {
        (!self.is_empty.load(Ordering::Acquire)).then(|| self.version())
    }

    /// What to compact.
    pub fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock()
    }

    /// See [`Spill::cuts`](super::Spill::cuts).
    pub fn cuts(&self) -> Vec<Vec<u8>> {
        let version = self.version();
        let mut last = self.cuts.lock();
        *last = cuts(&version, std::mem::take(&mut *last));
        last.clone()
    }

    /// Makes the list of files certain, if an edit of it has failed.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn retry_failed_edit(&self) -> Result<()> {
        let mut doubtful = self.doubtful.lock();
        if !doubtful.is_empty() {
            self.catalog.edit(&[], &[])?;
            forget(&mut doubtful);
        }
        Ok(())
    }

    /// Takes the files with some numbers out of the version, and then files into it, on a level.
    ///
    /// # Errors
    /// What the operating system answers. The version is what it was; a crash may leave the list
    /// changed.
    pub fn edit(&self, added: &[Arc<Sst>], level: u32, removed: &[u64]) -> Result<()> {
        let mut doubtful = self.doubtful.lock();
        let current = self.version();
        let (gone, stay): (Vec<_>, Vec<_>) = current
            .files()
            .map(|(level, sst)| (level, Arc::clone(sst)))
            .partition(|(_, sst)| removed.contains(&sst.number()));
        let come = added.iter().map(|sst| (level, Arc::clone(sst)));
        let store_id = self.options.store_id;
        let next = LsmVersion::new(store_id, self.dir().path(), stay.into_iter().chain(come));
        let is_new = |sst: &&Arc<Sst>| !removed.contains(&sst.number());
        let next = next.inspect_err(|_| {
            let new = added.iter().filter(is_new);
            new.for_each(|sst| sst.set_obsolete());
        })?;
        let listed: Vec<LevelFile> = added
            .iter()
            .map(|sst| LevelFile {
                number: sst.number(),
                level,
                len: sst.len(),
            })
            .collect();
        if let Err(error) = self.catalog.edit(&listed, removed) {
            doubtful.extend(added.iter().filter(is_new).cloned());
            return Err(error);
        }
        *self.behind.lock() = lift_if_behind(&next, &self.options);
        {
            let mut current = self.current.write();
            self.is_empty.store(next.is_empty(), Ordering::Release);
            *current = Arc::new(next);
        }
        forget(&mut doubtful);
        let is_moved = |number| listed.iter().any(|file| file.number == number);
        for (_, sst) in gone.iter().filter(|(_, sst)| !is_moved(sst.number())) {
            sst.set_obsolete();
        }
        drop((gone, current));
        self.cache.sweep();
        Ok(())
    }

    /// See [`Spill::add_seeks`](super::Spill::add_seeks).
    pub fn add_seeks(&self, version: &LsmVersion, key: &[u8], count: u64) {
        let runs = version.newest().iter();
        let mut seeks = 0;
        for sst in runs.filter_map(|run| run.find(key)) {
            sst.add_seeks(count);
            seeks += count;
        }
        let before = self.seeks.fetch_add(seeks, Ordering::Relaxed);
        if is_next(before, before + seeks, SEEKS_ASKED) && has_slice_read_often(version) {
            self.wake();
        }
    }

    /// Tells the threads that compact of a new version.
    pub fn wake(&self) {
        let version = self.version();
        if version.is_empty() && !self.cache.has_obsolete() {
            return;
        }
        self.workers.iter().for_each(Worker::call_if_possible);
    }

    /// The threads that compact.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Executes a job that was picked.
    ///
    /// # Errors
    /// Those of [`Job::run`].
    pub fn finish(&self, job: &Job) -> Result<()> {
        let run = || self.counts.compaction.time(|| job.run(self));
        let ran = catch_unwind(AssertUnwindSafe(run));
        // Also after a panic: whoever waits for its files must not wait for ever.
        let done = match &ran {
            Ok(done) => done.clone(),
            Err(panic) => Err(Error::Broken {
                path: self.dir().path().to_path_buf(),
                found: words(&**panic),
            }),
        };
        self.plan().done(job.numbers(), &done);
        self.changed.notify_all();
        // What was in its way may be due.
        self.wake();
        ran.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Compacts what hides values of other files, and what is due anyway, beside the threads that do so by themselves.
    /// `between` is told how many files of how many have gone, and says whether to go on.
    ///
    /// # Errors
    /// Those of [`Job::run`]. If files are damaged, or cannot be read, the others are compacted all the same.
    pub fn compact_all(&self, between: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let mut failed: HashMap<u64, Error> = HashMap::new();
        // What hides a value may have to go down level by level.
        for _ in 0..LEVELS {
            let numbers = || -> HashSet<u64> {
                let version = self.version();
                version.files().map(|(_, sst)| sst.number()).collect()
            };
            let there = numbers();
            let mut is_changed = false;
            while self.may_compact() {
                let mut plan = self.plan();
                if plan.is_stopping {
                    return Ok(());
                }
                let job = plan.pick(&self.version(), self.options.level_bytes, &there);
                if job.is_none() && plan.is_busy_with(&there) {
                    self.changed.wait_for(&mut plan, STALL_TIME_MAX);
                    continue;
                }
                let Some(job) = job else { break };
                if let Some(error) = job.numbers().find_map(|number| failed.get(&number)) {
                    // Others are left that were not tried.
                    plan.done(job.numbers(), &Err(error.clone()));
                    continue;
                }
                drop(plan);
                if let Err(error) = self.finish(&job) {
                    if matches!(error, Error::NoSpace { .. } | Error::ReadOnly { .. }) {
                        return Err(error);
                    }
                    failed.extend(job.numbers().map(|number| (number, error.clone())));
                }
                is_changed = true;
                let left = numbers().intersection(&there).count() as u64;
                let all = there.len() as u64;
                if !between(all - left, all) {
                    return Ok(());
                }
            }
            if !is_changed {
                break;
            }
        }
        self.cache.sweep();
        match self.plan().failure(&self.version()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits while there are too many runs on level 0, but not long, and not if compaction fails. If there is no thread to be
    /// had that compacts, the caller does.
    pub fn stall(&self) {
        let is_behind = || self.version().newest().len() >= STALL_RUNS_MIN;
        let mut plan = self.plan();
        if self.options.threads == 0 || !is_behind() || plan.is_failing() {
            return;
        }
        let goes_on = |plan: &mut Plan| is_behind() && !plan.is_failing() && !plan.is_stopping;
        let has_thread = self.workers.iter().any(|worker| worker.call().is_ok());
        self.counts.stalls.time(|| {
            if !has_thread {
                tracing::warn!("files are compacted by who waits for that");
                drop(plan);
                let _lift = self.options.rate.lift();
                compact_due(self);
                return;
            }
            self.changed
                .wait_while_for(&mut plan, goes_on, STALL_TIME_MAX);
            drop(plan);
        });
    }
}

/// A reason for compactions not to wait for their rate: additions would soon wait for them, or a level grows without end.
fn lift_if_behind(version: &LsmVersion, options: &SpillOptions) -> Option<Lift> {
    let is_late =
        || version.newest().len() >= LEVEL_RUNS_MAX || is_overfull(version, options.level_bytes);
    (options.rate.has_bound() && is_late()).then(|| options.rate.lift())
}

/// Lets files be removed that no list can have any longer.
fn forget(files: &mut Vec<Arc<Sst>>) {
    for sst in files.drain(..) {
        sst.set_obsolete();
    }
}

/// Files that are being written, one after the other, and value files beside them. Unless it is finished, dropping
/// it removes them.
pub struct Output<'l> {
    levels: &'l Levels,
    level: u32,
    writer: Option<(u64, Writer)>,
    /// What all entries so far count.
    position: u64,
    files: Vec<Arc<Sst>>,
    /// Bytes of files and value files that are written.
    written: u64,
    values: Option<ValueWriter>,
    /// The value files, finished or not.
    value_files: Vec<Arc<ValueFile>>,
}

impl<'l> Output<'l> {
    /// Files for a level.
    pub fn new(levels: &'l Levels, level: u32) -> Self {
        Self {
            levels,
            level,
            writer: None,
            position: 0,
            files: Vec::new(),
            written: 0,
            values: None,
            value_files: Vec::new(),
        }
    }

    /// Adds an entry, whose key is behind those of all others. A long value goes into a value file.
    ///
    /// # Errors
    /// What the operating system answers; the output is of no use then.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let mut entry = *entry;
        if let Some(Value::Inline(value)) = entry.value
            && value.len() >= self.levels.options.value_bytes_min
        {
            entry.value = Some(self.add_value(value)?);
        }
        let (_, writer) = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let levels = self.levels;
                let number = levels.next_number();
                let (name, id) = (sst::name(number), levels.options.store_id);
                let writer = Writer::create(levels.dir(), name, id, number, self.position)?;
                self.writer.insert((number, writer))
            }
        };
        // Threads that compact would wait for each other if each entry asked.
        match writer.is_full() {
            true => self.levels.catalog.write(&mut || writer.add(&entry))?,
            false => writer.add(&entry)?,
        }
        let last = std::mem::replace(&mut self.position, writer.position());
        if is_next(last, self.position, self.levels.options.file_bytes) {
            self.end_file()?;
        }
        Ok(())
    }

    /// Adds a file whose data blocks are made already; see [`Writer::add_blocks`].
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[cfg(feature = "cuda")]
    pub fn add_file(
        &mut self,
        number: u64,
        blocks: &[MadeBlock],
        bytes: &[u8],
        filter: &[u8],
        values: Vec<ValueUse>,
    ) -> Result<()> {
        let levels = self.levels;
        let (name, id) = (sst::name(number), levels.options.store_id);
        let mut writer = Writer::create(levels.dir(), name, id, number, 0)?;
        for piece in bytes.chunks(PIECE_BYTES) {
            levels.catalog.write(&mut || writer.write(piece))?;
        }
        writer.add_blocks(blocks, filter, values);
        self.writer = Some((number, writer));
        self.end_file()
    }

    /// Bytes of all files and value files so far.
    pub fn written(&self) -> u64 {
        let file = self.writer.as_ref().map_or(0, |(_, writer)| writer.len());
        let values = self.values.as_ref().map_or(0, ValueWriter::len);
        self.written + file + values
    }

    fn add_value(&mut self, value: &[u8]) -> Result<Value<'static>> {
        let levels = self.levels;
        let writer = match &mut self.values {
            Some(writer) => writer,
            None => {
                let (id, number) = (levels.options.store_id, levels.next_number());
                let writer = ValueWriter::create(&levels.cache, id, number)?;
                self.value_files.push(Arc::clone(writer.file()));
                self.values.insert(writer)
            }
        };
        let writes = writer.is_full_for(value.len());
        let mut reference = None;
        let mut add = || {
            reference = Some(writer.add(value)?);
            Ok(())
        };
        match writes {
            true => levels.catalog.write(&mut add)?,
            false => add()?,
        }
        let reference = reference.expect("it was added");
        if writer.len() >= levels.options.value_file_bytes {
            self.end_values()?;
        }
        Ok(Value::Apart(reference))
    }

    fn end_values(&mut self) -> Result<()> {
        let mut values = self.values.take();
        self.written += values.as_ref().map_or(0, ValueWriter::len);
        self.levels.catalog.write(&mut || {
            let ended = values.take().map(ValueWriter::finish);
            ended.unwrap_or(Ok(()))
        })
    }

    fn end_file(&mut self) -> Result<()> {
        let Some((number, writer)) = self.writer.take() else {
            return Ok(());
        };
        let levels = self.levels;
        if let Some(values) = &mut self.values {
            levels.catalog.write(&mut || values.flush())?;
        }
        let mut writer = Some(writer);
        let mut len = 0;
        levels.catalog.write(&mut || {
            if let Some(writer) = writer.take() {
                len = writer.finish()?;
            }
            Ok(())
        })?;
        self.written += len;
        let file = LevelFile {
            number,
            level: self.level,
            len,
        };
        let opened = Sst::open(&levels.cache, levels.options.store_id, &file);
        let sst = opened.inspect_err(|_| {
            // Nobody has heard of it.
            levels.cache.expect();
            levels.cache.give_up(FileKind::Sorted, number, 0);
        })?;
        self.files.push(Arc::new(sst));
        Ok(())
    }

    /// Makes the files durable with their names.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn finish(&mut self) -> Result<()> {
        self.end_file()?;
        self.end_values()?;
        self.files.first().map_or(Ok(()), |sst| sst.sync_names())
    }

    /// Takes the files, of which the catalog does not speak yet. They must be [finished](Self::finish).
    pub fn into_files(mut self) -> Vec<Arc<Sst>> {
        std::mem::take(&mut self.files)
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        forget(&mut self.files);
        self.values = None;
        for file in self.value_files.drain(..) {
            file.set_obsolete_if_unused();
        }
        self.levels.cache.sweep();
    }
}
