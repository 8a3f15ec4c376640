//! How items that are read again come back into the table. Their values are read beside what goes on; each group of
//! them is one change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Result;
use crate::lsm::LsmVersion;
use crate::store::inner::StoreInner;
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::EntryMeta;
use crate::table::item::Mutation;

/// The share of what records may take that one group of items takes at most.
const GROUP_SHARE: u64 = 32;

/// Items that are on their way up.
pub struct Promotion {
    /// The files that they were read from.
    version: Arc<LsmVersion>,
    /// Their sequence numbers and values. Two changes of a table are never of one key.
    items: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
}

impl Promotion {
    /// How many they are.
    pub fn len(&self) -> usize {
        self.items.len()
    }
}

impl StoreInner {
    /// Reads what files have of these keys, as far as a group has room for it. The others wait for the next one.
    pub(in crate::store) fn read_promotion(&self, keys: Vec<Vec<u8>>) -> Result<Promotion> {
        let tiers = &self.tiers;
        let limit = |budget| Budget::limit(budget, tiers);
        let most = self.budget.as_ref().map_or(u64::MAX, limit) / GROUP_SHARE;
        tiers.set_longest_promoted(most);
        let version = tiers.spill.version();
        let mut items = BTreeMap::new();
        let mut bytes = 0;
        let mut keys = keys.into_iter();
        while let Some(key) = keys.next() {
            if !items.contains_key(&key)
                && tiers.table.get(&key, |_, _| ())?.is_none()
                && let Some((sequence, Some(value))) = version.get(&key)?
            {
                let len = (key.len() + value.len()) as u64;
                if len > most {
                    // It was shorter when it was read, or there was more room.
                    continue;
                }
                if bytes + len > most {
                    tiers.put_back_promotable([key].into_iter().chain(keys));
                    break;
                }
                bytes += len;
                items.insert(key, (sequence, value));
            }
        }
        Ok(Promotion { version, items })
    }

    /// Brings items up, but for those that have changed since they were read.
    pub(in crate::store) fn promote(&self, promotion: &Promotion) -> Result<()> {
        let version = self.tiers.spill.version();
        let is_same = Arc::ptr_eq(&version, &promotion.version);
        let mut changes = Vec::new();
        for (key, (sequence, value)) in &promotion.items {
            let is_newest = || -> Result<bool> {
                let found = version.find(key)?;
                Ok(found.is_some_and(|(newest, _)| newest == *sequence))
            };
            if self.tiers.table.get(key, |_, _| ())?.is_none() && (is_same || is_newest()?) {
                changes.push(Mutation::Put {
                    key,
                    value,
                    sequence: EntryMeta::promoted(*sequence).0,
                });
            }
        }
        self.hold_to_add(&self.tiers.need_of(&changes), 0)?;
        if let Some(budget) = &self.budget {
            budget.count_promoted(changes.len());
        }
        self.change_table(&self.applying(), &changes)
    }
}
