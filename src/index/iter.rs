//! Iterating over the items of an index.

use std::fmt;

use bytemuck::Pod;

use super::Index;
use crate::pm::Mapping;
use crate::table::iter::Items;

/// Iterator over the items of an index; see [`Index::iter`].
pub struct Iter<'i, K, V> {
    pub(super) items: Items<'i, Mapping, K, V>,
}

impl<K: Pod, V: Pod> Iterator for Iter<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.items.next()
    }
}

impl<K, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

impl<'i, K: Pod, V: Pod> IntoIterator for &'i Index<K, V> {
    type Item = (K, V);
    type IntoIter = Iter<'i, K, V>;

    fn into_iter(self) -> Iter<'i, K, V> {
        self.iter()
    }
}
