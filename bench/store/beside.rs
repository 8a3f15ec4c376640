//! Single requests while another caller keeps all partitions busy with columns (KVCG §8): their latencies, and how long it
//! takes until they are as before when other records become hot.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gphash::Engine;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;

use crate::chart::{Axis, Chart, Line, Scale};
use crate::distribution::{Distribution, Law};
use crate::drive::{histogram, join};
use crate::gphash::{Call, Gphash};
use crate::plan::{Draw, Workload};
use crate::plot::decimal;
use crate::target::{Failure, HotGets, Manner, Settings, Target};

/// Over so long latencies are looked at together, to see when they are as before.
const SLICE: Duration = Duration::from_millis(50);

/// So many slices in a row must be as before.
const SETTLED_SLICES: usize = 3;

/// By how much the median may then be longer.
const SETTLED_FACTOR: f64 = 1.1;

/// One get in so many is compared with what was put.
const CHECKED: u64 = 64;

/// Columns that the other caller has, which he executes again and again.
const COLUMNS: usize = 4;

/// What is measured.
pub struct Plan<'p> {
    /// Of the store; columns are on.
    pub settings: &'p Settings,
    /// What the columns are of, in turn; before them nobody else calls.
    pub others: &'p [Workload],
    /// Requests in a column.
    pub batch: usize,
    /// Threads that get. One more puts.
    pub threads: u16,
    /// Of each measurement, in whose middle other records become hot.
    pub took: Duration,
    pub theta: f64,
    pub seed: u64,
}

/// Latencies, in nanoseconds.
type Latencies = Histogram<u64>;

/// What one measurement gave.
#[derive(Serialize)]
struct Row {
    store: String,
    beside: String,
    get_kops: f64,
    gets: Percentiles,
    puts: Percentiles,
    /// Million requests a second in columns.
    column_mops: f64,
    columns: Percentiles,
    /// Percentage of the gets that the hot cache has answered.
    hot_hits: Option<f64>,
    /// Milliseconds until gets were as before, when other records had become hot; nothing if they never were.
    recovered_ms: Option<f64>,
    #[serde(skip)]
    of_gets: Latencies,
}

/// Microseconds.
#[derive(Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    p9999: f64,
    max: f64,
}

impl Percentiles {
    fn of(latencies: &Latencies) -> Self {
        let at = |percent| latencies.value_at_percentile(percent) as f64 / 1e3;
        Self {
            p50: at(50.0),
            p99: at(99.0),
            p999: at(99.9),
            p9999: at(99.99),
            max: at(100.0),
        }
    }
}

/// What the threads share while they run.
struct Run<'r> {
    plan: &'r Plan<'r>,
    store: &'r Gphash,
    began: Instant,
}

/// What a thread has measured.
struct Single {
    all: Latencies,
    /// By [slices](SLICE).
    slices: Vec<Histogram<u32>>,
}

impl Run<'_> {
    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.plan.took
    }

    /// Single requests, one after the other, of records that are hot at the time.
    fn single(
        &self,
        seed: u64,
        request: impl Fn(u64) -> Result<Option<Vec<u8>>, Failure>,
        is_get: bool,
    ) -> Result<Single, Failure> {
        let sizes = self.plan.settings.sizes;
        let records = self.plan.settings.records;
        let distribution = Distribution::new(Law::Zipfian, records, self.plan.theta);
        let mut random = SmallRng::seed_from_u64(seed);
        let mut measured = Single {
            all: histogram()?,
            slices: Vec::new(),
        };
        for _ in 0..slices_in(self.plan.took) {
            measured
                .slices
                .push(Histogram::new_with_bounds(1, 10_000_000_000, 2)?);
        }
        let mut requests = 0;
        while !self.is_over() {
            let has_moved = 2 * self.began.elapsed() >= self.plan.took;
            let moved = if has_moved { records / 2 } else { 0 };
            let record = (distribution.draw(&mut random, 0, 0) + moved) % records;
            let start = Instant::now();
            let value = request(record)?;
            let took = start.elapsed();
            let nanos = u64::try_from(took.as_nanos())?;
            measured.all.saturating_record(nanos);
            let slice = slices_in(start.duration_since(self.began));
            if let Some(slice) = measured.slices.get_mut(slice) {
                slice.saturating_record(nanos);
            }
            requests += 1;
            if is_get && requests % CHECKED == 0 {
                sizes.check(record, value.as_deref())?;
            }
        }
        Ok(measured)
    }

    fn gets(&self, nth: u64) -> Result<Single, Failure> {
        let sizes = self.plan.settings.sizes;
        let get = |record| Ok(self.store.store().get(&sizes.key(record))?);
        self.single(self.plan.seed + nth, get, true)
    }

    fn puts(&self) -> Result<Single, Failure> {
        let sizes = self.plan.settings.sizes;
        let put = |record| {
            self.store
                .store()
                .put(sizes.key(record), sizes.value(record))?;
            Ok(None)
        };
        self.single(!self.plan.seed, put, false)
    }

    /// Columns, until the time is over or this says so.
    fn columns(&self, columns: &[Vec<Call>], ends: &AtomicBool) -> Result<Latencies, Failure> {
        let mut measured = histogram()?;
        for calls in columns.iter().cycle() {
            if ends.load(Ordering::Relaxed) || self.is_over() {
                break;
            }
            let calls = calls.clone();
            let start = Instant::now();
            let answers = self.store.execute(calls)?;
            measured.saturating_record(u64::try_from(start.elapsed().as_nanos())?);
            self.store.reuse(answers);
        }
        Ok(measured)
    }
}

/// Whole [slices](SLICE).
fn slices_in(time: Duration) -> usize {
    let slices = time.as_nanos() / SLICE.as_nanos();
    usize::try_from(slices).unwrap_or(usize::MAX)
}

/// What another caller executes.
struct Other {
    name: String,
    columns: Vec<Vec<Call>>,
}

impl Other {
    fn of(plan: &Plan, store: &Gphash, workload: Workload) -> Self {
        let draw = Draw {
            workload,
            law: Some(Law::Uniform),
            theta: plan.theta,
            records: plan.settings.records,
            added: 0,
            operations: (COLUMNS * plan.batch) as u64,
            batch: plan.batch,
            threads: COLUMNS,
            seed: plan.seed,
        };
        let columns = draw.operations().into_iter();
        let columns = columns.map(|operations| store.prepare(&operations, Manner::Batch));
        Self {
            name: workload.name(),
            columns: columns.collect(),
        }
    }
}

/// One measurement: gets of so many threads, and puts of one if there are any.
fn measure_one(
    plan: &Plan,
    (store, name): (&Gphash, &str),
    other: Option<&Other>,
    threads: u16,
) -> Result<Row, Failure> {
    let hot_before = store.hot_gets();
    let run = Run {
        plan,
        store,
        began: Instant::now(),
    };
    // Who fails ends what the others would wait for.
    let ends = AtomicBool::new(false);
    let (gets, puts, columns) = std::thread::scope(|scope| {
        let (run, ends) = (&run, &ends);
        let other = other.map(|other| scope.spawn(|| run.columns(&other.columns, ends)));
        let getting: Vec<_> = (0..threads)
            .map(|nth| scope.spawn(move || run.gets(nth.into())))
            .collect();
        let putting = (threads > 0).then(|| scope.spawn(|| run.puts()));
        let gets: Result<Vec<Single>, Failure> = getting.into_iter().map(join).collect();
        let puts = putting.map(join).transpose();
        ends.store(gets.is_err() || puts.is_err(), Ordering::Relaxed);
        let columns = other.map(join).transpose();
        Ok::<_, Failure>((gets?, puts?, columns?))
    })?;
    let took = run.began.elapsed().as_secs_f64();
    let mut all = histogram()?;
    let mut medians = Vec::new();
    for single in &gets {
        all.add(&single.all)?;
    }
    for slice in 0..gets.first().map_or(0, |single| single.slices.len()) {
        let mut of_slice = gets[0].slices[slice].clone();
        for single in &gets[1..] {
            of_slice.add(&single.slices[slice])?;
        }
        medians.push(of_slice.value_at_percentile(50.0) as f64);
    }
    let columns = columns.map_or_else(histogram, Ok)?;
    let puts = puts.map_or_else(histogram, |puts| Ok(puts.all))?;
    Ok(Row {
        store: name.to_owned(),
        beside: other.map_or("-".into(), |other| other.name.clone()),
        get_kops: all.len() as f64 / took / 1e3,
        gets: Percentiles::of(&all),
        puts: Percentiles::of(&puts),
        column_mops: columns.len() as f64 * plan.batch as f64 / took / 1e6,
        columns: Percentiles::of(&columns),
        hot_hits: hot_before
            .zip(store.hot_gets())
            .and_then(|(before, after): (HotGets, HotGets)| after.share_since(before)),
        recovered_ms: recovered(&medians).map(|slices| slices as f64 * SLICE.as_secs_f64() * 1e3),
        of_gets: if threads > 0 { all } else { columns },
    })
}

/// How many slices behind the middle the medians are as they were before it.
fn recovered(medians: &[f64]) -> Option<usize> {
    let (before, after) = medians.split_at(medians.len() / 2);
    // What was first may have been the beginning.
    let mut before = before[before.len() / 2..].to_vec();
    before.sort_by(f64::total_cmp);
    let usual = *before.get(before.len() / 2)?;
    let is_usual = |median: &f64| *median <= SETTLED_FACTOR * usual;
    after
        .windows(SETTLED_SLICES)
        .position(|slices| slices.iter().all(is_usual))
}

/// Measures a store of each kind under the plan, prints what comes of it, and draws it into a folder.
///
/// # Errors
/// Those of the store, and answers that are wrong.
pub fn measure(
    plan: &Plan,
    (path, plots): (&Path, Option<&Path>),
    json: bool,
) -> Result<(), Failure> {
    let mut engines = vec![(Engine::Cpu, "CPU")];
    match plan.settings.engine {
        Engine::Cpu => {}
        // It is the CPU where there is no GPU.
        Engine::Auto => engines.push((Engine::Auto, "auto")),
        engine => engines.push((engine, "GPU")),
    }
    let mut caches = vec![(0, "")];
    if plan.settings.hot_cache > 0 {
        caches.push((plan.settings.hot_cache, ", hot cache"));
    }
    let mut rows = Vec::new();
    for (engine, engine_name) in engines {
        for (hot_cache, cache_name) in &caches {
            let settings = Settings {
                engine,
                hot_cache: *hot_cache,
                ..*plan.settings
            };
            let name = format!("{engine_name}{cache_name}");
            let folder = path.join(name.replace(", ", "-").replace(' ', "-"));
            let store = Gphash::open(&folder, &settings)?;
            store.fill()?;
            // Whatever happens once in the life of a store.
            measure_one(plan, (&store, &name), None, plan.threads)?;
            let mut add = |row: Row| {
                print(&row, rows.is_empty(), json)?;
                rows.push(row);
                Ok::<_, Failure>(())
            };
            add(measure_one(plan, (&store, &name), None, plan.threads)?)?;
            for other in plan.others {
                let other = Other::of(plan, &store, *other);
                measure_one(plan, (&store, &name), Some(&other), 0)?;
                add(measure_one(
                    plan,
                    (&store, &name),
                    Some(&other),
                    plan.threads,
                )?)?;
            }
            if *hot_cache == 0 {
                // Gets that wait for their column.
                let gets = Other::of(plan, &store, Workload::C);
                let row = measure_one(plan, (&store, &name), Some(&gets), 0)?;
                let store = format!("{name}, in columns");
                let beside = "-".into();
                add(Row {
                    store,
                    beside,
                    ..row
                })?;
            }
            drop(store);
            std::fs::remove_dir_all(&folder)?;
        }
    }
    match plots {
        Some(folder) => draw(&rows, folder),
        None => Ok(()),
    }
}

fn print(row: &Row, is_first: bool, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string(row)?)?);
    }
    if is_first {
        writeln!(
            out,
            "{:<18} {:>6} {:>9} | gets, us: {:>6} {:>7} {:>8} {:>9} {:>9} | puts: {:>7} {:>8} {:>9} {:>9} | columns: {:>6} {:>8} {:>8} | {:>5} {:>9}",
            "store",
            "beside",
            "gets k/s",
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "max",
            "p50",
            "p99",
            "p99.99",
            "max",
            "M/s",
            "p50 ms",
            "p99 ms",
            "hits",
            "recovered"
        )?;
    }
    let (gets, puts, columns) = (&row.gets, &row.puts, &row.columns);
    writeln!(
        out,
        "{:<18} {:>6} {:>9.0} | {:>16.2} {:>7.1} {:>8.1} {:>9.1} {:>9.1} | {:>13.1} {:>8.1} {:>9.1} {:>9.1} | {:>15.1} {:>8.2} {:>8.2} | {:>5} {:>9}",
        row.store,
        row.beside,
        row.get_kops,
        gets.p50,
        gets.p99,
        gets.p999,
        gets.p9999,
        gets.max,
        puts.p50,
        puts.p99,
        puts.p9999,
        puts.max,
        row.column_mops,
        columns.p50 / 1e3,
        columns.p99 / 1e3,
        row.hot_hits.map_or("-".into(), |hits| format!("{hits:.1}")),
        row.recovered_ms
            .map_or("-".into(), |ms| format!("{ms:.0} ms")),
    )?;
    Ok(())
}

/// Cumulative latencies of gets, a line for each row.
fn draw(rows: &[Row], folder: &Path) -> Result<(), Failure> {
    let mut stores: Vec<&str> = rows.iter().map(|row| row.store.as_str()).collect();
    stores.dedup();
    let line = |row: &Row| {
        let values = row
            .of_gets
            .iter_quantiles(10)
            .take_while(|value| value.percentile() < 99.995);
        Some(Line {
            name: match row.beside.as_str() {
                "-" => row.store.clone(),
                beside => format!("{}, beside {beside}", row.store),
            },
            points: values
                .map(|value| (value.value_iterated_to() as f64 / 1e3, value.percentile()))
                .collect(),
            dashed: row.beside != "-",
            colour: stores.iter().position(|store| *store == row.store)?,
            right: false,
        })
    };
    let chart = Chart {
        title: "Single gets beside columns: cumulative latency".into(),
        x: Axis {
            label: "microseconds",
            scale: Scale::Decimal,
            mark: decimal,
        },
        y: Axis {
            label: "% of gets",
            scale: Scale::Linear,
            mark: |value| format!("{value}"),
        },
        right: None,
        lines: rows.iter().filter_map(line).collect(),
    };
    std::fs::create_dir_all(folder)?;
    Ok(chart.write(&folder.join("store-beside.svg"))?)
}
