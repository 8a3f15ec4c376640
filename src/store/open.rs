//! Opening a store: its directory, its index, and what the log holds beyond it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crossbeam_utils::sync::ShardedLock;

use super::directory::Directory;
use super::history::{History, Snapshots};
use super::options::{Durability, StoreOptions};
use super::state::{State, Visible};
use super::view::Order;
use super::wal::Log;
use super::wal::replay::Replay;
use crate::index::records::Records;
use crate::{Domain, Result};

/// Opens the store at `path`, or makes it; tells how many records of the log were carried out again.
pub fn open(path: &Path, options: &StoreOptions) -> Result<(State, u64)> {
    options.check()?;
    let name = Some(options.operator_name());
    let directory = Arc::new(Directory::open(path, name, options.faults.clone())?);
    open_in(directory, options, &|done, all| {
        if let Some(on_replay) = &options.on_replay {
            on_replay(done, all);
        }
    })
}

/// Opens the store in a directory; `progress` gets the bytes of the log that were read, and all bytes.
/// Tells how many records of the log were carried out again.
pub fn open_in(
    directory: Arc<Directory>,
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
    let (records, _) = Records::open_or_create(&directory.index()?, &options.index)?;
    replay.carry_out(progress, |changes| records.apply(changes).map(|_| ()))?;
    let log = Log::begin(
        Arc::clone(&directory),
        number,
        replay.next,
        options.segment_bytes,
    )?;
    records.sync()?;
    directory.edit(|manifest| {
        manifest.complete = true;
        manifest.first_segment = number;
        manifest.last_segment = number;
        manifest.sequence = replay.next - 1;
    })?;
    directory.remove_old_segments();
    let domain = records.stats().domain;
    let order = match options.ordered {
        true => Order::Absent,
        false => Order::Off,
    };
    let state = State {
        records,
        log,
        directory,
        operator: options.merge_operator.clone(),
        // What is durable in the index must be so in the log.
        durably: options.durability == Durability::Always || domain == Domain::Dax,
        visible: ShardedLock::new(Visible {
            epoch: 0,
            history: History::default(),
            order,
        }),
        snapshots: Snapshots::default(),
        building: Mutex::new(()),
        unfinished: Mutex::new(None),
    };
    Ok((state, replay.records))
}
