//! Which slots have changed since they were read last by one who keeps copies of all buckets, to look for records in
//! them, and perhaps copies of the records.
//!
//! Who takes a record out of a slot notes the slot before the record waits for its epoch. So it is enough to be pinned,
//! then to take the notes, and then to read the slots that were noted: no copy names a record that may be used
//! again before the pin ends, and the records that they name are whole. Another slot may have changed since, and
//! not be noted yet: who copies records copies no slot that was not noted. What copies lack, or have from before, is known
//! by its key.
//!
//! A resize clears a slot whose record lives on in another one, where it may change at once. So the slot is noted before,
//! once the record is frozen. A copy made after that has nothing there, or a frozen record, which its reader passes over. A
//! copy from before names a record that cannot be used again while its reader is pinned.

use std::ops::Range;

use super::Table;
use crate::layout::bucket::{SLOT_WORDS_BYTES, SlotAddr};
use crate::pm::Medium;
use crate::sync::changed_slots::Notes;
use crate::sync::levels::Levels;
use crate::width::low_half;

/// Notes of some slots of a level.
pub(crate) struct ChangedPart {
    pub(crate) level: u32,
    words: Range<usize>,
}

impl<M: Medium> Table<M> {
    /// Has all changes noted; `false` if that takes longer, because somebody is at an operation that notes none. The
    /// caller is not pinned.
    pub(crate) fn watch_slots(&self) -> bool {
        self.changed_slots.is_watched() || {
            self.changed_slots.set_watched(true);
            let is_noted = self.wait_for_pins();
            self.changed_slots.set_watched(is_noted);
            is_noted
        }
    }

    /// Notes a slot.
    pub(super) fn note_slot(&self, addr: SlotAddr) {
        let levels = self.levels.live();
        let of_level = |level: u32| {
            let inside = addr.state.checked_sub(self.levels.offset(level))?;
            let slots = self.slots_per_bucket() << level;
            let slot = inside / SLOT_WORDS_BYTES;
            (slot < slots).then_some((level, slots, slot))
        };
        // Mostly it is in the highest one.
        let found = (levels.bottom..=levels.top).rev().find_map(of_level);
        if let Some((level, slots, slot)) = found {
            self.changed_slots.level(level, slots).note(slot);
        }
    }

    /// Slots of a bucket, with what fills it up.
    fn slots_per_bucket(&self) -> u64 {
        self.shape.bucket_size / SLOT_WORDS_BYTES
    }

    /// Notes a slot of a bucket that was taken, so that it is again.
    pub(crate) fn note_slot_again(&self, level: u32, (bucket, slot): (u64, u32)) {
        let first = bucket * self.slots_per_bucket();
        self.changed_notes(level).note(first + u64::from(slot));
    }

    /// The notes of all slots of `levels`, in parts which threads may take side by side.
    pub(crate) fn changed_parts(&self, levels: Levels) -> impl Iterator<Item = ChangedPart> {
        (levels.bottom..=levels.top).flat_map(|level| {
            let parts = self.changed_notes(level).parts();
            parts.map(move |words| ChangedPart { level, words })
        })
    }

    /// Takes the notes of a part. Gives `visit` the bucket of each slot, and its number in that.
    pub(crate) fn take_changed_slots(&self, part: &ChangedPart, mut visit: impl FnMut(u64, u32)) {
        let slots = self.slots_per_bucket();
        let notes = self.changed_notes(part.level);
        notes.take(part.words.clone(), |slot| {
            visit(slot / slots, low_half(slot % slots));
        });
    }

    fn changed_notes(&self, level: u32) -> &Notes {
        let slots = self.slots_per_bucket() << level;
        self.changed_slots.level(level, slots)
    }

    /// Puts the words of slots, from one of a bucket on, into `words`, each as it is when it is read.
    pub(crate) fn copy_slots(&self, level: u32, slot: (u64, u32), words: &mut [u64]) {
        self.copy_words(self.slot_offset(level, slot), words);
    }

    /// Where a slot is in the file.
    pub(crate) fn slot_offset(&self, level: u32, (bucket, slot): (u64, u32)) -> u64 {
        let inside = bucket * self.shape.bucket_size + u64::from(slot) * SLOT_WORDS_BYTES;
        self.levels.offset(level) + inside
    }

    /// The same of the words from `at` on. What is beside a record in its line may be written meanwhile: that is another
    /// record, of which this copy means nothing.
    pub(crate) fn copy_words(&self, at: u64, words: &mut [u64]) {
        for (at, word) in (at..).step_by(size_of::<u64>()).zip(words) {
            *word = self.medium.load(at);
        }
    }
}
