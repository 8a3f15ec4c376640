use super::*;

#[test]
fn mark_survives_in_one_whole_copy() {
    let mut bytes = vec![0; MARKS_LEN];
    assert_eq!(Mark::find(&bytes), Ok(None));
    assert_eq!(Mark::find(&[]), Ok(None));
    let mut last = None;
    for sequence in 1..6 {
        let mark = Mark::next(last, [1, 2], sequence, 9);
        let at = usize::try_from(mark.file_offset() - MARKS).unwrap();
        for cut in 0..size_of::<Mark>() {
            // Torn in the middle.
            let mut torn = bytes.clone();
            torn[at..at + cut].copy_from_slice(&bytemuck::bytes_of(&mark)[..cut]);
            let found = Mark::find(&torn);
            assert!(last.is_none() || found == Ok(last), "{found:?}");
        }
        bytes[at..at + size_of::<Mark>()].copy_from_slice(bytemuck::bytes_of(&mark));
        assert_eq!(Mark::find(&bytes), Ok(Some(mark)));
        last = Some(mark);
    }
    bytes[0] ^= 1;
    assert_eq!(Mark::find(&bytes).unwrap().unwrap().store_id, [1, 2]);
    bytes[MARKS_LEN / 2] ^= 1;
    assert!(Mark::find(&bytes).is_err());
}

#[test]
fn mark_with_an_impossible_count_is_none() {
    let mut bytes = vec![0; MARKS_LEN];
    for word in 2..5 {
        for (value, is_possible) in [(COUNT_LIMIT - 1, true), (COUNT_LIMIT, false)] {
            let mut words = [1, 2, 3, 4, 5];
            words[word] = value;
            let [first, second, sequence, generation, count] = words;
            let mut mark = Mark {
                store_id: [first, second],
                sequence,
                generation,
                count,
                checksum: 0,
            };
            mark.checksum = mark.sum();
            bytes[..size_of::<Mark>()].copy_from_slice(bytemuck::bytes_of(&mark));
            assert_eq!(Mark::find(&bytes).is_ok(), is_possible, "{mark:?}");
        }
    }
}
