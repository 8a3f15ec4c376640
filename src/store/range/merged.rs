//! The items of all partitions in one order: each partition has its own, and the first of these comes next.

use std::fmt;

use super::pages::{End, PAGE_ITEMS_INITIAL, Pages, PagesOf};
use crate::Result;
use crate::store::store_ref::InnerRef;

type Item = (Vec<u8>, Vec<u8>);

/// Items that each of several partitions reads at first beside its share: they do not fall evenly.
const SPARE_ITEMS: usize = 2;

/// See the [module](self).
pub struct Merged<'s> {
    /// None are left after an error.
    parts: Vec<Part<'s>>,
}

/// What is left of a partition.
struct Part<'s> {
    pages: Pages<'s>,
    /// The items that were taken from the ends of the pages.
    front: Option<Item>,
    back: Option<Item>,
}

impl Part<'_> {
    /// Takes the next item from the pages, unless it was taken before.
    fn fill(&mut self, end: End) -> Result<()> {
        let head = match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        };
        if head.is_none() {
            *head = self.pages.take(end).transpose()?;
        }
        Ok(())
    }

    /// The next item: once nothing is between them, the one that was taken from the other end.
    fn next(&mut self, end: End) -> &mut Option<Item> {
        let (head, last) = match end {
            End::Front => (&mut self.front, &mut self.back),
            End::Back => (&mut self.back, &mut self.front),
        };
        if head.is_some() { head } else { last }
    }
}

impl<'s> Merged<'s> {
    /// Items.
    pub fn of_items(of: Vec<PagesOf<impl Into<InnerRef<'s>>>>) -> Self {
        Self::new(of.into_iter().map(Pages::of_items))
    }

    /// Keys, of which no values are read.
    pub fn of_keys(of: Vec<PagesOf<impl Into<InnerRef<'s>>>>) -> Self {
        Self::new(of.into_iter().map(Pages::of_keys))
    }

    fn new(pages: impl Iterator<Item = Pages<'s>>) -> Self {
        let part = |pages| Part {
            pages,
            front: None,
            back: None,
        };
        let mut merged = Self {
            parts: pages.map(part).collect(),
        };
        merged.expect(PAGE_ITEMS_INITIAL);
        merged
    }

    /// Reads so many items at first: as many as will be asked for.
    pub fn expect(&mut self, items: usize) {
        let share = match self.parts.len() {
            0 | 1 => items,
            parts => items.div_ceil(parts).saturating_add(SPARE_ITEMS).min(items),
        };
        self.parts
            .iter_mut()
            .for_each(|part| part.pages.expect(share));
    }

    /// Takes the next item from one end.
    pub fn take(&mut self, end: End) -> Option<Result<Item>> {
        if let [only] = &mut *self.parts {
            return only.pages.take(end);
        }
        let filled = self.parts.iter_mut().try_for_each(|part| part.fill(end));
        if let Err(error) = filled {
            self.parts.clear();
            return Some(Err(error));
        }
        let heads = self.parts.iter_mut().map(|part| part.next(end));
        let heads = heads.filter(|head| head.is_some());
        let first = match end {
            End::Front => heads.min_by(|a, b| key(a).cmp(&key(b))),
            End::Back => heads.max_by(|a, b| key(a).cmp(&key(b))),
        };
        first?.take().map(Ok)
    }

    /// Shows what is left.
    pub fn show(&self, mut shown: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        match self.parts.first() {
            Some(first) => first.pages.show(shown),
            None => shown.finish_non_exhaustive(),
        }
    }
}

fn key(item: &Option<Item>) -> Option<&[u8]> {
    item.as_ref().map(|(key, _)| key.as_slice())
}
