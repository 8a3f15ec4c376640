//! Whether there is an ordered view, and how it keeps up with the index.

use super::OrderedView;
use crate::index::bytes::BytesIndex;

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
    /// Takes in a key that the table has by now, or out one that it still has if it ever had it: `is_there`
    /// says which. `false` if there is no view any more.
    pub fn follow(&mut self, key: &[u8], is_there: bool, records: &BytesIndex) -> bool {
        let followed = match self {
            Self::Off | Self::Absent => return false,
            Self::Underway(keys) => {
                keys.push(key.to_vec());
                Ok(())
            }
            Self::Ready(view) => {
                let fingerprint = records.fingerprint(key);
                match is_there {
                    true => view.update(key, fingerprint, true, records),
                    false => view.remove(key, fingerprint, records),
                }
            }
        };
        if let Err(error) = &followed {
            tracing::warn!(%error, "the ordered view is given up");
            self.forget();
        }
        followed.is_ok()
    }

    /// Forgets a view that may no longer be that of the index. The next range makes another.
    pub fn forget(&mut self) {
        if !matches!(self, Self::Off) {
            *self = Self::Absent;
        }
    }
}
