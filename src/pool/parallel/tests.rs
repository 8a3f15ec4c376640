use std::time::{Duration, Instant};

use super::*;

#[test]
fn parts_are_done_once_and_in_order() {
    for len in [0, 1, 2, 511, 512, 513, 100_000] {
        assert!(parts(len, 512).flatten().eq(0..len));
        assert!(collect(len, 512, |nth| nth).into_iter().eq(0..len));
        let mut bytes = vec![0u8; len];
        let lens = map(bytes.chunks_mut(100), |bytes| {
            bytes.iter_mut().for_each(|byte| *byte += 1);
            bytes.len()
        });
        assert_eq!(lens.into_iter().sum::<usize>(), len);
        assert!(bytes.iter().all(|&byte| byte == 1));
        for wanted in [0, 7, 511, 99_999] {
            let is_inside = wanted < len;
            let found = find_first(len, 512, |nth| nth >= wanted);
            assert_eq!(found, is_inside.then_some(wanted));
            assert_eq!(all(len, 512, |nth| nth < wanted), !is_inside);
        }
    }
}

#[test]
fn parts_on_threads_of_their_own_may_share_work() {
    for len in [0, 1, 2, 3, 100] {
        let made = map_on_threads(0..len, |nth| (nth, map(0..9, |part| part).len(), threads()));
        assert!(made.iter().map(|made| made.0).eq(0..len));
        let others = if len < cores() {
            rayon::current_num_threads()
        } else {
            1
        };
        assert!(
            made.iter().all(|made| made.1 == 9 && made.2 == others),
            "{made:?}"
        );
    }
    let panicked = catch_unwind(|| {
        map_on_threads(0..50, |nth| assert!(nth != 20));
    });
    assert!(panicked.is_err());
}

#[test]
fn parts_wait_side_by_side_whatever_the_cores() {
    for len in [0, 1, 2, 40] {
        // Each waits for all others.
        let (came, began) = (AtomicUsize::new(0), Instant::now());
        let made = map_waiting(0..len, |nth| {
            came.fetch_add(1, Ordering::Relaxed);
            while came.load(Ordering::Relaxed) < len {
                assert!(
                    began.elapsed() < Duration::from_secs(600),
                    "some never come"
                );
                thread::sleep(Duration::from_millis(1));
            }
            nth
        });
        assert!(made.into_iter().eq(0..len));
    }
    assert!(map_waiting(0..200, |nth| nth).into_iter().eq(0..200));
}
