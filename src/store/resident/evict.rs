//! How items leave the table, each group of them as one change.

use crate::Result;
use crate::store::inner::StoreInner;
use crate::store::resident::tiers::EntryMeta;
use crate::table::item::Mutation;

impl StoreInner {
    /// Takes items out of the table that are in a file now, but for those that have changed since.
    pub(in crate::store) fn evict(&self, items: &[(Vec<u8>, EntryMeta)]) -> Result<()> {
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_slice()).collect();
        let mut changes = Vec::with_capacity(keys.len());
        self.tiers.table.sequences(&keys, |nth, stamp| {
            if EntryMeta(stamp) == items[nth].1 {
                changes.push(Mutation::Delete { key: keys[nth] });
            }
        })?;
        self.hold_to_remove(changes.len())?;
        self.change_table(&self.applying(), &changes)
    }

    /// Takes items out of the table of which a file has a newer version: after damage the table may be
    /// older than it was.
    pub(in crate::store) fn yield_to_newer(&self) -> Result<()> {
        let version = self.tiers.spill.version();
        if version.is_empty() {
            return Ok(());
        }
        let mut keys: Vec<(Vec<u8>, u64)> = Vec::new();
        self.tiers.table.for_each_of(
            |_| true,
            |item| {
                if let Ok((key, stamp, _)) = item
                    && version.may_have(key)
                {
                    keys.push((key.to_vec(), EntryMeta(stamp).sequence()));
                }
            },
        );
        let mut changes = Vec::new();
        for (key, sequence) in &keys {
            if version
                .get(key)?
                .is_some_and(|(newer, _)| newer > *sequence)
            {
                changes.push(Mutation::Delete { key });
            }
        }
        self.change_table(&self.applying(), &changes)
    }
}
