use super::*;

/// Why a part could not be read.
type Failure = &'static str;

/// Positions of a part.
const PART_LEN: usize = 1024;

/// The part of positions from `first` on, whose values say where they are.
fn part(first: usize, len: usize) -> ValuesPart {
    let mut part = ValuesPart::nulls(len);
    for nth in (0..len).rev().filter(|nth| (first + nth) % 3 != 1) {
        part.set(nth, &(first + nth).to_le_bytes());
    }
    part
}

/// A column of `len` such values, in which there is room for so many bytes at first.
fn builder(len: usize, bytes: usize) -> ColumnBuilder {
    let mut room = ColumnBuilder::new(1, BinaryColumn::default());
    let mut longest = ValuesPart::nulls(1);
    longest.set(0, &vec![0; bytes]);
    let copies = room.add(std::slice::from_ref(&longest), Lent::default());
    copies.into_iter().for_each(PartCopy::run);
    ColumnBuilder::new(len, room.finish())
}

/// Reads in the order of tasks, but notes what `late` says only once nothing else is left to do, and copies. Gives what had no
/// target.
fn assemble(assembly: &mut Assembly<Failure>, late: impl Fn(usize) -> bool) -> Vec<ValuesPart> {
    let mut held = Vec::new();
    loop {
        match assembly.next() {
            Some(Task::Read(positions, _)) if late(positions.start) => held.push(positions),
            Some(Task::Read(positions, _)) => {
                assembly.note(positions.start, Ok(part(positions.start, positions.len())));
            }
            Some(Task::Copy(target, part)) => {
                target.fill(&part);
                assembly.idle.push(part);
            }
            None => match held.pop() {
                Some(positions) => {
                    assembly.note(positions.start, Ok(part(positions.start, positions.len())));
                }
                None => break,
            },
        }
    }
    std::mem::take(&mut assembly.early).into_values().collect()
}

/// Builds a column with `rounds` of threads that stop. Gives how many there were.
fn check(len: usize, bytes: usize, early_max: usize, late: impl Fn(usize) -> bool + Copy) -> usize {
    let mut builder = builder(len, bytes);
    let mut rounds = 0;
    while builder.len() < len {
        rounds += 1;
        let first = builder.len();
        let mut assembly = Assembly::new(
            builder.room(),
            (first, len),
            PART_LEN,
            early_max,
            Vec::new(),
        );
        let left = assemble(&mut assembly, late);
        assembly.outcome.unwrap();
        let copies = builder.add(&left, Lent::default());
        copies.into_iter().for_each(PartCopy::run);
    }
    let column = builder.finish();
    assert_eq!(column.offsets.count(), len + 1);
    for nth in 0..len {
        let (start, end) = column.offsets.span(nth);
        let is_there = column.validity[nth / 8] >> (nth % 8) & 1 == 1;
        let found = is_there.then(|| &column.bytes[start..end]);
        let expected = (nth % 3 != 1).then(|| nth.to_le_bytes());
        assert_eq!(found, expected.as_ref().map(|bytes| &bytes[..]), "{nth}");
    }
    rounds
}

#[test]
fn parts_come_to_their_positions_in_any_order() {
    let len = 10 * PART_LEN + 5;
    let all = len * 8;
    assert_eq!(check(len, all, 100, |_| false), 1);
    assert_eq!(check(len, all, 100, |first| first == 0), 1);
    assert_eq!(check(len, all, 100, |first| first / PART_LEN % 2 == 1), 1);
    assert_eq!(check(len, all, 100, |_| true), 1);
    assert_eq!(check(1, all, 1, |_| false), 1);
}

#[test]
fn parts_without_room_are_left_for_a_longer_buffer() {
    let len = 10 * PART_LEN + 5;
    // For nothing, a part and some of the next one, most parts.
    for bytes in [0, PART_LEN * 8, len * 4] {
        assert_eq!(check(len, bytes, 100, |_| false), 2, "{bytes}");
        assert!(check(len, bytes, 100, |first| first == 0) <= 2, "{bytes}");
    }
}

#[test]
fn threads_stop_while_an_early_part_takes_long() {
    let len = 10 * PART_LEN + 5;
    let is_first = |first| first == 0;
    // Three of those behind it have come, and six are left.
    assert_eq!(check(len, len * 8, 3, is_first), 2);
    let mut builder = builder(len, len * 8);
    let mut assembly = Assembly::<Failure>::new(builder.room(), (0, len), PART_LEN, 3, Vec::new());
    for first in 0..4 {
        let Some(Task::Read(positions, _)) = assembly.next() else {
            panic!("part {first} is there to be read");
        };
        if first > 0 {
            assembly.note(positions.start, Ok(part(positions.start, positions.len())));
        }
    }
    assert!(assembly.next().is_none());
}

#[test]
fn nothing_is_read_after_an_error() {
    let len = 3 * PART_LEN;
    let mut builder = builder(len, len * 8);
    let mut assembly = Assembly::new(builder.room(), (0, len), PART_LEN, 100, Vec::new());
    assert!(matches!(assembly.next(), Some(Task::Read(..))));
    assembly.note(0, Err("damaged"));
    assert!(assembly.next().is_none());
    assert_eq!(assembly.outcome, Err("damaged"));
}
