use super::*;

#[test]
fn newest_snapshot_before_a_commit_is_found_in_any_shard() {
    let snapshots = Snapshots::default();
    assert_eq!(snapshots.newest_before(9), None);
    let take = |shard, commit_seq| snapshots.take_in(shard, || commit_seq);
    let _some = [take(3, 2), take(0, 7), take(15, 5), take(8, 9)];
    assert_eq!(snapshots.newest_before(2), None);
    assert_eq!(snapshots.newest_before(7), Some(5));
    assert_eq!(snapshots.newest_before(9), Some(7));
    assert!(snapshots.live().keys().eq(&[2, 5, 7, 9]));
}

#[test]
fn snapshots_are_found_after_many_vain_searches() {
    let snapshots = Snapshots::default();
    for round in 0..3 {
        for _ in 0..2 * VAIN_SEARCHES {
            assert_eq!(snapshots.newest_before(u64::MAX), None);
        }
        let first = snapshots.take_newest(|| round);
        let again = first.again();
        drop(first);
        assert_eq!(snapshots.newest_before(u64::MAX), Some(round));
        assert!(!snapshots.is_empty());
        drop(again);
        assert!(snapshots.is_empty());
    }
}

#[test]
fn who_releases_the_last_snapshot_is_told_once() {
    let snapshots = Snapshots::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    snapshots.on_unseen(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    drop(snapshots.take_newest(|| 1));
    assert_eq!(calls.load(Ordering::SeqCst), 0, "nothing was kept");
    let some: Vec<Snapshot> = (0..8).map(|shard| snapshots.take_in(shard, || 1)).collect();
    snapshots.note_kept();
    std::thread::scope(|scope| {
        for snapshot in some {
            scope.spawn(move || drop(snapshot));
        }
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn who_releases_the_oldest_snapshot_is_told_if_much_is_kept() {
    let snapshots = Snapshots::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    snapshots.on_unseen(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let (old, new) = (snapshots.take_newest(|| 1), snapshots.take_newest(|| 2));
    let oldest = old.again();
    snapshots.note_many_kept(Some(1));
    drop((old, snapshots.take_newest(|| 3)));
    assert_eq!(calls.load(Ordering::SeqCst), 0, "it is still there");
    drop(oldest);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(snapshots.take_newest(|| 4));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    snapshots.note_many_kept(Some(2));
    // Two threads have it: the first that lets go may find the other, who then is told, too.
    let other = snapshots.take_in((new.shard + 1) % SHARDS, || 2);
    drop(new);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    snapshots.note_many_kept(Some(2));
    drop(other);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    // It had gone before it was noted.
    snapshots.note_many_kept(Some(2));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    snapshots.note_many_kept(None);
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

/// Else nobody would hear of the end of the one that is the oldest then.
#[test]
fn end_of_a_snapshot_beside_a_note_of_it_is_told() {
    const ROUNDS: u64 = 500_000;
    let snapshots = Snapshots::default();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    snapshots.on_unseen(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let _newest = snapshots.take_newest(|| u64::MAX);
    let (given, taken) = (Mutex::new(None), AtomicU64::new(0));
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while taken.load(Ordering::SeqCst) < 2 * round - 1 {
                    std::thread::yield_now();
                }
                drop(given.lock().take());
                taken.store(2 * round, Ordering::SeqCst);
            }
        });
        let wrong = (1..=ROUNDS).filter(|&round| {
            *given.lock() = Some(snapshots.take_in(1, || round));
            taken.store(2 * round - 1, Ordering::SeqCst);
            let before = told.load(Ordering::SeqCst);
            snapshots.note_many_kept(Some(round));
            while taken.load(Ordering::SeqCst) < 2 * round {
                std::thread::yield_now();
            }
            snapshots.0.oldest.load(Ordering::SeqCst) == round
                || told.load(Ordering::SeqCst) == before
        });
        wrong.count()
    });
    assert_eq!(wrong, 0, "of {ROUNDS} that were released");
}
