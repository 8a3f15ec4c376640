//! Which threads do the shares of a group.

use crate::Result;
use crate::pool::parallel;

/// Whether each share is done by one thread. To share it once more costs more than it saves, unless threads would have
/// nothing to do: there are fewer shares, or some are much longer.
#[derive(Clone, Copy)]
pub(super) struct Apart(bool);

impl Apart {
    /// That of shares of these lengths.
    pub fn of(lens: impl Iterator<Item = usize> + Clone) -> Self {
        let (threads, shares) = (parallel::threads(), lens.clone().count());
        let longest = lens.clone().max().unwrap_or(0);
        let is_even = 2 * longest * shares <= 3 * lens.sum::<usize>();
        let is_full = shares.is_multiple_of(threads) || shares >= 4 * threads;
        Self(is_even && is_full)
    }

    /// What `make` makes of each, side by side if there are threads for that.
    pub fn map<T: Send, R: Send>(
        self,
        of: impl IntoIterator<Item = T>,
        make: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        parallel::map_if_shared(of, |one| match self.0 {
            true => parallel::alone(|| make(one)),
            false => make(one),
        })
    }

    /// As [`map`](Self::map), unless one of them fails.
    pub fn try_map<T: Send, R: Send>(
        self,
        of: impl IntoIterator<Item = T>,
        make: impl Fn(T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.map(of, make).into_iter().collect()
    }
}
