//! Whether there is an ordered view, and how it keeps up with the index.

use fixedbitset::FixedBitSet;

use super::OrderedView;
use crate::index::bytes::BytesIndex;
use crate::table::item::Mutation;

/// The ordered view and its life.
#[derive(Debug)]
pub enum OrderedViewState {
    /// The store has none.
    Off,
    /// Nobody has asked for it yet.
    Absent,
    /// It is being made; these keys came or went meanwhile.
    Underway(Vec<Vec<u8>>),
    /// It has the keys of the index.
    Ready(OrderedView),
}

impl OrderedViewState {
    /// Takes keys out and in, after the index has: `were_there` says of each change whether its key
    /// was there before.
    pub fn follow(&mut self, changes: &[Mutation], were_there: &FixedBitSet, records: &BytesIndex) {
        let went = |nth: &usize| {
            matches!(changes[*nth], Mutation::Delete { .. }) && were_there.contains(*nth)
        };
        let came = |nth: &usize| {
            matches!(changes[*nth], Mutation::Put { .. }) && !were_there.contains(*nth)
        };
        let all = 0..changes.len();
        match self {
            Self::Off | Self::Absent => {}
            Self::Underway(keys) => {
                let others = all.filter(|nth| went(nth) || came(nth));
                keys.extend(others.map(|nth| changes[nth].key().to_vec()));
            }
            Self::Ready(view) => {
                let went = all.clone().filter(went).map(|nth| (nth, false));
                let came = all.filter(came).map(|nth| (nth, true));
                for (nth, is_there) in went.chain(came) {
                    let key = changes[nth].key();
                    let fingerprint = records.fingerprint(key);
                    if let Err(error) = view.update(key, fingerprint, is_there, records) {
                        tracing::warn!(%error, "the ordered view is given up");
                        return self.forget();
                    }
                }
            }
        }
    }

    /// Forgets a view that may no longer be that of the index. The next range makes another.
    pub fn forget(&mut self) {
        if !matches!(self, Self::Off) {
            *self = Self::Absent;
        }
    }
}
