//! get and contains.
//!
//! The record of a member does not change and is not used again while anyone is pinned who may
//! have found it, so the value is copied out without a check afterwards and is never torn.

use super::ahead::Ahead;
use super::lookup::Member;
use super::table::Session;
use super::target::Target;
use crate::Result;
use crate::pm::Medium;

impl<M: Medium> Session<'_, M> {
    /// Copies the value of a member that was found while this session was pinned.
    #[inline]
    pub(crate) fn read(&mut self, member: Member, value: &mut [u8]) -> Result<()> {
        if !self.table.record_in_bounds(member.record) {
            return Err(self.table.dangling(member));
        }
        self.touches += self.table.record_touches(member.record.offset());
        self.table.medium.read(member.record.offset(), value);
        Ok(())
    }

    /// Whether the target's key is there.
    #[inline]
    pub(crate) fn contains(&mut self, target: &Target, ahead: &Ahead) -> bool {
        self.table
            .find_with(target, ahead, &mut self.touches)
            .is_some()
    }
}
