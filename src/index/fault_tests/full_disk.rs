//! A disk that is full, and stays so.

use super::*;
use crate::Error;

/// Calls that need room.
fn needs_room(call: Call, path: &Path) -> bool {
    let journal = path
        .extension()
        .is_some_and(|extension| extension == "journal");
    matches!(call, Call::SetLen | Call::Allocate) && !journal
        || matches!(call, Call::Write | Call::Create) && journal
}

/// Gives an index some items while there is room, then as many as go in until there is none; gives
/// how many keys it holds.
fn fill(index: &Table, faults: &Failing) -> u64 {
    for n in 0.. {
        if n == 300 {
            index.sync().unwrap();
            faults.cure(false);
        }
        let key = key(n);
        match index.insert_one(&key, &value(key, 1)) {
            Ok(stored) => assert!(stored),
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                return n;
            }
        }
    }
    unreachable!("the disk never filled")
}

fn holds(index: &Table, keys: &[u64], version: impl Fn(u64) -> u64) {
    let mut held = vec![[0; 128]; keys.len()];
    assert_eq!(
        index.get(keys, &mut held).unwrap().count_ones(..),
        keys.len()
    );
    for (&key, held) in keys.iter().zip(&held) {
        assert_eq!(*held, value(key, version(key)), "key {key}");
    }
}

/// Opens what a crash has left, and checks that it holds the last checkpoint.
fn check_all(place: &Place, last: Model) {
    let index = Table::open(place.path(), &place.options(None)).unwrap();
    let held: Vec<u64> = last.keys().copied().collect();
    holds(&index, &held, |key| last[&key]);
    assert_eq!(index.len(), held.len() as u64);
}

#[test]
fn a_full_disk_takes_updates_and_as_many_insertions_as_removals() {
    for place in Place::all() {
        let faults = Failing::only(needs_room, libc::ENOSPC);
        let options = place.options(Some(faults.clone()));
        let index = Table::create(place.path(), &options).unwrap();
        let held = keys(0..fill(&index, &faults));
        holds(&index, &held, |_| 1);
        assert_eq!(index.len(), held.len() as u64);

        // Room for one more value is all that updates need, one after another.
        assert!(index.remove_one(&held[0]).unwrap());
        for version in 2..6 {
            let updated = index.update(&held, &values(&held, version)).unwrap();
            assert_eq!(updated.count_ones(..), held.len() - 1);
            holds(&index, &held[1..], |_| version);
        }
        assert!(index.insert_one(&held[0], &value(held[0], 5)).unwrap());

        // What is removed makes room, in whichever batch it was.
        for chunk in held.chunks(7) {
            assert_eq!(index.remove(chunk).unwrap().count_ones(..), chunk.len());
            let stored = index.insert(chunk, &values(chunk, 9)).unwrap();
            assert_eq!(stored.count_ones(..), chunk.len());
        }
        holds(&index, &held, |_| 9);

        let synced = index.sync();
        match place.domain {
            Domain::Checkpointed => {
                let refused = synced.unwrap_err();
                assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
                let last = keys(0..300).into_iter().map(|key| (key, 1)).collect();
                check_all(&place.crash(), last);
            }
            _ => synced.unwrap(),
        }
        faults.cure(true);
        index.sync().unwrap();
        let fresh: Vec<u64> = (5000..6000).collect();
        let stored = index.insert(&fresh, &values(&fresh, 1)).unwrap();
        assert_eq!(stored.count_ones(..), fresh.len());
        index.close().unwrap();
        let index = Table::open(place.path(), &place.options(None)).unwrap();
        holds(&index, &held, |_| 9);
        holds(&index, &fresh, |_| 1);
    }
}

#[test]
fn threads_share_what_a_full_disk_has() {
    for place in Place::all() {
        let faults = Failing::only(needs_room, libc::ENOSPC);
        let index = Table::create(place.path(), &place.options(Some(faults.clone()))).unwrap();
        let held = keys(0..fill(&index, &faults));
        let (spare, held) = held.split_at(8);
        index.remove(spare).unwrap();
        let parts: Vec<&[u64]> = held.chunks(held.len().div_ceil(4)).collect();
        std::thread::scope(|scope| {
            for (thread, keys) in parts.iter().enumerate() {
                let index = &index;
                scope.spawn(move || {
                    for round in 0..200 {
                        let version = 10 + 1000 * thread as u64 + round;
                        let key = &keys[round as usize % keys.len()];
                        // The others may have all records that are free, and rest meanwhile.
                        let updated = (0..1_000_000).find_map(|_| {
                            let updated = index.update_one(key, &value(*key, version));
                            updated.inspect_err(|_| std::thread::yield_now()).ok()
                        });
                        assert_eq!(updated, Some(true));
                        assert_eq!(index.get_one(key).unwrap(), Some(value(*key, version)));
                    }
                });
            }
        });
        assert_eq!(index.len(), held.len() as u64);
        faults.cure(true);
        index.close().unwrap();
    }
}
