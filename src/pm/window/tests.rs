use super::*;
use crate::pm::Dir;

const BYTES: u64 = 256 << 10;

#[test]
fn what_is_written_through_a_window_is_in_the_file() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = Dir::at(memory.path().to_path_buf(), None);
    let file = dir.create_file("log").unwrap();
    let mut window = Window::to(&file, BYTES);
    assert_eq!(window.bytes, BYTES, "/dev/shm is memory");
    let mut expected = Vec::new();
    let mut windows = [0; 2];
    for nth in 0..=u8::MAX {
        // Some are in one window, some in two; some are written by calls, one of which is longer than a window. In the
        // end one in four is.
        let is_end = nth > u8::MAX / 2;
        let len = match nth {
            100 => to_usize(BYTES) + 5,
            _ if is_end && nth % 4 == 0 => CALL_BYTES_MIN + usize::from(nth),
            _ => CALL_BYTES_MIN - 1 - usize::from(nth),
        };
        let (at, bytes) = (expected.len() as u64, vec![nth; len]);
        expected.extend(&bytes);
        // As on a disk with little room.
        let room = (expected.len() as u64).next_multiple_of(16 << 10);
        file.allocate(at, room).unwrap();
        window.write(&file, &bytes, at, room).unwrap();
        let has_it =
            |(map, first): &(MmapMut, u64)| (*first..*first + map.len() as u64).contains(&at);
        windows[usize::from(is_end)] +=
            u32::from(window.mapped.as_ref().is_some_and(has_it) && len < CALL_BYTES_MIN);
        // Calls and stores meet in the same bytes.
        if nth % 16 == 0 {
            let end = expected.len();
            file.write(&[1, 2, 3], end as u64 - 3).unwrap();
            window.write(&file, &[9], end as u64 - 2, room).unwrap();
            expected[end - 3..].copy_from_slice(&[1, 9, 3]);
        }
    }
    // Nearly all where all are short, and few between long ones.
    assert!(windows[0] > 110 && windows[1] < 10, "{windows:?}");
    let mut found = vec![0; expected.len()];
    assert_eq!(file.read(&mut found, 0).unwrap(), found.len());
    assert!(found == expected);
}

#[test]
fn file_is_written_with_a_window_and_without() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    for at in [&memory, &disk] {
        let dir = Dir::at(at.path().to_path_buf(), None);
        let file = dir.create_file("log").unwrap();
        let mut window = Window::to(&file, BYTES);
        window.write(&file, b"record", 3, u64::MAX).unwrap();
        window.write(&file, b"more", 9, 16).unwrap();
        let mut found = [1; 13];
        assert_eq!(file.read(&mut found, 0).unwrap(), 13);
        assert_eq!(&found, b"\0\0\0recordmore");
    }
    let dir = Dir::at(memory.path().to_path_buf(), None);
    let read_only = dir.open_file("log", false).unwrap();
    let mut window = Window::to(&read_only, BYTES);
    assert!(window.write(&read_only, b"record", 3, 16).is_err());
    assert_eq!(window.bytes, 0, "no room can be made sure of");
}
