use super::*;

#[test]
fn record_words_of_members_are_plain_or_frozen() {
    let plain = RecordWord::member(7, 64);
    assert!(plain.is_member());
    assert!(plain.with(RecordWord::FROZEN).is_member());
    assert!(!plain.with(RecordWord::TENTATIVE).is_member());
    assert!(!plain.with(RecordWord::COLLIDED).is_member());
    assert!(!RecordWord::NONE.is_member());
    assert_eq!(plain.with(RecordWord::FROZEN).with(0), plain);
}

#[test]
fn record_words_with_their_state_have_an_even_number_of_ones() {
    for state in [1, 2, 3, 0x0123_4567_89AB_CDEF, u64::MAX - 1] {
        for offset in [8, 24, 65536, (1 << 56) - 8] {
            let member = RecordWord::member(state, offset);
            let flags = [
                0,
                RecordWord::FROZEN,
                RecordWord::COLLIDED,
                RecordWord::TENTATIVE,
            ];
            for flag in flags {
                let word = member.with(flag);
                let ones = word.0.count_ones() + state.count_ones();
                assert_eq!(ones % 2, 0, "{word:?} beside {state:#x}");
                assert!(word.is_sound(state) && word.offset() == offset);
                assert_eq!(word.with(0), member);
            }
        }
    }
}

#[test]
fn record_words_of_members_show_one_flipped_bit() {
    for flag in [0, RecordWord::FROZEN] {
        let (state, member) = (0xFEED, RecordWord::member(0xFEED, 0x12340).with(flag));
        for bit in 0..64 {
            assert!(!member.is_sound(state ^ 1 << bit), "bit {bit} of the state");
            let flipped = RecordWord(member.0 ^ 1 << bit);
            assert!(!flipped.is_sound(state), "bit {bit} of {member:?}");
        }
    }
}
