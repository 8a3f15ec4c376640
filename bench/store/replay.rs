//! How fast a store opens whose process has died: what the log holds is replayed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gphash::store::{Request, Store, StoreOptions};
use serde::Serialize;

use crate::record::Sizes;
use crate::target::Failure;

/// Puts in a batch of the log.
const BATCH: u64 = 1000;

/// What an opening took.
#[derive(Debug, Serialize)]
pub struct Replayed {
    pub records: u64,
    pub log_bytes: u64,
    pub seconds: f64,
    /// Million bytes of log in a second.
    pub mb_per_s: f64,
}

fn options(records: u64, partitions: Option<u32>) -> StoreOptions {
    let options = StoreOptions::new()
        .capacity(records)
        .checkpoint_bytes(u64::MAX);
    match partitions {
        Some(partitions) => options.partitions(partitions),
        None => options,
    }
}

/// Puts records into a store and ends the process without closing it.
pub fn abandon(
    path: &Path,
    records: u64,
    partitions: Option<u32>,
    sizes: Sizes,
) -> Result<(), Failure> {
    let store = Store::open(path, &options(records, partitions))?;
    for first in (0..records).step_by(usize::try_from(BATCH).unwrap()) {
        let puts = (first..records.min(first + BATCH)).map(|record| Request::Put {
            key: sizes.key(record),
            value: sizes.value(record),
        });
        store.execute(puts.collect())?;
    }
    store.flush()?;
    std::process::exit(0);
}

/// Has another process abandon a store at `path`, and opens it.
pub fn measure(
    path: &Path,
    records: u64,
    partitions: Option<u32>,
    sizes: Sizes,
) -> Result<Replayed, Failure> {
    let partitions_argument = partitions.map(|partitions| format!("--partitions={partitions}"));
    let ended = Command::new(std::env::current_exe()?)
        .arg("--abandon")
        .arg(path)
        .args(["--records", &records.to_string()])
        .args(["--key-size", &sizes.key.to_string()])
        .args(["--value-size", &sizes.value.to_string()])
        .args(partitions_argument)
        .status()?;
    if !ended.success() {
        return Err(format!("the process that fills the store ended with {ended}").into());
    }
    let bytes = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&bytes);
    let options =
        options(records, partitions).on_replay(move |_, all| read.store(all, Ordering::Relaxed));
    let began = Instant::now();
    let store = Store::open(path, &options)?;
    let took: Duration = began.elapsed();
    if store.stats().keys != records {
        return Err(format!("{} of {records} records came back", store.stats().keys).into());
    }
    let log_bytes = bytes.load(Ordering::Relaxed);
    Ok(Replayed {
        records,
        log_bytes,
        seconds: took.as_secs_f64(),
        mb_per_s: log_bytes as f64 / took.as_secs_f64() / 1e6,
    })
}
