use super::*;

#[test]
fn address_ranges_are_aligned_and_thousands_fit() {
    let small = Range::reserve(1, 0, 4096).unwrap();
    assert_eq!(small.base().addr() as u64 % HUGE_PAGE, 0);
    assert!(small.len() >= HEADROOM * HUGE_PAGE);
    let large = Range::reserve(1 << 39, 0, 4096).unwrap();
    assert!(large.len() >= HEADROOM << 39);
    let expected = Range::reserve(1, 3 << 40, 4096).unwrap();
    assert!(expected.len() >= 3 << 40);
    let gigantic = Range::reserve(1, 0, 1 << 30).unwrap();
    assert_eq!(gigantic.base().addr() % (1 << 30), 0);
    drop((small, large, expected, gigantic));
    // Not beside the large ranges: both together may be more than all addresses.
    let ranges: Vec<_> = (0..2000)
        .map(|_| Range::reserve(1 << 20, 0, 4096))
        .collect();
    assert!(ranges.iter().all(Result::is_ok));
    let len = |nth: usize| ranges[nth].as_ref().map_or(0, Range::len);
    // Other tests have files open, too.
    assert!(len(0) >= 64 << 30, "{}", len(0));
    assert!(len(1999) >= 256 << 20, "{}", len(1999));
}

#[test]
fn process_with_few_addresses_keeps_most_of_them() {
    let open = |left: &mut u64, (least, expected)| {
        let len = wanted(least, expected, Some(*left));
        *left -= len;
        len
    };
    let mut left = 64 << 30;
    assert_eq!(open(&mut left, (HUGE_PAGE, 0)), 4 << 30);
    for _ in 0..64 {
        open(&mut left, (HUGE_PAGE, 0));
    }
    assert!(left >= 512 << 20, "{left}");
    let mut left = 64 << 30;
    assert_eq!(open(&mut left, (HUGE_PAGE, 1 << 40)), 32 << 30);
    assert_eq!(open(&mut left, (6 << 30, 0)), 16 << 30);
    // What a file needs, it needs.
    assert_eq!(open(&mut left, (10 << 30, 0)), 10 << 30);
    assert_eq!(
        wanted(HUGE_PAGE, 0, Some(u64::MAX)),
        wanted(HUGE_PAGE, 0, None)
    );
}

#[test]
fn only_whole_system_pages_are_given_back() {
    const UNIT: u64 = 64 << 10;
    assert_eq!(whole(PAGE, 3 * UNIT - PAGE, UNIT), (UNIT, 2 * UNIT));
    assert_eq!(whole(UNIT, 2 * UNIT, UNIT), (UNIT, 2 * UNIT));
    for (from, to) in [
        (0, PAGE),
        (PAGE, UNIT),
        (PAGE, 2 * PAGE),
        (PAGE, 2 * UNIT - PAGE),
    ] {
        let (first, last) = whole(from, to, UNIT);
        assert!(first == last && from <= first && last <= to);
    }
    // The same with the pages of this system: what shares one with a neighbour stays.
    let range = Range::reserve(1 << 20, 0, PAGE).unwrap();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    range.map_fixed(0, 4 * UNIT, access, flags, -1, 0).unwrap();
    let byte = |at: u64| range.base().wrapping_add(to_usize(at));
    // SAFETY: the bytes were mapped just now, and nobody else has them.
    (0..4).for_each(|nth| unsafe { byte(nth * UNIT).write(1) });
    range.discard(PAGE, 2 * UNIT + PAGE, UNIT);
    // SAFETY: as above.
    let found = [0, 1, 2, 3].map(|nth| unsafe { byte(nth * UNIT).read() });
    assert_eq!(found, [1, 0, 1, 1]);
}
