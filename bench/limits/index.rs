//! The index's own figures, beside their limits.

use std::fs;
use std::path::PathBuf;

use gphash::{AddressOrder, CachePolicy, Domain, Engine, Index, Stats};

use crate::kind::{Kind, Limit, limit_of};
use crate::limit::percent;
use crate::places::Layout;
use crate::report::{Finding, OfCache, OfIndex, Report};
use crate::workload::case::Case;
use crate::workload::drive::{Measured, Mode, drive_case, drive_index};
use crate::workload::plan::{Words, load, plan};
use crate::workload::target::Failure;

/// A table of keys of so many words and values of 128 bytes.
pub type Table<const K: usize> = Index<Words<K>, Words<16>>;

/// Operations in a batch of a load that is not what is measured.
pub const LOAD_BATCH: usize = 1 << 16;

/// Batches of a measurement on a loaded table, at most and at least; between them as many as make
/// so many operations.
const MOST_BATCHES: usize = 1000;
const LEAST_BATCHES: usize = 8;
const OPERATIONS: usize = 1 << 22;

/// How an index with keys of so many words is made and run.
pub struct Setting<const K: usize> {
    pub engine: Engine,
    /// Whether batches lie in device memory.
    pub on_device: bool,
    pub threads: usize,
    pub records: u64,
    pub cache_ratio: f64,
    pub cache_policy: CachePolicy,
    pub address_order: AddressOrder,
    pub mirror: bool,
    /// The index file, made anew for each table.
    pub path: PathBuf,
}

impl<const K: usize> Setting<K> {
    /// A workload in batches of this size.
    fn case(&self, kind: Kind, batch: usize) -> Case {
        Case {
            workload: kind.workload(),
            engine: self.engine,
            domain: Domain::Shared,
            records: self.records,
            wanted: (batch * MOST_BATCHES)
                .min(OPERATIONS)
                .max(batch * LEAST_BATCHES) as u64,
            batch,
            chosen: Some(kind.law()),
            theta: 0.99,
            key_size: 8 * K,
            value_size: 128,
            checksums: false,
            verify_checksums: false,
            cache_ratio: self.cache_ratio,
            cache_policy: self.cache_policy,
            address_order: self.address_order,
            mirror: self.mirror,
            on_device: self.on_device,
            warm_up: self.records.min(OPERATIONS as u64),
            reload_during: false,
            pinned: false,
            threads: self.threads,
            seed: 1,
            path: self.path.clone(),
        }
    }

    /// The table, in words.
    pub fn caption(&self) -> String {
        let case = self.case(Kind::Load, LOAD_BATCH);
        let (records, key, value) = (case.records, case.key_size, case.value_size);
        format!(
            "{records} records of {key} + {value} bytes, {}",
            case.caption()
        )
    }

    /// What another process is told that shall make the same table.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--engine={}", self.engine),
            format!("--records={}", self.records),
            format!("--key-size={}", 8 * K),
            format!("--cache-ratio={}", self.cache_ratio),
            format!("--cache-policy={}", self.cache_policy),
            format!("--address-order={}", self.address_order),
        ];
        if !self.mirror {
            arguments.push("--no-mirror".into());
        }
        arguments
    }

    /// What the table takes of a region.
    pub fn layout(&self) -> Layout {
        Layout {
            records: self.records,
            key_size: 8 * K as u64,
        }
    }

    /// A new, empty table.
    pub fn create(&self) -> Result<Table<K>, Failure> {
        let case = self.case(Kind::Load, LOAD_BATCH);
        Ok(Index::create(&case.path, &case.options())?)
    }

    /// The table that is there.
    pub fn reopen(&self) -> Result<Table<K>, Failure> {
        let case = self.case(Kind::Load, LOAD_BATCH);
        Ok(Index::open(&case.path, &case.options())?)
    }

    /// Inserts all records.
    pub fn load(&self, table: &Table<K>, batch: usize) -> Result<Measured, Failure> {
        let plan = load(self.records, batch, self.threads);
        drive_index(table, self.on_device, &plan, Mode::LOADING)
    }

    /// Lets the cache learn from what is to come.
    fn warm_up(&self, table: &Table<K>, kind: Kind) -> Result<(), Failure> {
        if let (Engine::Cuda { .. }, Some(case)) =
            (self.engine, self.case(kind, LOAD_BATCH).warming())
        {
            let mode = Mode::of(case.workload);
            drive_index(table, self.on_device, &plan(&case), mode)?;
            table.reload_cache()?;
        }
        Ok(())
    }

    fn run(&self, table: &Table<K>, kind: Kind, batch: usize) -> Result<Run, Failure> {
        self.run_case(table, &self.case(kind, batch))
    }

    fn run_case(&self, table: &Table<K>, case: &Case) -> Result<Run, Failure> {
        let plan = plan(case);
        let before = table.stats();
        let measured = drive_case(table, case, &plan, Mode::of(case.workload))?;
        Ok(Run {
            measured,
            before,
            after: table.stats(),
        })
    }
}

/// What was measured, with the figures of the table before and after it.
struct Run {
    measured: Measured,
    before: Stats,
    after: Stats,
}

impl Run {
    fn hit_rate(&self) -> f64 {
        ratio(
            self.after.cache_hits - self.before.cache_hits,
            self.after.cache_lookups - self.before.cache_lookups,
        )
    }

    fn touches(&self) -> f64 {
        ratio(
            self.after.pm_touches - self.before.pm_touches,
            self.measured.operations,
        )
    }

    fn finding<const K: usize>(
        &self,
        kind: Kind,
        setting: &Setting<K>,
        batch: usize,
        limits: &[Limit],
    ) -> Finding {
        let mops = self.measured.mops();
        let limit = limit_of(limits, kind, batch);
        let limit_mops = limit.map_or(0.0, |limit| limit.mops);
        Finding::Index(OfIndex {
            engine: self.after.engine.to_string(),
            workload: kind.name(),
            records: setting.records,
            key_size: 8 * K,
            batch,
            mops,
            limit_mops,
            percent_of_limit: percent(mops, limit_mops),
            limit: limit.map_or_else(String::new, |limit| limit.what.clone()),
            p50_us: self.measured.latencies.percentile_us(50),
            p99_us: self.measured.latencies.percentile_us(99),
            hit_rate: self.hit_rate(),
            pm_touches_per_op: self.touches(),
        })
    }
}

/// Steps of [`measure`].
pub fn steps(loads: usize, batches: usize) -> usize {
    loads + Kind::ON_LOADED.len() * batches + 1
}

/// Every workload at every batch size, loads at these; leaves the loaded table's file.
pub fn measure<const K: usize>(
    setting: &Setting<K>,
    loads: &[usize],
    batches: &[usize],
    limits: &[Limit],
    report: &mut Report,
) -> Result<(), Failure> {
    let mut kept = None;
    for &batch in loads {
        report.step(format!("load in batches of {batch}"));
        // Only one table has room at a time.
        drop(kept.take());
        let _ = fs::remove_file(&setting.path);
        let table = setting.create()?;
        let before = table.stats();
        let measured = setting.load(&table, batch)?;
        let run = Run {
            measured,
            before,
            after: table.stats(),
        };
        report.add(run.finding(Kind::Load, setting, batch, limits));
        kept = Some(table);
    }
    let table = kept.ok_or("no batch size")?;
    for kind in Kind::ON_LOADED {
        setting.warm_up(&table, kind)?;
        for &batch in batches {
            report.step(format!("{} in batches of {batch}", kind.name()));
            let run = setting.run(&table, kind, batch)?;
            report.add(run.finding(kind, setting, batch, limits));
        }
    }
    report.step("loading the cache");
    if let (Engine::Cuda { .. }, Some(&batch)) = (setting.engine, batches.last()) {
        loading(setting, &table, batch, report)?;
    }
    Ok(table.close()?)
}

/// What loading the cache takes from gets beside it, in turns.
fn loading<const K: usize>(
    setting: &Setting<K>,
    table: &Table<K>,
    batch: usize,
    report: &mut Report,
) -> Result<(), Failure> {
    setting.warm_up(table, Kind::Zipf)?;
    let (mut without, mut beside) = (0.0_f64, 0.0_f64);
    let alone = setting.case(Kind::Zipf, batch);
    let loading = Case {
        reload_during: true,
        ..alone.clone()
    };
    for _ in 0..2 {
        without = without.max(setting.run_case(table, &alone)?.measured.mops());
        beside = beside.max(setting.run_case(table, &loading)?.measured.mops());
    }
    for (what, value, unit) in [
        ("gets, Zipf 0.99", without, "M/s"),
        ("gets beside loads of the cache", beside, "M/s"),
        (
            "throughput left beside loads of the cache",
            percent(beside, without),
            "%",
        ),
    ] {
        let what = format!("index, {what}");
        report.add(Finding::Figure { what, value, unit });
    }
    Ok(())
}

/// Zipf-distributed gets with caches of different sizes, on the file that [`measure`] has left.
pub fn by_cache<const K: usize>(
    setting: &Setting<K>,
    ratios: &[f64],
    batch: usize,
    report: &mut Report,
) -> Result<(), Failure> {
    for &cache_ratio in ratios {
        report.step(format!("a cache of {cache_ratio}"));
        let setting = Setting {
            cache_ratio,
            path: setting.path.clone(),
            ..*setting
        };
        let table = setting.reopen()?;
        setting.warm_up(&table, Kind::Zipf)?;
        // The first batches of this length are slower, as at any start, which is not what is asked here.
        setting.run(&table, Kind::Zipf, batch)?;
        let run = setting.run(&table, Kind::Zipf, batch)?;
        report.add(Finding::Cache(OfCache {
            cache_ratio,
            batch,
            hit_rate: run.hit_rate(),
            mops: run.measured.mops(),
        }));
        table.close()?;
    }
    Ok(())
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
