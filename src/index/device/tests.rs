use super::*;
use crate::engine::device_tests::{GPU, alone};
use crate::layout::BUSY;
use crate::pm::Medium;
use crate::table::key::reserved_bucket_at;
use crate::{Engine, Options};

/// Kernels that access what is not aligned would end the context, which other libraries use, too.
#[test]
fn slices_that_kernels_cannot_use_are_refused() {
    let check = |keys_at, answers_at, words| {
        // SAFETY: nobody looks at what is there.
        let (keys, answers) = unsafe {
            let keys = DeviceSlice::<u64>::from_raw(keys_at, 65);
            (keys, DeviceSliceMut::from_raw(answers_at, words))
        };
        operands(keys, None, answers)
    };
    assert_eq!(check(0x1000, 0x2008, 2).unwrap().answers, 0x2008);
    for (keys_at, answers_at, words, wrong) in [
        (0x1004, 0x2000, 2, "keys"),
        (0x1000, 0x2004, 2, "answers"),
        (0x1000, 0x2001, 2, "answers"),
        (0x1000, 0x2000, 1, "answers"),
    ] {
        let refused = check(keys_at, answers_at, words).unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { option, .. } if option == wrong));
    }
}

/// Of a key that equals a slot state: no growth would help it, and each would double the table.
#[test]
fn reserved_bucket_that_is_never_free_is_no_reason_to_grow() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let index = Index::<u64, u64>::create(&path, &Options::new().engine(Engine::Cpu)).unwrap();
    for slot in 0..index.table.shape.slots {
        let addr = index.table.shape.slot_addr(reserved_bucket_at(0), slot);
        index.table.medium.store(addr.state, BUSY);
    }
    index.close().unwrap();
    let index = Index::<u64, u64>::open(&path, &Options::new().engine(GPU)).unwrap();
    let before = index.stats();
    for keys in [&[0][..], &[1, 0, 2]] {
        let refused = index.insert(keys, keys).unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    }
    assert_eq!(index.stats().top_level, before.top_level);
    // Others go on, also that which has the other bucket.
    let keys: Vec<u64> = (1..3000).chain([u64::MAX]).collect();
    index.upsert(&keys, &keys).unwrap();
    assert_eq!(index.get_one(&u64::MAX).unwrap(), Some(u64::MAX));
    assert!(index.stats().top_level > before.top_level);
}
