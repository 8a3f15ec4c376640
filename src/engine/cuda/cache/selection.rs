//! Which buckets the cache holds after a refresh, as numbers: how many entries there are for them, and
//! from which score on they are held.

use crate::engine::cuda::abi::SCORES;

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
    debug_assert!(unlinked.len() == SCORES && linked.len() == SCORES);
    let mut left = entries;
    let mut room = 0;
    for score in (1..SCORES).rev() {
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
    for score in 1..SCORES {
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
mod tests {
    use super::*;

    fn scores(counts: &[(usize, u32)]) -> Vec<u32> {
        let mut scores = vec![0; SCORES];
        for &(score, count) in counts {
            scores[score] = count;
        }
        scores
    }

    /// Buckets held if lookups change nothing meanwhile.
    fn held(linked: &[u32], selection: &Selection) -> u64 {
        let above = selection.threshold as usize + 1;
        let stay: u32 = linked[above..].iter().sum();
        u64::from(stay) + selection.keep + selection.room
    }

    #[test]
    fn selection_keeps_the_highest_scores_and_prefers_cached_ones() {
        let unlinked = scores(&[(0, 1000), (1, 50), (7, 10), (900, 3)]);
        let linked = scores(&[(0, 5), (1, 20), (7, 4)]);
        let selection = select(&unlinked, &linked, 30);
        assert_eq!(
            selection,
            Selection {
                threshold: 1,
                keep: 13,
                enter: 0,
                room: 13
            }
        );
        assert_eq!(held(&linked, &selection), 30);
        let selection = select(&unlinked, &linked, 40);
        assert_eq!(
            (selection.keep, selection.enter, selection.room),
            (20, 3, 16)
        );
        assert_eq!(held(&linked, &selection), 40);
    }

    #[test]
    fn selection_misses_the_uses_below_its_threshold() {
        let unlinked = scores(&[(0, 1000), (1, 50), (2, 20), (10, 1)]);
        let linked = scores(&[(0, 9), (15, 4)]);
        let selection = select(&unlinked, &linked, 15);
        // 1 × 10 + 4 × 10 + 10 × 2 of 50 + 40 + 10 + 40 uses.
        assert!((missed_share(&unlinked, &linked, &selection) - 0.5).abs() < 1e-9);
        let nothing = scores(&[(0, 9)]);
        assert_eq!(
            missed_share(&nothing, &nothing, &select(&nothing, &nothing, 5)),
            1.0
        );
    }

    #[test]
    fn selection_keeps_but_never_admits_unused_buckets() {
        let (unlinked, linked) = (scores(&[(0, 1000), (3, 4)]), scores(&[(0, 9), (3, 1)]));
        let selection = select(&unlinked, &linked, 12);
        assert_eq!(
            selection,
            Selection {
                threshold: 0,
                keep: 7,
                enter: 0,
                room: 4
            }
        );
        assert_eq!(select(&unlinked, &linked, 100).keep, 9);
    }

    #[test]
    fn selection_without_entries_holds_nothing() {
        let unlinked = scores(&[(5, 10)]);
        let selection = select(&unlinked, &scores(&[]), 0);
        assert_eq!(
            (selection.threshold, selection.keep, selection.room),
            (5, 0, 0)
        );
    }

    #[test]
    fn cache_size_is_bounded_by_memory_and_option() {
        assert_eq!(affordable(100, 1000, 1 << 30, u64::MAX), 100);
        assert_eq!(affordable(100, 1000, 80_000, u64::MAX), 70);
        assert_eq!(affordable(100, 1000, 1 << 30, 12_999), 12);
        assert_eq!(affordable(100, 1000, 1 << 30, 0), 0);
        assert_eq!(affordable(u64::MAX, 1, u64::MAX, u64::MAX), (1 << 31) - 2);
    }
}
