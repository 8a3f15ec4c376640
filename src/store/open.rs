//! Opening a store: its directory, its index, and what the log holds beyond it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossbeam_utils::sync::ShardedLock;
use parking_lot::Mutex;

use super::batch::{Changed, Sorter};
use super::budget::Budget;
use super::directory::Directory;
use super::history::{History, Snapshots};
use super::options::{Durability, StoreOptions};
use super::state::{State, Visible};
use super::threads::Threads;
use super::tiers::Tiers;
use super::view::Order;
use super::wal::Log;
use super::wal::replay::Replay;
use crate::index::records::Records;
use crate::spill::{Catalog, Spill};
use crate::{Domain, Result};

/// Opens the store at `path`, or makes it; tells how many records of the log were carried out again.
pub fn open(path: &Path, options: &StoreOptions) -> Result<(State, u64)> {
    options.check()?;
    // Before anything is made.
    let sorter = Sorter::new(options.engine)?;
    let name = Some(options.operator_name());
    let directory = Arc::new(Directory::open(path, name, options.faults.clone())?);
    open_in(directory, sorter, options, &|done, all| {
        if let Some(on_replay) = &options.on_replay {
            on_replay(done, all);
        }
    })
}

/// Opens the store in a directory; `progress` gets the bytes of the log that were read, and all bytes.
/// Tells how many records of the log were carried out again.
pub fn open_in(
    directory: Arc<Directory>,
    sorter: Sorter,
    options: &StoreOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<(State, u64)> {
    let manifest = directory.manifest();
    let (replay, number) = match manifest.complete {
        true => {
            let replay = Replay::inspect(&directory, options.salvage)?;
            (replay, manifest.last_segment + 1)
        }
        false => (Replay::nothing(), manifest.last_segment),
    };
    // From here on files change.
    let (table, _) = Records::open_or_create(&directory.index()?, &options.index)?;
    let catalog: Arc<dyn Catalog> = Arc::clone(&directory) as _;
    let spill = Spill::open(
        directory.spill().clone(),
        &manifest.files,
        catalog,
        options.spill(manifest.store_id),
    )?;
    let tiers = Tiers::new(table, spill, options.table_budget());
    let version = tiers.spill.version();
    replay.carry_out(
        progress,
        |entry, sequence| tiers.change(&version, &entry, sequence, false),
        |changes| tiers.table.apply(changes).map(|_| ()),
    )?;
    // To make much of the index durable takes longer than to carry out the log, which may as well
    // be carried out again. The next checkpoint takes its place.
    let stays = replay.bytes > options.segment_bytes && !replay.is_cut;
    let log = Log::begin(
        Arc::clone(&directory),
        number,
        replay.next,
        if stays { replay.bytes } else { 0 },
        options.segment_bytes,
    )?;
    if !stays {
        tiers.table.sync()?;
    }
    directory.edit(|manifest| {
        manifest.complete = true;
        manifest.last_segment = number;
        if !stays {
            manifest.first_segment = number;
            manifest.sequence = replay.next - 1;
        }
    })?;
    directory.retire_old_segments(0);
    let domain = tiers.table.stats().domain;
    let order = match options.ordered {
        true => Order::Absent,
        false => Order::Off,
    };
    let threads = Threads::start(options.index.threads, directory.path())?;
    let state = State {
        tiers,
        budget: options.table_budget().map(Budget::new),
        log,
        directory,
        operator: options.merge_operator.clone(),
        sorter,
        threads,
        // What is durable in the index must be so in the log.
        durably: options.durability == Durability::Always || domain == Domain::Dax,
        visible: ShardedLock::new(Visible {
            epoch: 0,
            changed: Changed::new(),
            history: History::default(),
            order,
            are_leaving: false,
        }),
        finished: AtomicU64::new(0),
        snapshots: Snapshots::default(),
        building: Mutex::new(()),
        unfinished: Mutex::new(None),
        begun: Mutex::new(None),
        steps: Mutex::default(),
    };
    Ok((state, replay.records))
}
