//! How items leave the table, each group of them as one change.

use crate::Result;
use crate::store::inner::StoreInner;
use crate::store::resident::tiers::{EntryMeta, TieredItems};
use crate::table::item::Mutation;

impl TieredItems {
    /// The changes by which items leave the table that are in a file now, but for those that have changed since.
    ///
    /// # Errors
    /// Those of the index.
    pub fn removals<'k>(
        &self,
        items: &'k [(impl AsRef<[u8]>, EntryMeta)],
    ) -> Result<Vec<Mutation<'k>>> {
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_ref()).collect();
        let mut changes = Vec::with_capacity(keys.len());
        self.table.sequences(&keys, |nth, stamp| {
            if EntryMeta(stamp) == items[nth].1 {
                changes.push(Mutation::Delete { key: keys[nth] });
            }
        })?;
        Ok(changes)
    }
}

impl StoreInner {
    /// Takes items out of the table that are in a file now, but for those that have changed since.
    pub(in crate::store) fn evict(&self, items: &[(Vec<u8>, EntryMeta)]) -> Result<()> {
        let changes = self.tiers.removals(items)?;
        self.hold_to_remove(changes.len())?;
        self.change_table(&self.applying(), &changes)
    }
}
