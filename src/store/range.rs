//! Items in order, as they were when the iterator was made.

mod bounds;
mod pages;

use std::fmt;
use std::iter::FusedIterator;

pub use bounds::KeyBounds;
pub(in crate::store) use bounds::of_prefix;
use pages::{End, Pages};
pub(in crate::store) use pages::{PagesOf, Writes};

use crate::Result;

/// Iterator over the items of a range of keys in ascending order, from both ends.
///
/// It sees the store as it was when the iterator was made, however long it is held. The values that
/// change meanwhile are kept for it: at most as many as the store had then. It reads up to 1 MiB of items
/// at a time, or one that is longer. After an error it ends.
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
    pages: Pages<'s>,
}

impl<'s> Range<'s> {
    pub(in crate::store) fn new(of: PagesOf<'s>) -> Self {
        Self {
            pages: Pages::of_items(of),
        }
    }

    /// Reads so many items at first: as many as will be asked for.
    pub(in crate::store) fn expecting(mut self, items: usize) -> Self {
        self.pages.expect(items);
        self
    }
}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pages.show(f.debug_struct("Range"))
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.pages.take(End::Front)
    }
}

impl DoubleEndedIterator for Range<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.pages.take(End::Back)
    }
}

impl FusedIterator for Range<'_> {}

/// Iterator over the keys of a range in ascending order, from both ends, without their values.
///
/// It sees the store as it was when the iterator was made, as a [`Range`] does. After an error it ends.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// for key in ["ada", "alan", "grace"] {
///     store.put(key, "")?;
/// }
/// let mut keys = store.keys(..);
/// store.delete("ada")?; // after the iterator was made
/// assert_eq!(keys.next().transpose()?, Some(b"ada".to_vec()));
/// assert_eq!(keys.next_back().transpose()?, Some(b"grace".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keys<'s> {
    pages: Pages<'s>,
}

impl<'s> Keys<'s> {
    pub(in crate::store) fn new(of: PagesOf<'s>) -> Self {
        Self {
            pages: Pages::of_keys(of),
        }
    }
}

impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pages.show(f.debug_struct("Keys"))
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.pages.take(End::Front)?;
        Some(item.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.pages.take(End::Back)?;
        Some(item.map(|(key, _)| key))
    }
}

impl FusedIterator for Keys<'_> {}
