//! update and upsert: write the new value into a fresh record, then swing the record word.
//!
//! GPHash §3.2.3, update. The CAS expects the record that was found in the slot. So it fails if the
//! item has been removed, changed or moved meanwhile, also when another item is there now.

use super::insert::Inserted;
use crate::Result;
use crate::layout::RecordWord;
use crate::pm::Medium;
use crate::table::Session;
use crate::table::key::ProbeKey;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::Content;

impl<'t, M: Medium> Session<'t, M> {
    /// Stores `content` under the target's key if the key is present; says whether it was. A request of
    /// a store that has been executed before is not executed again.
    pub(crate) fn update(
        &mut self,
        target: &ProbeKey,
        hint: &ProbeHint,
        content: &Content,
    ) -> Result<bool> {
        let table = self.table;
        let medium = &table.medium;
        loop {
            let Some(member) = self.find_for_write(target, hint)? else {
                return Ok(false);
            };
            if table.record_is(member.record, content) {
                // Its writer may have died before it was durable.
                table.persist_slot(member.addr, member.record.offset());
                return Ok(true);
            }
            let Some(record) = self.allocate(content.class) else {
                self.grow_arena(content.class)?;
                continue;
            };
            table.write_record(record, target, content);
            table.persist_record(record);
            medium.fence();
            let new = RecordWord::member(target.word, record);
            let swung = medium.compare_exchange(member.addr.record, member.record.0, new.0);
            if swung.is_ok() {
                medium.write_back(member.addr.record, 8);
                medium.fence();
                self.touches += table.record_touches(record);
                self.note_change(target, member.addr);
                self.retire_of(member, target);
                return Ok(true);
            }
            self.put_back(content.class, record);
        }
    }

    /// Stores `content` under the target's key; says whether the key was absent before.
    pub(crate) fn upsert(
        &mut self,
        target: &ProbeKey,
        hint: &ProbeHint<'t>,
        content: &Content,
    ) -> Result<bool> {
        loop {
            if self.update(target, hint, content)? {
                return Ok(false);
            }
            // Probing for the key has made tags known; with them an insertion knows its slot.
            let hint = hint.with_tags_reread(target);
            if self.insert(target, &hint, content)? == Inserted::New {
                return Ok(true);
            }
        }
    }
}
