//! What keeps a store open for the objects that read it.

use std::ops::Deref;
use std::sync::Arc;

use super::Store;
use super::inner::StoreInner;

/// A store that outlives the object which has this: borrowed, or shared with others.
#[derive(Clone)]
pub enum StoreRef<'s> {
    /// The borrow keeps it open.
    Borrowed(&'s Store),
    /// It is open until the last one who shares it is gone.
    Shared(Arc<Store>),
}

impl<'s> StoreRef<'s> {
    /// For an object that needs no more than what is read of a partition.
    pub fn inner(&self, partition: usize) -> InnerRef<'s> {
        match self {
            Self::Borrowed(store) => InnerRef::Borrowed(&store.partitions().all()[partition].state),
            Self::Shared(store) => InnerRef::Shared(Arc::clone(store), partition),
        }
    }
}

impl Deref for StoreRef<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        match self {
            Self::Borrowed(store) => store,
            Self::Shared(store) => store,
        }
    }
}

/// As [`StoreRef`], for one who reads a partition, which the store itself does, too.
pub enum InnerRef<'s> {
    /// The borrow keeps it open.
    Borrowed(&'s StoreInner),
    /// It is open until the last one who shares it is gone.
    Shared(Arc<Store>, usize),
}

impl<'s> From<&'s StoreInner> for InnerRef<'s> {
    fn from(inner: &'s StoreInner) -> Self {
        Self::Borrowed(inner)
    }
}

impl Deref for InnerRef<'_> {
    type Target = StoreInner;

    fn deref(&self) -> &StoreInner {
        match self {
            Self::Borrowed(inner) => inner,
            Self::Shared(store, partition) => &store.partitions().all()[*partition].state,
        }
    }
}
