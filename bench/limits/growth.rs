//! Tables of different sizes that crash, and that grow: how long it takes to open them again, how
//! full they get, and what growing costs the batches that run meanwhile.

use std::fs;
use std::process::{self, Command};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::index::{LOAD_BATCH, Setting, Table};
use crate::report::{Finding, OfRecovery, OfResize, Report};
use crate::workload::plan::{Words, key};
use crate::workload::target::Failure;

/// Operations of the batches that growing may make wait.
const BATCH: usize = 4096;

/// How full a table is from when on the batches are measured.
const NEARLY_FULL: f64 = 0.88;

/// Fills tables of these sizes, and of the last also says how full it was at each step.
pub fn measure<const K: usize>(
    setting: &Setting<K>,
    sizes: &[u64],
    report: &mut Report,
) -> Result<(), Failure> {
    let mut resizes = Vec::new();
    for (number, &records) in sizes.iter().enumerate() {
        let setting = Setting {
            records,
            path: setting.path.clone(),
            ..*setting
        };
        let last = number + 1 == sizes.len();
        report.step(format!("recovery of {records} items"));
        let table = setting.create()?;
        let outcome = fill(&table, &setting, last, report);
        drop(table);
        let _ = fs::remove_file(&setting.path);
        resizes.push(outcome?);
    }
    for resize in resizes {
        report.add(Finding::Resize(resize));
    }
    Ok(())
}

fn fill<const K: usize>(
    table: &Table<K>,
    setting: &Setting<K>,
    last: bool,
    report: &mut Report,
) -> Result<OfResize, Failure> {
    recover(setting, report)?;
    report.step(format!("growth of {} items", setting.records));
    let mut load = Load::new(table, setting.records);
    let empty = table.stats();
    let step = step(table);
    while (load.items as f64) < NEARLY_FULL * empty.slots as f64 {
        load.insert(step)?;
        load.note(last, report);
    }
    grow(load, last, report)
}

/// Goes on until the table has grown.
fn grow<const K: usize>(
    mut load: Load<K>,
    last: bool,
    report: &mut Report,
) -> Result<OfResize, Failure> {
    let full = load.table.stats();
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let mut load_factor = full.load_factor;
    let began = loop {
        let began = Instant::now();
        let wrote = load.insert(BATCH)?;
        if load.table.stats().slots != full.slots {
            break (began, wrote);
        }
        if load.items > full.slots {
            return Err("the table has more items than slots and has not grown".into());
        }
        load_factor = load.table.stats().load_factor;
        load.note(last, report);
        writes.push(wrote);
        reads.push(load.read()?);
    };
    let (began, mut longest_write) = began;
    let items = load.items;
    let most = items + full.slots;
    let mut longest_read = Duration::ZERO;
    let mut resize = began.elapsed();
    while load.table.stats().resizing {
        if load.items > most {
            return Err("the table has taken as many items again and still grows".into());
        }
        longest_read = longest_read.max(load.read()?);
        longest_write = longest_write.max(load.insert(BATCH)?);
        load.note(last, report);
        resize = began.elapsed();
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    Ok(OfResize {
        items,
        slots_before: full.slots,
        load_factor,
        resize_ms: ms(resize),
        batch: BATCH,
        longest_write_ms: ms(longest_write),
        longest_read_ms: ms(longest_read),
        usual_write_ms: ms(median(writes)),
        usual_read_ms: ms(median(reads)),
    })
}

/// Operations of a batch that are few enough not to step over the moment at which the table grows.
fn step<const K: usize>(table: &Table<K>) -> usize {
    LOAD_BATCH
        .min(usize::try_from(table.stats().slots).unwrap() / 64)
        .max(BATCH)
}

/// Fills a table and ends the process without closing it.
pub fn abandon<const K: usize>(setting: &Setting<K>) -> Result<(), Failure> {
    let table = setting.create()?;
    let mut load = Load::new(&table, setting.records);
    let step = step(&table);
    while load.items < setting.records {
        load.insert(step)?;
    }
    process::exit(0);
}

/// Opens what a process has left that died. (A copy of the file would lie in other pages of memory.)
fn recover<const K: usize>(setting: &Setting<K>, report: &mut Report) -> Result<(), Failure> {
    let crashed = Setting {
        path: setting.path.with_extension("crashed"),
        ..*setting
    };
    let ended = Command::new(std::env::current_exe()?)
        .arg("--abandon")
        .arg(&crashed.path)
        .args(crashed.arguments())
        .status()?;
    if !ended.success() {
        return Err(format!("the process that fills a table ended with {ended}").into());
    }
    let outcome = open(&crashed);
    let _ = fs::remove_file(&crashed.path);
    report.add(Finding::Recovery(outcome?));
    Ok(())
}

/// How long it takes to open a file and get an answer, and what of it the recovery took.
fn open<const K: usize>(crashed: &Setting<K>) -> Result<OfRecovery, Failure> {
    let began = Instant::now();
    let table = crashed.reopen()?;
    let first: Words<K> = key(0);
    let found = table.get_one(&first)?;
    let first_answer = began.elapsed();
    if found.is_none_or(|value| value[0] != first[0]) {
        return Err("the first item is not there after a crash".into());
    }
    let stats = table.stats();
    if stats.items < crashed.records {
        return Err(format!("{} of {} items came back", stats.items, crashed.records).into());
    }
    Ok(OfRecovery {
        items: stats.items,
        file_bytes: stats.file_len,
        first_answer_ms: first_answer.as_secs_f64() * 1e3,
        recovery_ms: table.recovery().elapsed.as_secs_f64() * 1e3,
    })
}

/// Inserts records one behind the other.
struct Load<'t, const K: usize> {
    table: &'t Table<K>,
    items: u64,
    /// Steps of the load factor that are kept.
    step: u64,
    noted: u64,
    random: SmallRng,
    values: Vec<Words<16>>,
}

impl<'t, const K: usize> Load<'t, K> {
    fn new(table: &'t Table<K>, records: u64) -> Self {
        Self {
            table,
            items: 0,
            step: records / 200,
            noted: 0,
            random: SmallRng::seed_from_u64(records),
            values: vec![[7; 16]; LOAD_BATCH],
        }
    }

    /// Inserts the next records; gives how long the call took.
    fn insert(&mut self, batch: usize) -> Result<Duration, Failure> {
        let keys: Vec<Words<K>> = (self.items..self.items + batch as u64).map(key).collect();
        let values = &mut self.values[..batch];
        for (value, key) in values.iter_mut().zip(&keys) {
            value[0] = key[0];
        }
        let began = Instant::now();
        let done = self.table.insert(&keys, values)?;
        let took = began.elapsed();
        if done.count_ones(..) != batch {
            return Err("a fresh key was there already".into());
        }
        self.items += batch as u64;
        Ok(took)
    }

    /// Reads records that are there; gives how long the call took.
    fn read(&mut self) -> Result<Duration, Failure> {
        let records = 0..self.items;
        let keys: Vec<Words<K>> = (0..BATCH)
            .map(|_| key(self.random.random_range(records.clone())))
            .collect();
        let values = &mut self.values[..BATCH];
        let began = Instant::now();
        let found = self.table.get(&keys, values)?;
        let took = began.elapsed();
        if found.count_ones(..) != BATCH {
            return Err("a key was lost while the table grew".into());
        }
        Ok(took)
    }

    /// Keeps how full the table is, from time to time.
    fn note(&mut self, wanted: bool, report: &mut Report) {
        if wanted && self.items >= self.noted + self.step {
            self.noted = self.items;
            report.add(Finding::Fill {
                items: self.items,
                load_factor: self.table.stats().load_factor,
            });
        }
    }
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations
        .get(durations.len() / 2)
        .copied()
        .unwrap_or_default()
}
