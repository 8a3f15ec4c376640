//! Which buckets the bucket cache in a GPU's memory holds after a refresh, as numbers: how many entries there are for
//! them, and from which score on they are held.

/// What a refresh decides from the scores of all buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Buckets of a higher score are held.
    pub threshold: u32,
    /// How many linked buckets of just this score stay.
    pub keep: u64,
    /// How many others of this score come in.
    pub enter: u64,
    /// How many come in, whatever their score.
    pub room: u64,
}

/// Chooses among buckets of which `unlinked[s]` with score *s* are not in the cache and `linked[s]`
/// are, so that no more than `entries` are held. Of equal ones those stay that are there, and what
/// is there stays as long as nothing better needs its entry; a bucket of score 0 never comes in.
pub fn select(unlinked: &[u32], linked: &[u32], entries: u64) -> Selection {
    debug_assert_eq!(unlinked.len(), linked.len());
    let mut left = entries;
    let mut room = 0;
    for score in (1..unlinked.len()).rev() {
        let (new, old) = (u64::from(unlinked[score]), u64::from(linked[score]));
        if new + old > left {
            let keep = old.min(left);
            return Selection {
                threshold: u32::try_from(score).expect("scores are few"),
                keep,
                enter: left - keep,
                room: room + left - keep,
            };
        }
        left -= new + old;
        room += new;
    }
    Selection {
        threshold: 0,
        keep: left.min(linked[0].into()),
        enter: 0,
        room,
    }
}

/// The share of uses, of those that were counted, that a cache after this selection does not hold;
/// scores are counts of uses, as `ptx/kernels/cache.cu` maps them.
pub fn missed_share(unlinked: &[u32], linked: &[u32], selection: &Selection) -> f64 {
    const EXACT: usize = 64;
    let uses = |score: usize| match score.checked_sub(EXACT) {
        None => score as f64,
        Some(step) => {
            let (doublings, rest) = ((step / 32) as f64, (step % 32) as f64);
            EXACT as f64 * doublings.exp2() * (1.0 + rest / 32.0)
        }
    };
    let (mut held, mut all) = (0.0, 0.0);
    for score in 1..unlinked.len() {
        // What is linked scores half as much again.
        let of_linked = uses(score) / 1.5;
        let (new, old) = (f64::from(unlinked[score]), f64::from(linked[score]));
        all += new * uses(score) + old * of_linked;
        if score > selection.threshold as usize {
            held += new * uses(score) + old * of_linked;
        } else if score == selection.threshold as usize {
            held += selection.enter as f64 * uses(score) + selection.keep as f64 * of_linked;
        }
    }
    if all == 0.0 { 1.0 } else { 1.0 - held / all }
}

/// How many entries of `entry_len` bytes a cache gets that should have `wanted`. They must fit into
/// the `allowed` bytes, and into the `free` bytes of the device less an eighth, which is left to
/// running batches.
pub fn affordable(wanted: u64, entry_len: u64, free: u64, allowed: u64) -> u64 {
    /// Entries have numbers of 31 bits, and one is no number.
    const ENTRIES_MAX: u64 = (1 << 31) - 2;
    let bytes = (free - free / 8).min(allowed);
    wanted.min(bytes / entry_len).min(ENTRIES_MAX)
}

#[cfg(test)]
mod tests;
