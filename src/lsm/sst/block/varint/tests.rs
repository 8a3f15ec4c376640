use super::*;

#[test]
fn varint_round_trips() {
    let ends = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]);
    for number in ends.chain([u64::MAX]) {
        let mut bytes = Vec::new();
        put(&mut bytes, number);
        let mut at = 0;
        assert_eq!(take(&bytes, &mut at), Some(number));
        assert_eq!(at, bytes.len());
        assert_eq!(take(&bytes[..at - 1], &mut 0), None, "{number} cut");
    }
    assert_eq!(take(&[0xFF; 11], &mut 0), None);
    assert_eq!(take_len(&[9], &mut 0, 8), None);
}
