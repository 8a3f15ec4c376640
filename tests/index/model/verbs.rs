//! Each verb by itself.

use gphash::{Error, Index};

use crate::{folder, options};

fn ones(answers: &fixedbitset::FixedBitSet) -> Vec<usize> {
    answers.ones().collect()
}

#[test]
fn batch_applies_equal_keys_in_order() {
    let folder = folder();
    let index = Index::<u64, u64>::create(folder.path().join("f"), &options()).unwrap();
    let keys = [5, 6, 5, 5, 7];
    assert_eq!(
        ones(&index.insert(&keys, &[1, 2, 3, 4, 5]).unwrap()),
        [0, 1, 4]
    );
    assert_eq!(index.get_one(&5).unwrap(), Some(1));
    assert_eq!(
        ones(&index.update(&[5, 8, 5], &[10, 11, 12]).unwrap()),
        [0, 2]
    );
    assert_eq!(index.get_one(&5).unwrap(), Some(12));
    assert_eq!(
        ones(&index.upsert(&[9, 5, 9, 9], &[1, 2, 3, 4]).unwrap()),
        [0]
    );
    assert_eq!(index.get_one(&9).unwrap(), Some(4));
    assert_eq!(ones(&index.remove(&[9, 9, 5, 1]).unwrap()), [0, 2]);
    assert_eq!(index.len(), 2);
    let mut values = [99; 4];
    assert_eq!(
        ones(&index.get(&[6, 9, 7, 6], &mut values).unwrap()),
        [0, 2, 3]
    );
    assert_eq!(values, [2, 99, 5, 2]);
}

#[test]
fn verbs_of_one_key() {
    let folder = folder();
    let index = Index::<u64, u32>::create(folder.path().join("f"), &options()).unwrap();
    assert!(index.is_empty());
    assert!(index.insert_one(&1, &10).unwrap());
    assert!(!index.insert_one(&1, &11).unwrap());
    assert!(!index.update_one(&2, &20).unwrap());
    assert!(index.upsert_one(&2, &21).unwrap());
    assert!(!index.upsert_one(&2, &22).unwrap());
    assert!(index.update_one(&1, &12).unwrap());
    assert_eq!(index.get_one(&1).unwrap(), Some(12));
    assert_eq!(index.get_one(&2).unwrap(), Some(22));
    assert_eq!(index.get_one(&3).unwrap(), None);
    assert!(index.remove_one(&1).unwrap());
    assert!(!index.remove_one(&1).unwrap());
    assert_eq!(index.len(), 1);
}

#[test]
fn batch_that_is_empty_does_nothing() {
    let folder = folder();
    let index = Index::<u64, u64>::create(folder.path().join("f"), &options()).unwrap();
    assert_eq!(index.insert(&[], &[]).unwrap().len(), 0);
    assert_eq!(index.get(&[], &mut []).unwrap().len(), 0);
    assert_eq!(index.remove(&[]).unwrap().len(), 0);
}

#[test]
fn slices_of_unequal_length_are_an_error_without_effect() {
    let folder = folder();
    let index = Index::<u64, u64>::create(folder.path().join("f"), &options()).unwrap();
    let mismatch = |result: Result<_, Error>| {
        assert!(matches!(
            result,
            Err(Error::LengthMismatch { keys: 2, values: 1 })
        ));
    };
    mismatch(index.insert(&[1, 2], &[1]));
    mismatch(index.upsert(&[1, 2], &[1]));
    mismatch(index.update(&[1, 2], &[1]));
    mismatch(index.get(&[1, 2], &mut [1]));
    assert!(index.is_empty());
}

#[test]
fn pm_touches_are_counted() {
    let folder = folder();
    let index = Index::<u64, [u8; 128]>::create(folder.path().join("f"), &options()).unwrap();
    index
        .insert(&(0..500).collect::<Vec<_>>(), &[[1; 128]; 500])
        .unwrap();
    let before = index.stats();
    assert_eq!(before.operations, 500);
    assert!(
        before.pm_touches_per_op() >= 2.0 && before.pm_touches_per_op() <= 8.0,
        "{before:?}"
    );
    index
        .get(&(0..500).collect::<Vec<_>>(), &mut [[0; 128]; 500])
        .unwrap();
    let after = index.stats();
    assert_eq!(after.operations, 1000);
    let get = (after.pm_touches - before.pm_touches) as f64 / 500.0;
    assert!((1.0..=5.0).contains(&get), "{get} touches a get");
}
