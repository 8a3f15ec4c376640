//! The chain of free records that a clean close leaves behind, threaded through the free
//! records themselves.
//!
//! A link is a free record that holds, as 64-bit words: the offset of the next link (0 for the
//! last), how many offsets follow, and the offsets of that many further free records. Records of
//! 8 bytes hold the next link only. The chain is read link by link when the arena has nothing
//! else left, so that opening does not read it.

use super::arena::ExtentMap;
use crate::pm::Medium;
use crate::table::Table;
use crate::width::to_usize;

/// The unread rest of the chain.
#[derive(Default)]
pub(crate) struct FreeList {
    /// Offset of the next link; 0 for none.
    pub(crate) head: u64,
    /// Records in the rest of the chain.
    pub(crate) count: u64,
    /// A link that was passed, and how many links ago: a chain that comes back to it is a loop.
    passed: (u64, u64),
}

impl FreeList {
    /// The rest of a chain that begins at `head` and holds `count` records.
    pub(crate) fn new(head: u64, count: u64) -> Self {
        Self {
            head,
            count,
            passed: (head, 0),
        }
    }

    /// Whether the chain goes on at a link that it has not come from (Brent, *An improved Monte
    /// Carlo factorization algorithm*, 1980). The link that is compared is changed ever less often.
    fn is_new(&mut self, next: u64) -> bool {
        let (link, ago) = &mut self.passed;
        if next == *link {
            return false;
        }
        *ago += 1;
        if ago.is_power_of_two() {
            *link = next;
        }
        true
    }
}

/// Records read from the chain at a time.
const READ_RECORDS_MAX: usize = 4096;

impl<M: Medium> Table<M> {
    /// Writes the chain of `free` and gives the offset of its first link, 0 for none.
    pub(crate) fn write_free_list(&self, free: &[u64]) -> u64 {
        let map = self.arena.map();
        let mut next = 0;
        let mut rest = free;
        while let Some((&link, behind)) = rest.split_first() {
            let words = to_usize(self.words_of(&map, link));
            let members;
            (members, rest) = behind.split_at(words.saturating_sub(2).min(behind.len()));
            let mut content = vec![next];
            if words > 1 {
                content.push(members.len() as u64);
                content.extend(members);
            }
            self.persist_later(link, bytemuck::cast_slice(&content));
            next = link;
        }
        self.medium.fence();
        next
    }

    /// Moves the next records of the chain to the arena; `false` when there are no more. A chain
    /// that leads astray ends there: its records are found again by the next recovery.
    pub(crate) fn read_free_list(&self) -> bool {
        let mut chain = self.free_list.lock();
        let mut records = Vec::new();
        let map = self.arena.map();
        while chain.count > 0 && records.len() < READ_RECORDS_MAX {
            let before = records.len();
            let next = self.read_link(&map, chain.head, &mut records);
            let Some(next) = next.filter(|&next| chain.is_new(next)) else {
                tracing::warn!(at = chain.head, "the chain of free records leads astray");
                *chain = FreeList::default();
                break;
            };
            chain.head = next;
            chain.count = chain.count.saturating_sub((records.len() - before) as u64);
        }
        let any = !records.is_empty();
        self.arena.give(records);
        any
    }

    /// Words of the record at `at`; 0 if there is none.
    fn words_of(&self, map: &ExtentMap, at: u64) -> u64 {
        map.record(at)
            .map_or(0, |(class, _)| self.shape.record_size(class) / 8)
    }

    fn read_link(&self, map: &ExtentMap, link: u64, records: &mut Vec<u64>) -> Option<u64> {
        let words = self.words_of(map, link);
        let is_free = |record: u64| {
            map.record(record)
                .is_some_and(|(class, ordinal)| ordinal < self.arena.high_water(class))
        };
        if !is_free(link) {
            return None;
        }
        let members = if words > 1 {
            self.medium.load(link + 8)
        } else {
            0
        };
        if members > words.saturating_sub(2) {
            return None;
        }
        let start = records.len();
        records.push(link);
        records.extend((0..members).map(|i| self.medium.load(link + 16 + i * 8)));
        if !records[start..].iter().copied().all(is_free) {
            records.truncate(start);
            return None;
        }
        Some(self.medium.load(link))
    }
}
