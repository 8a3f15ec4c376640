//! One run: make the table, load it, execute the workload, print the figures.

use std::path::{Path, PathBuf};

use gphash::{Index, Stats};

use crate::case::Case;
use crate::drive::{Measured, Mode, drive};
use crate::peers::{Redb, papaya};
use crate::report::Line;
use crate::target::{Failure, Target, gphash};
use crate::workload::{Change, Plan, Words, Workload, load, plan};

/// Sizes of keys, in bytes, that [`run`] knows.
pub const KEY_SIZES: [&str; 5] = ["8", "16", "32", "64", "128"];

/// Sizes of values, in bytes, that [`run`] knows.
pub const VALUE_SIZES: [&str; 8] = ["8", "16", "32", "64", "128", "256", "512", "1024"];

/// Operations in a batch of a load that is not what is measured.
const LOAD_BATCH: usize = 1 << 16;

/// Runs `case`, and its peers if asked to, and prints a line for each.
pub fn run(case: &Case, peers: bool, json: bool) -> Result<(), Failure> {
    match case.key_size {
        8 => with_key::<1>(case, peers, json),
        16 => with_key::<2>(case, peers, json),
        32 => with_key::<4>(case, peers, json),
        64 => with_key::<8>(case, peers, json),
        128 => with_key::<16>(case, peers, json),
        size => Err(format!("keys of {size} bytes; there are {KEY_SIZES:?}").into()),
    }
}

fn with_key<const K: usize>(case: &Case, peers: bool, json: bool) -> Result<(), Failure> {
    match case.value_size {
        8 => with_sizes::<K, 1>(case, peers, json),
        16 => with_sizes::<K, 2>(case, peers, json),
        32 => with_sizes::<K, 4>(case, peers, json),
        64 => with_sizes::<K, 8>(case, peers, json),
        128 => with_sizes::<K, 16>(case, peers, json),
        256 => with_sizes::<K, 32>(case, peers, json),
        512 => with_sizes::<K, 64>(case, peers, json),
        1024 => with_sizes::<K, 128>(case, peers, json),
        size => Err(format!("values of {size} bytes; there are {VALUE_SIZES:?}").into()),
    }
}

fn with_sizes<const K: usize, const V: usize>(
    case: &Case,
    peers: bool,
    json: bool,
) -> Result<(), Failure> {
    let plans = Plans::new(case);
    let print = |line: &Line, ratio: Option<f64>| {
        if json {
            line.print_json();
        } else {
            line.print_text(case, ratio);
        }
    };

    let index = gphash::<Words<K>, Words<V>>(case)?;
    let doomed = Doomed(&case.path);
    let outcome = if case.on_device {
        on_device(index, &plans)
    } else {
        plans.execute(&index)
    };
    drop(doomed);
    let (measured, stats) = outcome?;
    let line = match stats {
        Some((before, after)) => Line::of_index(case, &measured, &before, &after),
        None => Line::of_peer(case, "gphash", &measured),
    };
    print(&line, None);

    if peers {
        let gphash = line.mops;
        let volatile = |name, target: &dyn Target<Words<K>, Words<V>>| {
            let (measured, _) = plans.execute::<V>(target)?;
            let line = Line::of_peer(case, name, &measured);
            print(&line, Some(gphash / line.mops));
            Ok::<(), Failure>(())
        };
        volatile(
            "papaya",
            &papaya::<_, _, std::hash::RandomState>(case.capacity()),
        )?;
        volatile(
            "papaya-foldhash",
            &papaya::<_, _, foldhash::fast::RandomState>(case.capacity()),
        )?;

        let path = redb_path(&case.path);
        if path.symlink_metadata().is_ok() {
            return Err(format!("{}: exists already", path.display()).into());
        }
        let doomed = Doomed(&path);
        let database = Redb::create(&path)?;
        let outcome = plans.execute::<V>(&database);
        drop(database);
        drop(doomed);
        let (measured, _) = outcome?;
        let line = Line::of_peer(case, "redb", &measured);
        print(&line, Some(gphash / line.mops));
    }
    Ok(())
}

#[cfg(feature = "cuda")]
fn on_device<const K: usize, const V: usize>(
    index: Index<Words<K>, Words<V>>,
    plans: &Plans<K>,
) -> Result<(Measured, BeforeAndAfter), Failure> {
    plans.execute(&crate::device::OnDevice(index))
}

#[cfg(not(feature = "cuda"))]
fn on_device<const K: usize, const V: usize>(
    _: Index<Words<K>, Words<V>>,
    _: &Plans<K>,
) -> Result<(Measured, BeforeAndAfter), Failure> {
    Err("--device-slices in a build without the feature `cuda`".into())
}

/// The load phase, and what is measured after it; of a load, the load phase itself is measured.
struct Plans<const K: usize> {
    load: Plan<Words<K>>,
    run: Option<(Plan<Words<K>>, Mode)>,
}

/// Figures of an index before and after what is measured.
type BeforeAndAfter = Option<(Stats, Stats)>;

impl<const K: usize> Plans<K> {
    fn new(case: &Case) -> Self {
        let mode = Mode {
            write: case.workload.write(),
            present: case.workload != Workload::Negative,
            loading: false,
        };
        let (batch, run) = match case.workload {
            Workload::Load => (case.batch, None),
            _ => (LOAD_BATCH, Some((plan(case), mode))),
        };
        Self {
            load: load(case.records, batch, case.threads),
            run,
        }
    }

    fn execute<const V: usize>(
        &self,
        target: &dyn Target<Words<K>, Words<V>>,
    ) -> Result<(Measured, BeforeAndAfter), Failure> {
        const LOADING: Mode = Mode {
            write: Change::Insert,
            present: true,
            loading: true,
        };
        let empty = target.stats();
        let loaded = drive(target, &self.load, LOADING)?;
        let Some((plan, mode)) = &self.run else {
            return Ok((loaded, empty.zip(target.stats())));
        };
        let before = target.stats();
        let measured = drive(target, plan, *mode)?;
        Ok((measured, before.zip(target.stats())))
    }
}

/// A file of this run, removed when the run is over or has failed.
struct Doomed<'p>(&'p Path);

impl Drop for Doomed<'_> {
    fn drop(&mut self) {
        // It may never have been made; and there is nobody to tell.
        let _ = std::fs::remove_file(self.0);
    }
}

fn redb_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".redb");
    name.into()
}
