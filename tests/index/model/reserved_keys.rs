//! The two keys that equal the slot states are keys like any other.

use std::thread;

use gphash::Index;

use crate::{Checked, folder, options};

#[test]
fn keys_that_equal_slot_states_are_ordinary() {
    let folder = folder();
    let path = folder.path().join("f");
    let index = Index::<u64, u64>::create(&path, &options().capacity(10)).unwrap();
    let mut checked = Checked::new(index);
    let keys = [0, u64::MAX, 1, u64::MAX - 1];
    for round in 0..30 {
        checked.get(&keys, 7);
        checked.insert(&keys, &[round, round + 1, round + 2, round + 3]);
        checked.update(&[u64::MAX, 0], &[round * 2, round * 3]);
        checked.upsert(&[0, 0, u64::MAX], &[4, 5, 6]);
        checked.get(&keys, 7);
        checked.check();
        if round % 3 == 0 {
            checked.remove(&[0, u64::MAX, 0]);
            checked.check();
        }
        if round % 7 == 0 {
            let Checked { index, model } = checked;
            index.close().unwrap();
            checked = Checked {
                index: Index::open(&path, &options()).unwrap(),
                model,
            };
        }
    }
}

#[test]
fn threads_at_one_key_do_not_make_the_table_grow() {
    let folder = folder();
    let options = options().capacity(1).shape(3, 2, 1);
    let index = Index::<u64, u64>::create(folder.path().join("f"), &options).unwrap();
    let slots = index.stats().slots;
    thread::scope(|scope| {
        for thread in 0..4 {
            let index = &index;
            scope.spawn(move || {
                for _ in 0..500 {
                    index.upsert(&[0, u64::MAX], &[thread; 2]).unwrap();
                    index.remove(&[u64::MAX, 0]).unwrap();
                }
            });
        }
    });
    assert_eq!(index.stats().slots, slots);
    assert!(index.is_empty());
}

#[test]
fn keys_of_all_zeros_and_ones_are_ordinary() {
    let folder = folder();
    let index = Index::<[u64; 2], u64>::create(folder.path().join("f"), &options()).unwrap();
    let mut checked = Checked::new(index);
    let keys = [[0, 0], [u64::MAX, u64::MAX], [0, u64::MAX]];
    checked.insert(&keys, &[1, 2, 3]);
    checked.update(&keys, &[4, 5, 6]);
    checked.get(&keys, 0);
    checked.remove(&keys[..2]);
    checked.check();
}
