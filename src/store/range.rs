//! Items in order, as they were when the iterator was made.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::iter::FusedIterator;
use std::ops::Bound;

use super::history::{Snapshot, Value, is_empty};
use super::order::Item;
use super::state::State;
use crate::Result;

/// A range of keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Items that are read at a time, at most.
const PAGE: usize = 256;

/// Iterator over the items of a range of keys in ascending order, from both ends.
///
/// It sees the store as it was when the iterator was made, however long it is held. The values that
/// change meanwhile are kept for it: at most as many as the store had then. After an error it ends.
pub struct Range<'s> {
    state: &'s State,
    snapshot: Snapshot<'s>,
    /// Changes of the transaction that asks.
    own: BTreeMap<Vec<u8>, Value>,
    /// What is still to be read, between these.
    front: Bound<Vec<u8>>,
    back: Bound<Vec<u8>>,
    is_open: bool,
    /// Items from before `front`, the first one first.
    ahead: VecDeque<Item>,
    /// Items from behind `back`, the last one first.
    behind: VecDeque<Item>,
    page: usize,
}

/// From which end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl<'s> Range<'s> {
    pub(super) fn new(
        state: &'s State,
        snapshot: Snapshot<'s>,
        (front, back): KeyRange,
        own: BTreeMap<Vec<u8>, Value>,
    ) -> Self {
        let limits = (as_slice(&front), as_slice(&back));
        Self {
            is_open: !is_empty(&limits),
            state,
            snapshot,
            own,
            front,
            back,
            ahead: VecDeque::new(),
            behind: VecDeque::new(),
            page: 32,
        }
    }

    /// Reads so many items at first: as many as will be asked for.
    pub(super) fn expecting(mut self, items: usize) -> Self {
        self.page = items.clamp(1, PAGE);
        self
    }

    /// Reads items from one end of what is still to be read, until there are some or that is all.
    fn read(&mut self, end: End) -> Result<()> {
        while self.is_open {
            let limits = (as_slice(&self.front), as_slice(&self.back));
            let (items, rest) = self.state.with_order(|view, history| {
                let page = match end {
                    End::Front => view.first(limits, self.page, &self.state.records)?,
                    End::Back => view.last(limits, self.page, &self.state.records)?,
                };
                let last = page.items.last().filter(|_| !page.is_last);
                let rest = last.map(|(key, _)| key.clone());
                let covered = match (&rest, end) {
                    (None, _) => limits,
                    (Some(key), End::Front) => (limits.0, Bound::Included(key.as_slice())),
                    (Some(key), End::Back) => (Bound::Included(key.as_slice()), limits.1),
                };
                let before = history.range(covered, self.snapshot.epoch);
                let mut items = overlay(page.items, before, end);
                if !self.own.is_empty() && !is_empty(&covered) {
                    let own = self.own.range::<[u8], _>(covered);
                    let own = own.map(|(key, value)| (key.as_slice(), value));
                    items = overlay(items, own, end);
                }
                Ok((items, rest))
            })?;
            self.page = (2 * self.page).min(PAGE);
            match (rest, end) {
                (None, _) => self.is_open = false,
                (Some(key), End::Front) => self.front = Bound::Excluded(key),
                (Some(key), End::Back) => self.back = Bound::Excluded(key),
            }
            let found = !items.is_empty();
            // What was read before is used up.
            match end {
                End::Front => self.ahead = items.into(),
                End::Back => self.behind = items.into(),
            }
            if found {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, end: End) -> Option<Result<Item>> {
        let is_used = match end {
            End::Front => self.ahead.is_empty(),
            End::Back => self.behind.is_empty(),
        };
        if is_used && let Err(error) = self.read(end) {
            self.is_open = false;
            self.ahead.clear();
            self.behind.clear();
            return Some(Err(error));
        }
        // What was read from the other end is all that is left, once the range is read.
        let item = match end {
            End::Front => self.ahead.pop_front().or_else(|| self.behind.pop_back()),
            End::Back => self.behind.pop_front().or_else(|| self.ahead.pop_back()),
        };
        item.map(Ok)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        self.take(End::Front)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Result<Item>> {
        self.take(End::Back)
    }
}

impl FusedIterator for Range<'_> {}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// The items of a page, but of the keys of `others` what those have.
fn overlay<'v>(
    items: Vec<Item>,
    others: impl DoubleEndedIterator<Item = (&'v [u8], &'v Value)>,
    end: End,
) -> Vec<Item> {
    match end {
        End::Front => merge(items, others, |a, b| a.cmp(b)),
        End::Back => merge(items, others.rev(), |a, b| b.cmp(a)),
    }
}

fn merge<'v>(
    items: Vec<Item>,
    others: impl Iterator<Item = (&'v [u8], &'v Value)>,
    order: impl Fn(&[u8], &[u8]) -> Ordering,
) -> Vec<Item> {
    let mut others = others.peekable();
    if others.peek().is_none() {
        return items;
    }
    let mut merged = Vec::with_capacity(items.len());
    for item in items {
        while let Some((key, value)) = others.next_if(|(key, _)| order(key, &item.0).is_lt()) {
            merged.extend(value.clone().map(|value| (key.to_vec(), value)));
        }
        match others.next_if(|(key, _)| *key == item.0) {
            Some((key, value)) => merged.extend(value.clone().map(|value| (key.to_vec(), value))),
            None => merged.push(item),
        }
    }
    for (key, value) in others {
        merged.extend(value.clone().map(|value| (key.to_vec(), value)));
    }
    merged
}
