//! What keeps a store open for the objects that read it.

use std::ops::Deref;
use std::sync::Arc;

use super::Store;

/// A store that outlives the object which has this: borrowed, or shared with others.
#[derive(Clone)]
pub enum StoreRef<'s> {
    /// The borrow keeps it open.
    Borrowed(&'s Store),
    /// It is open until the last one who shares it is gone.
    Shared(Arc<Store>),
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
