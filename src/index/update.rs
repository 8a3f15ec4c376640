//! update and upsert: write the new value into a fresh record, then swing the record word.
//!
//! GPHash §3.2.3, update. The CAS expects the record that was found in the slot, so it fails if
//! the item has been removed, changed or moved meanwhile, also when another item sits there now.

use super::ahead::Ahead;
use super::insert::Inserted;
use super::table::Session;
use super::target::Target;
use crate::Result;
use crate::layout::RecordWord;
use crate::pm::Medium;

impl<'t, M: Medium> Session<'t, M> {
    /// Stores `value` under the target's key if the key is present; says whether it was.
    pub(crate) fn update(&mut self, target: &Target, ahead: &Ahead, value: &[u8]) -> Result<bool> {
        let table = self.table;
        let medium = &table.medium;
        loop {
            let Some(member) = self.find_for_write(target, ahead)? else {
                return Ok(false);
            };
            let Some(record) = self.allocate() else {
                self.grow_arena()?;
                continue;
            };
            medium.write(record, value);
            medium.write_back(record, table.shape.record_stride);
            medium.fence();
            let new = RecordWord::member(record);
            let swung = medium.compare_exchange(member.place.record, member.record.0, new.0);
            if swung.is_ok() {
                medium.write_back(member.place.record, 8);
                medium.fence();
                self.touches += table.record_touches(record);
                self.shard.retire(member.record.offset());
                return Ok(true);
            }
            self.shard.put_back(record);
        }
    }

    /// Stores `value` under the target's key; says whether the key was absent before.
    pub(crate) fn upsert(
        &mut self,
        target: &Target,
        ahead: &Ahead<'t>,
        value: &[u8],
    ) -> Result<bool> {
        loop {
            if self.update(target, ahead, value)? {
                return Ok(false);
            }
            if self.insert(target, ahead, value)? == Inserted::New {
                return Ok(true);
            }
        }
    }
}
