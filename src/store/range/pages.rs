//! Reading a range page by page, from both ends: of each key what the newest of its sources has. These are the
//! changes of the transaction that asks, and of each partition old versions that the snapshot sees, the table, and
//! the sorted files.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::vec;

use rayon::iter::Either;

use crate::Result;
use crate::lsm::{self, LsmVersion, Spill};
use crate::metrics::calls::TimedPath;
use crate::pool::snapshots::Snapshot;
use crate::store::inner::StoreInner;
use crate::store::mvcc::group_writes;
use crate::store::mvcc::old_versions::{OldVersion, OldVersions, Value, is_empty};
use crate::store::mvcc::read_set::KeyRange;
use crate::store::ordered::{Item, Limits, OrderedView, PAGE_BYTES_MAX, PageOf};
use crate::store::partitions::Partitions;
use crate::store::store_ref::StoreRef;
use crate::table::item::Wanted;
use crate::width::to_usize;

/// Items that are read at a time, at most.
const PAGE_ITEMS_MAX: usize = 2048;

/// Items that are read of the tables beside their share of a page: they do not fall evenly.
const SPARE_ITEMS: usize = 4;

/// Items that are read at first.
pub const PAGE_ITEMS_INITIAL: usize = 32;

/// One in so many pages of a thread is counted where it was read: files are shared by all who read.
const COUNTED_PAGES: u32 = 8;

/// Whether a page of this thread is counted. Threads begin at different pages, so that those which read few count, too.
fn is_counted() -> bool {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static PAGES: Cell<u32> = Cell::new(THREADS.fetch_add(1, Relaxed));
    }
    PAGES
        .replace(PAGES.get().wrapping_add(1))
        .is_multiple_of(COUNTED_PAGES)
}

/// What a transaction has written: values, which iterators over it share, or deletions.
pub type Writes = BTreeMap<Vec<u8>, Option<Arc<Vec<u8>>>>;

/// What pages are read of.
pub struct PagesOf<'s> {
    pub store: StoreRef<'s>,
    pub snapshot: Snapshot,
    pub range: KeyRange,
    /// Changes of the transaction that asks.
    pub writes: Writes,
}

/// See the [module](self).
pub struct Pages<'s> {
    /// Before the store: nothing is kept for it once that closes.
    snapshot: Snapshot,
    store: StoreRef<'s>,
    writes: Writes,
    /// Items, or keys alone: then all values are empty.
    what: Wanted,
    /// What is still to be read, between these.
    front: Bound<Vec<u8>>,
    back: Bound<Vec<u8>>,
    is_open: bool,
    /// Items that were read before `front`, the first one first, tombstones among them.
    front_page: vec::IntoIter<Item>,
    /// Items that were read behind `back`, the last one first, tombstones among them.
    back_page: vec::IntoIter<Item>,
    /// Most items of the next page.
    page_items: usize,
    /// Most of them that are read of the tables, once a page says how many that may be.
    above_items: Option<usize>,
    /// Items that will still be asked for, if that is known.
    expected: usize,
}

/// From which end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
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

    /// The part of a range from this end up to a key, or all of it.
    fn upto<'k>(self, range: Limits<'k>, last: Option<&'k [u8]>) -> Limits<'k> {
        match (last, self) {
            (None, _) => range,
            (Some(key), Self::Front) => (range.0, Bound::Included(key)),
            (Some(key), Self::Back) => (Bound::Included(key), range.1),
        }
    }
}

/// Items from one end of a range, tombstones among them.
struct Part {
    items: Vec<Item>,
    /// The last key that they reach, if there may be others behind it.
    rest: Option<Vec<u8>>,
}

impl Part {
    fn new(items: Vec<Item>, is_last: bool) -> Self {
        let last = items.last().filter(|_| !is_last);
        let rest = last.map(|(key, _)| key.clone());
        Self { items, rest }
    }

    /// Leaves out what is behind a key, if that is given.
    fn cut(&mut self, rest: Option<Vec<u8>>, end: End) {
        if let Some(rest) = rest {
            let is_reached = |(key, _): &Item| end.order(key, &rest).is_le();
            self.items.truncate(self.items.partition_point(is_reached));
            self.rest = Some(rest);
        }
    }
}

impl<'s> Pages<'s> {
    /// Pages of items.
    pub fn of_items(of: PagesOf<'s>) -> Self {
        Self::new(of, Wanted::Item)
    }

    /// Pages of keys, of which no values are read.
    pub fn of_keys(of: PagesOf<'s>) -> Self {
        Self::new(of, Wanted::Key)
    }

    fn new(of: PagesOf<'s>, what: Wanted) -> Self {
        let (front, back) = of.range;
        let limits = (as_slice(&front), as_slice(&back));
        Self {
            is_open: !is_empty(&limits),
            snapshot: of.snapshot,
            store: of.store,
            writes: of.writes,
            what,
            front,
            back,
            front_page: Vec::new().into_iter(),
            back_page: Vec::new().into_iter(),
            page_items: PAGE_ITEMS_INITIAL,
            above_items: None,
            expected: 0,
        }
    }

    /// Reads so many items at first: as many as will be asked for.
    pub fn expect(&mut self, items: usize) {
        self.page_items = items.clamp(1, PAGE_ITEMS_MAX);
        self.expected = items;
    }

    /// How many of the items of a page the tables have, most likely.
    fn share(&self, items: usize) -> usize {
        let (above, all) = self.states().fold((0, 0), |(above, all), state| {
            (above + state.tiers.table.len(), all + state.tiers.keys())
        });
        let share = to_usize((items as u64 * above).div_ceil(all.max(1)));
        share + 2 * share.isqrt() + SPARE_ITEMS
    }

    fn read_timed(&mut self, end: End) -> Result<()> {
        let started = TimedPath::RangePage.start();
        let read = self.read(end);
        self.store.metrics().finish(TimedPath::RangePage, started);
        if is_counted() {
            self.add_seeks(end);
        }
        read
    }

    /// Counts the page that was read, for all that are not counted.
    fn add_seeks(&self, end: End) {
        let page = match end {
            End::Front => &self.front_page,
            End::Back => &self.back_page,
        };
        if let Some((key, _)) = page.as_slice().first() {
            self.states()
                .for_each(|state| state.tiers.spill.add_seeks(key, COUNTED_PAGES.into()));
        }
    }

    fn states(&self) -> impl Iterator<Item = &StoreInner> {
        let all = self.store.partitions().all();
        all.iter().map(|partition| &partition.state)
    }

    /// Reads items from one end of what is still to be read, until there are some or that is all.
    fn read(&mut self, end: End) -> Result<()> {
        self.store.here()?;
        while self.is_open {
            let limits = (as_slice(&self.front), as_slice(&self.back));
            // In the order in which a change goes through them.
            let mut newer = self.newer(limits, end);
            let page = PageOf {
                range: end.upto(limits, newer.rest.as_deref()),
                items: self.page_items,
                what: self.what,
            };
            let above_items = self.above_items.unwrap_or_else(|| self.share(page.items));
            let of_tables = PageOf {
                items: page.items.min(above_items),
                ..page
            };
            let (above, versions) = above(self.store.partitions(), of_tables, end)?;
            let (mut part, taken) = with_files(above, &versions, page, end)?;
            match part.rest.is_some() {
                true => newer.cut(part.rest.clone(), end),
                false => part.rest = newer.rest.take(),
            }
            part.items = overlay(part.items, newer.items.into_iter(), end);
            let old = self.cut_to_page(&mut part, limits, end);
            let Part { items, rest } = self.overlay_newer(part, old, limits, end)?;
            // The next page is up to twice as long.
            self.above_items = Some(4 * taken + SPARE_ITEMS);
            // Of long items as few are asked for as there is room for.
            self.page_items = (2 * items.len()).clamp(1, PAGE_ITEMS_MAX);
            let values = items.iter().filter(|(_, value)| value.is_some()).count();
            self.expected = self.expected.saturating_sub(values);
            // Nothing but tombstones says nothing of how many are to come.
            if self.expected > 0 && values > 0 {
                self.page_items = self.page_items.min(self.expected);
            }
            match (rest, end) {
                (None, _) => self.is_open = false,
                (Some(key), End::Front) => self.front = Bound::Excluded(key),
                (Some(key), End::Back) => self.back = Bound::Excluded(key),
            }
            // What was read before is used up.
            match end {
                End::Front => self.front_page = items.into_iter(),
                End::Back => self.back_page = items.into_iter(),
            }
            if values > 0 {
                break;
            }
        }
        Ok(())
    }

    /// What commits that the snapshot sees, and that the table may not have yet, have changed.
    fn newer(&self, limits: Limits, end: End) -> Part {
        let mut newer = Part::new(Vec::new(), true);
        // Of two groups of one partition the newer one comes first.
        let mut visit = |group: &dyn group_writes::Writes| {
            let range = end.upto(limits, newer.rest.as_deref());
            let writes = end.first(group.range(range));
            let last = self.page_end(writes.map(|(key, value)| (key, value.map(<[u8]>::len))));
            let range = end.upto(range, last.as_deref());
            let owned = |(key, value): group_writes::Write| (key.to_vec(), self.wanted(value));
            let items = end.first(group.range(range)).map(owned).collect();
            newer.cut(last, end);
            let above = std::mem::take(&mut newer.items);
            newer.items = overlay(items, above.into_iter(), end);
        };
        for state in self.states() {
            state.published.each(self.snapshot.commit_seq, &mut visit);
        }
        // Several groups have more than one.
        let entries = newer.items.iter();
        let entries = entries.map(|(key, value)| (&key[..], value.as_ref().map(Vec::len)));
        let last = self.page_end(entries);
        newer.cut(last, end);
        newer
    }

    /// Ends a part where what is to be put over it is as long as a page has room for. Gives what the snapshot
    /// sees otherwise up to there.
    fn cut_to_page(&self, part: &mut Part, limits: Limits, end: End) -> Vec<(Vec<u8>, OldVersion)> {
        let at = self.snapshot.commit_seq;
        let with_old = self.states().filter_map(|state| state.old_versions_at(at));
        let with_old: Vec<_> = with_old.collect();
        for old_versions in &with_old {
            let range = end.upto(limits, part.rest.as_deref());
            let old = self.old(old_versions, range, end);
            let old_end = self.page_end(old.map(|(key, version)| (key, version.len())));
            part.cut(old_end, end);
        }
        let range = end.upto(limits, part.rest.as_deref());
        let own = self.own(range, end);
        let own_end = self.page_end(own.map(|(key, value)| (key, value.map(Vec::len))));
        part.cut(own_end, end);
        let range = end.upto(limits, part.rest.as_deref());
        let old = with_old.iter();
        let old = old.flat_map(|old_versions| self.old(old_versions, range, end));
        let mut old: Vec<_> = old
            .map(|(key, version)| (key.to_vec(), version.clone()))
            .collect();
        if with_old.len() > 1 {
            old.sort_by(|(a, _), (b, _)| end.order(a, b));
        }
        old
    }

    /// Puts what the snapshot sees otherwise, and what the transaction has changed, over items of tiers.
    fn overlay_newer(
        &self,
        mut part: Part,
        old: Vec<(Vec<u8>, OldVersion)>,
        limits: Limits,
        end: End,
    ) -> Result<Part> {
        let read = |(key, version): (Vec<u8>, OldVersion)| {
            let value = match self.what {
                Wanted::Item => version.into_value(),
                Wanted::Key | Wanted::End => version.into_empty_value(),
            };
            value.map(|value| (key, value))
        };
        let old = old.into_iter().map(read).collect::<Result<Vec<Item>>>()?;
        let range = end.upto(limits, part.rest.as_deref());
        let own = self.own(range, end);
        let own = own.map(|(key, value)| (key.to_vec(), self.wanted(value.map(Vec::as_slice))));
        let items = overlay(part.items, old.into_iter(), end);
        part.items = overlay(items, own, end);
        Ok(part)
    }

    /// What the snapshot sees otherwise than the tiers have it.
    fn old<'p>(
        &self,
        old_versions: &'p OldVersions,
        range: Limits<'p>,
        end: End,
    ) -> impl Iterator<Item = (&'p [u8], &'p OldVersion)> + use<'p> {
        end.first(old_versions.range(range, self.snapshot.commit_seq))
    }

    /// What the transaction has changed.
    fn own<'p>(
        &'p self,
        range: Limits<'p>,
        end: End,
    ) -> impl Iterator<Item = (&'p [u8], Option<&'p Vec<u8>>)> {
        let writes = (!is_empty(&range)).then(|| self.writes.range::<[u8], _>(range));
        let written = |(key, value): (&'p Vec<u8>, &'p Option<Arc<Vec<u8>>>)| {
            (key.as_slice(), value.as_deref())
        };
        end.first(writes.into_iter().flatten().map(written))
    }

    /// What is wanted of a value.
    fn wanted(&self, value: Option<&[u8]>) -> Value {
        match self.what {
            Wanted::Item => value.map(<[u8]>::to_vec),
            Wanted::Key | Wanted::End => value.map(|_| Vec::new()),
        }
    }

    /// The last key of the first page of entries, which are keys with the bytes of their values, if there are
    /// more.
    fn page_end<'k>(
        &self,
        entries: impl Iterator<Item = (&'k [u8], Option<usize>)>,
    ) -> Option<Vec<u8>> {
        let mut last: Option<&[u8]> = None;
        let mut bytes = 0;
        for (nth, (key, value_bytes)) in entries.enumerate() {
            let value_bytes = value_bytes.filter(|_| self.what == Wanted::Item);
            bytes += key.len() + value_bytes.unwrap_or(0);
            if nth == self.page_items || nth > 0 && bytes > PAGE_BYTES_MAX {
                return last.map(<[u8]>::to_vec);
            }
            last = Some(key);
        }
        None
    }

    /// Takes the next item from one end.
    #[inline]
    pub fn take(&mut self, end: End) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        match self.take_read(end) {
            Some(item) => Some(Ok(item)),
            None => self.take_unread(end),
        }
    }

    /// The same if it was not read yet.
    #[inline(never)]
    fn take_unread(&mut self, end: End) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        if self.is_open {
            if let Err(error) = self.read_timed(end) {
                self.is_open = false;
                self.front_page = Vec::new().into_iter();
                self.back_page = Vec::new().into_iter();
                return Some(Err(error));
            }
            if let Some(item) = self.take_read(end) {
                return Some(Ok(item));
            }
        }
        // What was read from the other end is all that is left, once the range is read.
        let last = match end {
            End::Front => self.back_page.by_ref().rev().find_map(with_value),
            End::Back => self.front_page.by_ref().rev().find_map(with_value),
        };
        last.map(Ok)
    }

    /// Takes the next item that was read from an end.
    #[inline]
    fn take_read(&mut self, end: End) -> Option<(Vec<u8>, Vec<u8>)> {
        let read = match end {
            End::Front => &mut self.front_page,
            End::Back => &mut self.back_page,
        };
        read.find_map(with_value)
    }

    /// Shows what is still to be read.
    pub fn show(&self, mut shown: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        shown
            .field("front", &self.front)
            .field("back", &self.back)
            .finish_non_exhaustive()
    }
}

/// An item that is not a tombstone.
#[inline]
fn with_value((key, value): Item) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((key, value?))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Items of the tables from one end of a range, and the files of each partition that have what has left them since.
fn above(partitions: &Partitions, page: PageOf, end: End) -> Result<(Part, Vec<Arc<LsmVersion>>)> {
    let items = partitions.items();
    let versions = || {
        let spills = partitions.all().iter().map(|one| &one.state.tiers.spill);
        spills.filter_map(Spill::version_if_any).collect()
    };
    let mut entries = page.items;
    loop {
        let chunks = |view: &OrderedView| match end {
            End::Front => view.at_start(page.range, entries),
            End::Back => view.at_end(page.range, entries),
        };
        let found = partitions.with_order(chunks, |chunks| {
            let found = match end {
                End::Front => chunks.first(page, &items)?,
                End::Back => chunks.last(page, &items)?,
            };
            let part = found.map(|found| Part::new(found.items, found.is_last));
            Ok(part.map(|part| (part, versions())))
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        // Some of the entries named keys outside of the range.
        entries = entries.saturating_mul(2);
    }
}

/// Items from one end of a range: of each key what a table has or else the files, and how many are of the tables. The
/// files are read while changes go on: what leaves a table is in a file before.
fn with_files(
    above: Part,
    versions: &[Arc<LsmVersion>],
    page: PageOf,
    end: End,
) -> Result<(Part, usize)> {
    let Part { items, rest } = above;
    let count = items.len();
    let mut items = items.into_iter();
    let of = lsm::PageOf {
        // Nothing is read that is behind what the tables have.
        range: end.upto(page.range, rest.as_deref()),
        from_end: end == End::Back,
        items: page.items,
        bytes: PAGE_BYTES_MAX,
        with_values: page.what == Wanted::Item,
    };
    let read = lsm::Page::read(versions.iter().map(|version| &**version), &mut items, of)?;
    let mut part = Part::new(read.items, read.is_last);
    part.rest = part.rest.or(rest);
    Ok((part, count - items.len()))
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
