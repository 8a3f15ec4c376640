//! Ranges of keys, as callers write them.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::store::mvcc::read_set::KeyRange;

/// A range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, or a pair of [`Bound`]s.
///
/// Keys are anything that is bytes, and only borrowed: a `Vec<u8>`, `&[u8]`, `&str`, `String`, `[u8; N]` or
/// `&[u8; N]`. The two of one range have one type: `b"a"` and `b"bc"` have not, `"a"` and `"bc"` have. A range
/// whose start is behind its end has no keys.
///
/// The trait does what [`RangeBounds`] does, and knows without an annotation what `..` is.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// for key in ["ada", "alan", "grace"] {
///     store.put(key, "")?;
/// }
/// assert_eq!(store.keys(..).count(), 3);
/// assert_eq!(store.keys("a".."b").count(), 2);
/// assert_eq!(store.keys(b"alan"..).count(), 2);
/// assert_eq!(store.keys(..=String::from("alan")).count(), 2);
/// let end = vec![b'g'];
/// assert_eq!(store.keys(..&end).count(), 2);
/// assert_eq!(store.keys("b".."a").count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyBounds: IntoKeyRange {}

/// What becomes of a range in the store. Nobody else implements it.
pub trait IntoKeyRange {
    /// The range, of keys of its own.
    fn into_key_range(self) -> KeyRange;
}

impl KeyBounds for RangeFull {}

impl IntoKeyRange for RangeFull {
    fn into_key_range(self) -> KeyRange {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! key_bounds {
    ($($range:ty),*) => {
        $(impl<K: AsRef<[u8]>> KeyBounds for $range {}

        impl<K: AsRef<[u8]>> IntoKeyRange for $range {
            fn into_key_range(self) -> KeyRange {
                let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
                (owned(self.start_bound()), owned(self.end_bound()))
            }
        })*
    };
}

key_bounds!(
    Range<K>,
    RangeFrom<K>,
    RangeInclusive<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

/// The range of the keys that begin with a prefix.
pub fn of_prefix(prefix: Vec<u8>) -> KeyRange {
    let mut end = prefix.clone();
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    let end = match end.last_mut() {
        Some(byte) => {
            *byte += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix), end)
}
