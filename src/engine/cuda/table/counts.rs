//! What lookups and batches have done, added up.

use std::sync::atomic::Ordering;

use super::DeviceTable;
use crate::Result;
use crate::gpu::abi::Counters;
use crate::gpu::memory::{copy_out, wait};
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::{saturating_u64, u32_of};

/// What shares are of.
pub const WHOLE: u32 = 1 << 10;

impl DeviceTable {
    /// Adds what lookups have done that no call has waited for to the statistics of the table.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn count_lookups(&self, table: &Table<Mapping>) -> Result<()> {
        let batch_stream = self.plain_stream()?;
        let mut totals = Counters::default();
        let mut counted = self.counted.lock();
        // SAFETY: both are as long, and nobody looks before the wait.
        unsafe {
            let bytes = bytemuck::bytes_of_mut(&mut totals);
            copy_out(&batch_stream.stream, bytes, self.lookup_counters.address())?;
        }
        wait(&batch_stream.stream)?;
        self.give(batch_stream);
        let operations = totals.operations - counted.operations;
        table.count_batch(operations, 0, totals.touches - counted.touches);
        self.count_cache(
            totals.cache_lookups - counted.cache_lookups,
            totals.cache_hits - counted.cache_hits,
        );
        *counted = totals;
        Ok(())
    }

    /// Tells of the damage that counted lookups have met last, once of each slot.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if there is some that nobody was told of.
    pub fn tell_damage(&self, table: &Table<Mapping>) -> Result<()> {
        let counted = self.counted.lock();
        if !self.told.lock().insert(counted.damaged) {
            return Ok(());
        }
        check_damage(table, &counted)
    }

    /// Notes which share of the lookups to come will read the file.
    pub fn expect_missed(&self, share: f64) {
        let share = u32_of(saturating_u64(share.clamp(0.0, 1.0) * f64::from(WHOLE)));
        self.missed.store(share, Ordering::Relaxed);
    }

    pub fn count_cache(&self, asked: u64, had: u64) {
        if asked >= u64::from(WHOLE) {
            self.expect_missed((asked - had) as f64 / asked as f64);
        }
        self.cache_uses[0].fetch_add(asked, Ordering::Relaxed);
        self.cache_uses[1].fetch_add(had, Ordering::Relaxed);
    }
}

/// Says what lookups or a batch have met that no crash leaves.
pub fn check_damage(table: &Table<Mapping>, counters: &Counters) -> Result<()> {
    if counters.damaged == 0 {
        return Ok(());
    }
    let found = "a word that names no record, or whose parity is wrong".into();
    Err(table.damaged("slot", counters.damaged, found))
}
