//! remove: take the record out of the slot, then give the slot back.
//!
//! Whoever's CAS takes the record out owns it and retires it. The slot's state word changes only
//! after the record word is persistent, so that no crash shows the next key of this slot with
//! this item's record.

use crate::Result;
use crate::layout::RecordWord;
use crate::pm::Medium;
use crate::table::Session;
use crate::table::key::ProbeKey;
use crate::table::probe_hint::ProbeHint;

impl<M: Medium> Session<'_, M> {
    /// Removes the target's key; says whether it was there.
    pub(crate) fn remove(&mut self, target: &ProbeKey, hint: &ProbeHint) -> Result<bool> {
        let medium = &self.table.medium;
        loop {
            let Some(member) = self.find_for_write(target, hint)? else {
                return Ok(false);
            };
            let addr = member.addr;
            let taken = medium.compare_exchange(addr.record, member.record.0, RecordWord::NONE.0);
            if taken.is_ok() {
                medium.write_back(addr.record, 8);
                medium.fence();
                self.table.vacate(addr);
                self.has_vacated = true;
                self.note_change(target, addr);
                self.retire_of(member, target);
                self.items -= 1;
                return Ok(true);
            }
        }
    }
}
