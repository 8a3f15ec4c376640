//! How items leave the table, each group of them as one change.

use crate::Result;
use crate::hot_cache::cold_items::LeavingItems;
use crate::pool::parallel;
use crate::store::inner::StoreInner;
use crate::store::resident::tiers::TieredItems;
use crate::table::item::Mutation;

/// Items that one thread looks up at a time.
const PART_ITEMS: usize = 1024;

impl TieredItems {
    /// The changes by which items leave the table that are in a file now, but for those that have changed since.
    ///
    /// # Errors
    /// Those of the index.
    pub fn removals<'k>(&self, leaving: &'k LeavingItems) -> Result<Vec<Mutation<'k>>> {
        let unchanged = |(keys, stamps): (Vec<&'k [u8]>, Vec<u64>)| {
            let mut changes = Vec::with_capacity(keys.len());
            self.table.sequences(&keys, |nth, stamp| {
                if stamp == stamps[nth] {
                    changes.push(Mutation::Delete { key: keys[nth] });
                }
            })?;
            Ok(changes)
        };
        let parts = parallel::map(leaving.parts(PART_ITEMS), unchanged);
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(parts.into_iter().flatten().collect())
    }
}

impl StoreInner {
    /// Takes items out of the table that are in a file now, but for those that have changed since.
    pub(in crate::store) fn evict(&self, leaving: &LeavingItems) -> Result<()> {
        let changes = self.tiers.removals(leaving)?;
        self.hold_to_remove(changes.len())?;
        self.change_table(&self.applying(), &changes)
    }
}
