//! Many keys at a time, whose blocks and values a disk reads side by side.

use std::mem;

use super::LsmVersion;
use super::values::{ValueFile, ValueRef};
use super::version::Located;
use crate::{Error, Result};

/// How many of them the disk is asked for at a time.
const LOOKUPS_AT_ONCE: usize = 64;

/// Why something was not read.
#[derive(Debug)]
pub(crate) enum NotRead {
    /// It is not in memory, or too long to be read before the disk is asked for others.
    WouldBlock,
    /// Nor is the filter that tells whether it is needed.
    FilterWouldBlock,
    Failed(Error),
}

impl From<Error> for NotRead {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a lookup waits for. If it finds that something else is not in memory, the disk is asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitsFor {
    Nothing,
    /// And indexes.
    Filters,
    /// And for those, too.
    Blocks,
}

/// A key that is looked up in files.
#[derive(Debug)]
pub(crate) struct Lookup<'k, F> {
    /// Its position among all.
    pub nth: usize,
    pub key: &'k [u8],
    pub files: &'k F,
}

/// Gives `found`, in no order, each key that is in the files, with the newest value or `None` for a tombstone.
///
/// First each lookup goes on as long as what it needs is in memory. Then each of the others waits for filters, and after
/// that for blocks, and goes on. In the end each waits for its value. The disk is asked for the first that each lacks
/// before any waits for such.
///
/// # Errors
/// [`Error::Damaged`], or what the operating system answers. Then nothing more is looked up.
pub(crate) fn get_each<'k, F: AsRef<LsmVersion> + 'k>(
    mut lookups: impl Iterator<Item = Lookup<'k, F>>,
    mut found: impl FnMut(&Lookup<'k, F>, Option<Vec<u8>>),
) -> Result<()> {
    let (mut some, mut unfiltered, mut values) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        some.extend(lookups.by_ref().take(LOOKUPS_AT_ONCE));
        if let [alone] = &some[..] {
            let item = alone.files.as_ref().get(alone.key)?;
            if let Some((_, value)) = item {
                found(alone, value);
            }
            return Ok(());
        }
        if some.is_empty() {
            return Ok(());
        }
        for waits_for in [WaitsFor::Nothing, WaitsFor::Filters, WaitsFor::Blocks] {
            let lookups = match waits_for {
                WaitsFor::Filters => &mut unfiltered,
                WaitsFor::Nothing | WaitsFor::Blocks => &mut some,
            };
            for lookup in mem::take(lookups) {
                match go_on(&lookup, waits_for, &mut found) {
                    Ok(None) => {}
                    Ok(Some(value)) => values.push((lookup, value)),
                    Err(NotRead::WouldBlock) => some.push(lookup),
                    Err(NotRead::FilterWouldBlock) => unfiltered.push(lookup),
                    Err(NotRead::Failed(error)) => return Err(error),
                }
            }
        }
        for (lookup, (file, value)) in values.drain(..) {
            found(&lookup, Some(file.read(&value)?));
        }
    }
}

/// Looks a key up as far as it can be, at most up to its value. Gives that if it is to be waited for.
fn go_on<'k, F: AsRef<LsmVersion> + 'k>(
    lookup: &Lookup<'k, F>,
    waits_for: WaitsFor,
    mut found: impl FnMut(&Lookup<'k, F>, Option<Vec<u8>>),
) -> Result<Option<(&'k ValueFile, ValueRef)>, NotRead> {
    match lookup.files.as_ref().locate(lookup.key, waits_for)? {
        None => {}
        Some(None) => found(lookup, None),
        Some(Some(Located::Inline(value))) => found(lookup, Some(value)),
        Some(Some(Located::Apart(file, value))) => match file.try_read(&value) {
            Ok(bytes) => found(lookup, Some(bytes)),
            Err(NotRead::WouldBlock) => return Ok(Some((file, value))),
            Err(error) => return Err(error),
        },
    }
    Ok(None)
}
