use super::*;

#[test]
fn offsets_become_wide_when_they_must() {
    let mut offsets = Offsets::I32(vec![0]);
    offsets.push(i32::MAX as usize);
    assert_eq!(offsets, vec![0, i32::MAX].into());
    let last = i64::from(i32::MAX) + 1;
    offsets.push(usize::try_from(last).unwrap());
    assert_eq!(offsets, vec![0, i64::from(i32::MAX), last].into());
}
