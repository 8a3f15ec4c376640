//! Items in order, as they were when the iterator was made.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;

use rayon::iter::Either;

use super::ordered::{Item, Limits, OrderedView};
use crate::store::inner::StoreInner;
use crate::store::mvcc::old_versions::{Before, Snapshot, Value, is_empty};
use crate::store::mvcc::read_set::KeyRange;
use crate::{Result, lsm};

/// Items that are read at a time, at most.
const PAGE_ITEMS_MAX: usize = 256;

/// Iterator over the items of a range of keys in ascending order, from both ends.
///
/// It sees the store as it was when the iterator was made, however long it is held. The values that
/// change meanwhile are kept for it: at most as many as the store had then. After an error it ends.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// for key in ["ada", "alan", "grace"] {
///     store.put(key, "")?;
/// }
/// let mut items = store.range(..);
/// store.delete("ada")?; // after the iterator was made
/// assert_eq!(items.next().transpose()?, Some((b"ada".to_vec(), b"".to_vec())));
/// assert_eq!(items.next_back().transpose()?, Some((b"grace".to_vec(), b"".to_vec())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Range<'s> {
    state: &'s StoreInner,
    snapshot: Snapshot,
    /// Changes of the transaction that asks.
    own: BTreeMap<Vec<u8>, Value>,
    /// What is still to be read, between these.
    front: Bound<Vec<u8>>,
    back: Bound<Vec<u8>>,
    is_open: bool,
    /// Items that were read before `front`, the first one first.
    front_page: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Items that were read behind `back`, the last one first.
    back_page: VecDeque<(Vec<u8>, Vec<u8>)>,
    page: usize,
}

/// From which end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl End {
    /// What is in ascending order, from this end.
    fn first<T>(self, items: impl DoubleEndedIterator<Item = T>) -> impl Iterator<Item = T> {
        match self {
            Self::Front => Either::Left(items),
            Self::Back => Either::Right(items.rev()),
        }
    }

    /// Which of two keys comes first from this end.
    fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Front => a.cmp(b),
            Self::Back => b.cmp(a),
        }
    }
}

impl<'s> Range<'s> {
    pub(in crate::store) fn new(
        state: &'s StoreInner,
        snapshot: Snapshot,
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
            front_page: VecDeque::new(),
            back_page: VecDeque::new(),
            page: 32,
        }
    }

    /// Reads so many items at first: as many as will be asked for.
    pub(in crate::store) fn expecting(mut self, items: usize) -> Self {
        self.page = items.clamp(1, PAGE_ITEMS_MAX);
        self
    }

    /// Reads items from one end of what is still to be read, until there are some or that is all.
    fn read(&mut self, end: End) -> Result<()> {
        while self.is_open {
            let limits = (as_slice(&self.front), as_slice(&self.back));
            let (items, rest) = self.state.with_order(|view, old_versions| {
                let (mut items, rest) = self.state.page(view, limits, end, self.page)?;
                let covered = match (&rest, end) {
                    (None, _) => limits,
                    (Some(key), End::Front) => (limits.0, Bound::Included(key.as_slice())),
                    (Some(key), End::Back) => (Bound::Included(key.as_slice()), limits.1),
                };
                let owned = |(key, before): (&[u8], &Before)| {
                    let value = before.clone().map_err(|error| *error)?;
                    Ok((key.to_vec(), value))
                };
                let before = old_versions
                    .range(covered, self.snapshot.commit_seq)
                    .map(owned);
                let before = before.collect::<Result<Vec<Item>>>()?;
                items = overlay(items, end.first(before.into_iter()), end);
                if !self.own.is_empty() && !is_empty(&covered) {
                    let own = self.own.range::<[u8], _>(covered);
                    let own = own.map(|(key, value)| (key.clone(), value.clone()));
                    items = overlay(items, end.first(own), end);
                }
                Ok((items, rest))
            })?;
            let with_value = |(key, value): Item| Some((key, value?));
            let items: Vec<_> = items.into_iter().filter_map(with_value).collect();
            self.page = (2 * self.page).min(PAGE_ITEMS_MAX);
            match (rest, end) {
                (None, _) => self.is_open = false,
                (Some(key), End::Front) => self.front = Bound::Excluded(key),
                (Some(key), End::Back) => self.back = Bound::Excluded(key),
            }
            let found = !items.is_empty();
            // What was read before is used up.
            match end {
                End::Front => self.front_page = items.into(),
                End::Back => self.back_page = items.into(),
            }
            if found {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, end: End) -> Option<<Self as Iterator>::Item> {
        let is_used = match end {
            End::Front => self.front_page.is_empty(),
            End::Back => self.back_page.is_empty(),
        };
        if is_used && let Err(error) = self.read(end) {
            self.is_open = false;
            self.front_page.clear();
            self.back_page.clear();
            return Some(Err(error));
        }
        // What was read from the other end is all that is left, once the range is read.
        let item = match end {
            End::Front => self
                .front_page
                .pop_front()
                .or_else(|| self.back_page.pop_back()),
            End::Back => self
                .back_page
                .pop_front()
                .or_else(|| self.front_page.pop_back()),
        };
        item.map(Ok)
    }
}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("front", &self.front)
            .field("back", &self.back)
            .finish_non_exhaustive()
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(End::Front)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(End::Back)
    }
}

impl FusedIterator for Range<'_> {}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl StoreInner {
    /// Items from one end of a range, tombstones among them: of each key what the table has or else
    /// the files. With them comes the last key that they reach, if there may be others behind it.
    fn page(
        &self,
        view: &OrderedView,
        limits: Limits,
        end: End,
        most: usize,
    ) -> Result<(Vec<Item>, Option<Vec<u8>>)> {
        let rest = |items: &[Item], is_last: bool| {
            let last = items.last().filter(|_| !is_last);
            last.map(|(key, _)| key.clone())
        };
        let above = match end {
            End::Front => view.first(limits, most, &self.tiers.table)?,
            End::Back => view.last(limits, most, &self.tiers.table)?,
        };
        let above_rest = rest(&above.items, above.is_last);
        let version = self.tiers.spill.version();
        if version.is_empty() {
            return Ok((above.items, above_rest));
        }
        let below = version.page(limits, end == End::Back, most)?;
        let item = |item: lsm::Item| (item.key, item.value);
        let items: Vec<Item> = below.items.into_iter().map(item).collect();
        let rests = [above_rest, rest(&items, below.is_last)];
        let rests = rests.into_iter().flatten();
        let rest = match end {
            End::Front => rests.min(),
            End::Back => rests.max(),
        };
        let mut items = overlay(items, above.items.into_iter(), end);
        if let Some(rest) = &rest {
            let reached = items.partition_point(|(key, _)| end.order(key, rest).is_le());
            items.truncate(reached);
        }
        Ok((items, rest))
    }
}

/// Items in the order from one end, but of the keys of `upper`, which are in that order too, what those
/// have.
fn overlay(items: Vec<Item>, upper: impl Iterator<Item = Item>, end: End) -> Vec<Item> {
    let mut upper = upper.peekable();
    if upper.peek().is_none() {
        return items;
    }
    let mut merged = Vec::with_capacity(items.len());
    for item in items {
        while let Some(other) = upper.next_if(|(key, _)| end.order(key, &item.0).is_lt()) {
            merged.push(other);
        }
        match upper.next_if(|(key, _)| *key == item.0) {
            Some(other) => merged.push(other),
            None => merged.push(item),
        }
    }
    merged.extend(upper);
    merged
}
