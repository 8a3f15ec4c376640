//! How items that are read again come back into the table, each group of them as one change.

use std::collections::BTreeMap;

use crate::Result;
use crate::store::inner::StoreInner;
use crate::store::resident::tiers::EntryMeta;
use crate::table::item::Mutation;

impl StoreInner {
    /// Brings items up that a file has, but for those that the table has by now.
    pub(in crate::store) fn promote(&self, keys: &[Vec<u8>]) -> Result<()> {
        let version = self.tiers.spill.version();
        // Two changes of a table are never of one key.
        let mut items = BTreeMap::new();
        for key in keys {
            if self.tiers.table.get(key, |_, _| ())?.is_none()
                && let Some((sequence, Some(value))) = version.get(key)?
            {
                items.insert(key, (sequence, value));
            }
        }
        let changes: Vec<Mutation> = items
            .iter()
            .map(|(key, (sequence, value))| Mutation::Put {
                key,
                value,
                sequence: EntryMeta::promoted(*sequence).0,
            })
            .collect();
        self.hold_to_add(&self.tiers.need_of(&changes), 0)?;
        if let Some(budget) = &self.budget {
            budget.count_promoted(changes.len());
        }
        self.change_table(&self.applying(), &changes)
    }
}
