//! The items of all partitions in one order: each partition has its own, and the first of these comes next.

use std::fmt;

use super::pages::{End, Pages, PagesOf};
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
    /// The items at its ends that were taken from the pages.
    front: Option<Item>,
    back: Option<Item>,
}

impl Part<'_> {
    /// The item at one end, and the one that others have taken from the other end if there is no more between.
    fn heads(&mut self, end: End) -> (&mut Option<Item>, &mut Option<Item>) {
        match end {
            End::Front => (&mut self.front, &mut self.back),
            End::Back => (&mut self.back, &mut self.front),
        }
    }

    /// Takes the next item from the pages, unless it was taken before.
    fn fill(&mut self, end: End) -> Result<()> {
        if self.heads(end).0.is_none()
            && let Some(item) = self.pages.take(end)
        {
            *self.heads(end).0 = Some(item?);
        }
        Ok(())
    }

    fn head(&mut self, end: End) -> &mut Option<Item> {
        match self.heads(end) {
            (None, last) => last,
            (head, _) => head,
        }
    }

    fn key(&self, end: End) -> Option<&[u8]> {
        let (head, last) = match end {
            End::Front => (&self.front, &self.back),
            End::Back => (&self.back, &self.front),
        };
        let item = head.as_ref().or(last.as_ref());
        item.map(|(key, _)| key.as_slice())
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
        Self {
            parts: pages.map(part).collect(),
        }
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
        let keys = self.parts.iter().enumerate();
        let keys = keys.filter_map(|(nth, part)| Some((part.key(end)?, nth)));
        let (_, nth) = match end {
            End::Front => keys.min(),
            End::Back => keys.max(),
        }?;
        self.parts[nth].head(end).take().map(Ok)
    }

    /// Shows what is left.
    pub fn show(&self, mut shown: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        match self.parts.first() {
            Some(first) => first.pages.show(shown),
            None => shown.finish_non_exhaustive(),
        }
    }
}
