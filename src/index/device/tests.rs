use super::*;

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
