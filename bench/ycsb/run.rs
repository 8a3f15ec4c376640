//! One run: make the table, load it, execute the workload, print the figures.

use std::path::{Path, PathBuf};

use gphash::{Engine, Index, Stats};

use crate::peers::{Redb, papaya};
use crate::report::Line;
use crate::workload::case::Case;
use crate::workload::drive::{Measured, Mode, drive, drive_case, drive_index};
use crate::workload::plan::{Plan, Words, Workload, load, plan};
use crate::workload::sizes::KEY_SIZES;
use crate::workload::target::{Failure, Target};

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

    let index = Index::create(&case.path, &case.options())?;
    let doomed = Doomed(&case.path);
    let outcome = plans.execute_on_index::<V>(&index, case);
    drop(index);
    drop(doomed);
    let (measured, before, after) = outcome?;
    let line = Line::of_index(case, &measured, &before, &after);
    print(&line, None);

    if peers {
        let gphash = line.mops;
        let volatile = |name, target: &dyn Target<Words<K>, Words<V>>| {
            let measured = plans.execute_on_peer::<V>(target)?;
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
        let outcome = plans.execute_on_peer::<V>(&database);
        drop(database);
        drop(doomed);
        let measured = outcome?;
        let line = Line::of_peer(case, "redb", &measured);
        print(&line, Some(gphash / line.mops));
    }
    Ok(())
}

/// The load phase, what warms the cache up, and what is measured after it; of a load, the load
/// phase itself is measured.
struct Plans<const K: usize> {
    load: Plan<Words<K>>,
    warm_up: Option<(Plan<Words<K>>, Mode)>,
    run: Option<(Plan<Words<K>>, Mode)>,
}

impl<const K: usize> Plans<K> {
    fn new(case: &Case) -> Self {
        let planned = |case: &Case| (plan(case), Mode::of(case.workload));
        let (batch, run) = match case.workload {
            Workload::Load => (case.batch, None),
            _ => (LOAD_BATCH, Some(planned(case))),
        };
        Self {
            load: load(case.records, batch, case.threads),
            // Only the CUDA engine has a cache; `auto` may turn out to be that.
            warm_up: match case.engine {
                Engine::Cpu => None,
                _ => case.warming().as_ref().map(planned),
            },
            run,
        }
    }

    /// What the run took, and the figures of the index before and after it.
    fn execute_on_index<const V: usize>(
        &self,
        index: &Index<Words<K>, Words<V>>,
        case: &Case,
    ) -> Result<(Measured, Stats, Stats), Failure> {
        let drive = |plan, mode| drive_index(index, case.on_device, plan, mode);
        let empty = index.stats();
        let loaded = drive(&self.load, Mode::LOADING)?;
        let Some((plan, mode)) = &self.run else {
            return Ok((loaded, empty, index.stats()));
        };
        if let Some((plan, mode)) = &self.warm_up {
            drive(plan, *mode)?;
            index.reload_cache()?;
        }
        let before = index.stats();
        let measured = drive_case(index, case, plan, *mode)?;
        Ok((measured, before, index.stats()))
    }

    fn execute_on_peer<const V: usize>(
        &self,
        peer: &dyn Target<Words<K>, Words<V>>,
    ) -> Result<Measured, Failure> {
        let loaded = drive(peer, &self.load, Mode::LOADING)?;
        match &self.run {
            Some((plan, mode)) => drive(peer, plan, *mode),
            None => Ok(loaded),
        }
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
