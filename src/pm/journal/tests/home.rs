//! What the file at home tells of its journal.

use super::*;
use crate::pm::sim_disk::{Disk, DiskState, Files};

/// Lets so many pages get home, and all else that does not go there.
#[derive(Debug)]
struct Pages(AtomicU64);

impl Faults for Pages {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_page = call == Call::Write && path.extension().is_none();
        let take = |left: u64| left.checked_sub(1);
        match is_page
            && self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_err()
        {
            true => Err(io::Error::other("kept away")),
            false => Ok(()),
        }
    }

    fn most_bytes(&self) -> usize {
        to_usize(PAGE)
    }
}

/// What stands at home when so many pages of the second checkpoint of a session have come, and the journal;
/// `None` if it has come wholly.
fn come_home(table: &Interrupted, pages: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    table.put(&table.states[0], &table.journal);
    let faults = Arc::new(Pages(AtomicU64::new(u64::MAX)));
    let options = MapOptions {
        faults: Some(faults.clone()),
        ..options(None)
    };
    let mapping = Mapping::open(&table.path(), &options).unwrap();
    change(&mapping, 3);
    faults.0.store(pages, Ordering::Relaxed);
    mapping.checkpoint().err()?;
    Some((
        fs::read(table.path()).unwrap(),
        fs::read(path_of(&table.path())).unwrap(),
    ))
}

/// A power cut that tears a copy must not leave one that names no journal beside pages of two
/// checkpoints.
#[test]
fn pages_are_written_home_once_both_copies_name_the_journal() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, LEN, &options(None)).unwrap();
    change(&mapping, 1);
    mapping.checkpoint().unwrap();
    drop(mapping);
    let closed = fs::read(&path).unwrap();
    let mut mixtures = 0;
    for pages in 0.. {
        fs::write(&path, &closed).unwrap();
        let _ = fs::remove_file(path_of(&path));
        let faults = Arc::new(Pages(AtomicU64::new(u64::MAX)));
        let options = MapOptions {
            faults: Some(faults.clone()),
            ..options(None)
        };
        let mapping = Mapping::open(&path, &options).unwrap();
        change(&mapping, 2);
        faults.0.store(pages, Ordering::Relaxed);
        let is_whole = mapping.checkpoint().is_ok();
        let home = fs::read(&path).unwrap();
        if data(&home) != data(&closed) {
            let (id, _) = mapping.journal.lock().name();
            assert_eq!(names(&home), [id, id], "after {pages} pages");
            mixtures += u64::from(!is_whole);
        }
        if is_whole {
            break;
        }
    }
    assert!(mixtures > 0);
}

#[test]
fn journal_damage_is_told_from_a_torn_journal() {
    let table = Interrupted::new();
    let (before, journal) = come_home(&table, 0).unwrap();
    let mut mixtures = 0;
    let mut rng = SmallRng::seed_from_u64(3);
    for (home, again) in (0..).map_while(|pages| come_home(&table, pages)) {
        assert!(again == journal);
        let is_home = home != before;
        mixtures += u64::from(is_home);
        let phase = rng.random_range(0..19);
        for at in sampled(journal.len()).skip(phase).step_by(19) {
            let mut damaged = journal.clone();
            damaged[at] ^= 4;
            if is_home || HEADER.contains(&at) {
                let error = refused(&table, &home, &damaged);
                assert!(
                    at < 12
                        || matches!(&error, Error::Damaged { path, .. } if *path == path_of(&table.path())),
                    "byte {at}: {error}"
                );
            } else {
                table.put(&home, &damaged);
                let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
                assert!(data(&contents(&mapping)) == data(&before), "byte {at}");
            }
            if is_home && at >= HEADER.end {
                refused(&table, &home, &journal[..at]);
            }
        }
    }
    assert!(mixtures > 2, "{mixtures}");
}

#[test]
fn journal_is_replayed_only_into_the_file_of_its_id() {
    let table = Interrupted::new();
    let [_, new] = &table.states;
    let id = std::mem::offset_of!(Superblock, file_id) + 16;
    let [first, second] = SUPERBLOCKS.map(to_usize);
    let mut torn = new.clone();
    for copy in [first, second] {
        torn[copy + id..][..to_usize(PAGE) - id].fill(0);
    }
    let zeros = vec![0; new.len()];
    for (home, is_refused) in [
        (zeros, true),
        (
            [&[0; 2 * to_usize(PAGE)], &new[2 * to_usize(PAGE)..]].concat(),
            true,
        ),
        (torn.clone(), false),
        (
            [&[0; to_usize(PAGE)], &torn[to_usize(PAGE)..]].concat(),
            false,
        ),
    ] {
        if is_refused {
            let error = refused(&table, &home, &table.journal);
            assert!(matches!(error, Error::Foreign { .. }), "{error}");
        } else {
            table.put(&home, &table.journal);
            assert_eq!(table.reopen(), 2);
        }
    }
}

#[test]
fn journal_taken_over_leaves_one_checkpoint_or_the_next() {
    let table = Interrupted::new();
    table.put_closed();
    let on = |disk: &Arc<Disk>| MapOptions {
        faults: Some(Arc::clone(disk) as Arc<dyn Faults>),
        ..options(None)
    };
    let mut rng = SmallRng::seed_from_u64(7);
    let closed: Files = [(table.path(), table.closed.clone())].into();
    let disk = Disk::holding(&closed);
    let mapping = Mapping::open(&table.path(), &on(&disk)).unwrap();
    for n in 2..4 {
        change(&mapping, n);
        mapping.checkpoint().unwrap();
    }
    change(&mapping, 4);
    mapping.capture().unwrap();
    let deaths = disk.recorded();
    drop(mapping);
    for (_, death) in deaths {
        let _ = fs::remove_file(path_of(&table.path()));
        let disk = Disk::after_death(&death);
        let mapping = Mapping::open(&table.path(), &on(&disk)).unwrap();
        let before = contents(&mapping);
        disk.begin(1);
        change(&mapping, 9);
        mapping.checkpoint().unwrap();
        let after = contents(&mapping);
        drop(mapping);
        for (moment, state) in disk.recorded() {
            let most = if moment == 1 { 3 } else { 0 };
            for image in state.power_cuts(most, &mut rng) {
                for path in [table.path(), path_of(&table.path())] {
                    let _ = fs::remove_file(path);
                }
                image
                    .iter()
                    .for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
                let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
                let found = contents(&mapping);
                assert!(
                    [&before, &after]
                        .into_iter()
                        .any(|state| data(state) == data(&found))
                );
            }
        }
    }
}

/// The process dies while it saves or closes the file, and the power goes while the next one opens
/// it. What the first one wrote last may not have arrived, and its journal may be gone by then.
#[test]
fn open_relies_on_nothing_that_a_death_left_undurable() {
    let table = Interrupted::new();
    let on = |disk: &Arc<Disk>| MapOptions {
        faults: Some(Arc::clone(disk) as Arc<dyn Faults>),
        ..options(None)
    };
    let mut rng = SmallRng::seed_from_u64(11);
    let closed: Files = [(table.path(), table.closed.clone())].into();
    let (mut before, mut images) = (0, 0);
    // Their superblocks have different offsets.
    for n in [2, 3] {
        table.put_closed();
        let disk = Disk::holding(&closed);
        let mapping = Mapping::open(&table.path(), &on(&disk)).unwrap();
        change(&mapping, n);
        mapping.checkpoint().unwrap();
        let saved = contents(&mapping);
        disk.begin(1);
        drop(mapping);
        for (moment, death) in disk.recorded() {
            let _ = fs::remove_file(path_of(&table.path()));
            let disk = Disk::after_death(&death);
            drop(Mapping::open(&table.path(), &on(&disk)).unwrap());
            for image in disk
                .recorded()
                .iter()
                .flat_map(|(_, state)| state.power_cuts(40, &mut rng))
            {
                for path in [table.path(), path_of(&table.path())] {
                    let _ = fs::remove_file(path);
                }
                for (path, bytes) in &image {
                    fs::write(path, bytes).unwrap();
                }
                let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
                let found = contents(&mapping);
                let is_old = data(&found) == data(&table.closed);
                assert!(data(&found) == data(&saved) || moment == 0 && is_old);
                before += u64::from(is_old);
                images += 1;
            }
        }
    }
    assert!(before > 8 && images > before + 8, "{before} of {images}");
}

/// A journal is torn before it is sealed, and the next session gives its own checkpoint the same number. What
/// there was of the first journal does not pass for the second one, whose pages are half home.
#[test]
fn journal_of_the_same_number_but_older_is_refused() {
    let table = Interrupted::new();
    table.put(&table.states[0], &table.journal);
    let read = || {
        let home = fs::read(table.path()).unwrap();
        (home, fs::read(path_of(&table.path())).ok())
    };
    let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
    change(&mapping, 3);
    mapping.capture().unwrap();
    let (home, torn) = read();
    mapping.journal.lock().seal().unwrap();
    let complete = read().1;
    drop(mapping);
    table.put(&home, torn.as_ref().unwrap());
    let faults = Arc::new(Pages(AtomicU64::new(u64::MAX)));
    let on = MapOptions {
        faults: Some(faults.clone()),
        ..options(None)
    };
    let mapping = Mapping::open(&table.path(), &on).unwrap();
    let taken_over = read().1;
    change(&mapping, 3);
    // Two of them are superblocks.
    faults.0.store(4, Ordering::Relaxed);
    mapping.checkpoint().unwrap_err();
    let (mixture, journal) = read();
    assert!(mixture != home);
    drop(mapping);
    for older in [torn, complete, taken_over].into_iter().flatten() {
        refused(&table, &mixture, &older);
    }
    table.put(&mixture, &journal.unwrap());
    Mapping::open(&table.path(), &options(None)).unwrap();
}

/// Lets so many journals become durable.
#[derive(Debug)]
struct Syncs(AtomicU64);

impl Faults for Syncs {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let take = |left: u64| left.checked_sub(1);
        match call == Call::Sync
            && path.extension().is_some()
            && self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_err()
        {
            true => Err(io::Error::other("not synced")),
            false => Ok(()),
        }
    }
}

#[test]
fn journal_not_durably_idle_is_not_overwritten() {
    let table = Interrupted::new();
    table.put_closed();
    let faults = Arc::new(Syncs(AtomicU64::new(1)));
    let options = MapOptions {
        faults: Some(faults.clone()),
        ..options(None)
    };
    let mapping = Mapping::open(&table.path(), &options).unwrap();
    change(&mapping, 2);
    mapping.checkpoint().unwrap();
    let journal = fs::read(path_of(&table.path())).unwrap();
    assert!(journal.len() > to_usize(IDLE));
    change(&mapping, 3);
    mapping.capture().unwrap_err();
    assert!(fs::read(path_of(&table.path())).unwrap() == journal);
    faults.0.store(u64::MAX, Ordering::Relaxed);
    mapping.checkpoint().unwrap();
    let found = contents(&mapping);
    drop(mapping);
    assert!(data(&fs::read(table.path()).unwrap()) == data(&found));
}

/// What a disk holds at a moment, and the digests of what may be found there then.
type Moment = (DiskState, Vec<u64>);

fn digest(contents: &[u8]) -> u64 {
    xxh3_64(data(contents))
}

/// The moments of some sessions, of two checkpoints each, and whether a sync failed: the one after `nth` others.
/// The session goes on then, or dies at once.
fn sessions_with_a_failed_sync(
    table: &Interrupted,
    nth: u64,
    goes_on: bool,
) -> (Vec<Moment>, bool) {
    table.put_closed();
    let mut disk = Disk::holding(&[(table.path(), table.closed.clone())].into());
    disk.fail(|call| call == Call::Sync, nth);
    let mut moments = Vec::new();
    let mut allowed = vec![digest(&table.closed)];
    let mut take = |disk: &Disk, allowed: &[u64]| {
        let recorded = disk.recorded().into_iter();
        moments.extend(recorded.map(|(_, state)| (state, allowed.to_vec())));
    };
    let mut mapping = None;
    let (mut n, mut was_met) = (1, false);
    for step in 0..13 {
        let acknowledged = match &mapping {
            None => {
                let faults = Some(Arc::clone(&disk) as Arc<dyn Faults>);
                let options = MapOptions {
                    faults,
                    ..options(None)
                };
                mapping = Mapping::open(&table.path(), &options).ok();
                // Whoever reads it relies on it.
                mapping.as_ref().map(contents)
            }
            Some(_) if step % 4 == 3 => {
                mapping = None;
                None
            }
            Some(session) => {
                n += 1;
                change(session, n);
                let next = contents(session);
                allowed.push(digest(&next));
                session.checkpoint().ok().map(|()| next)
            }
        };
        take(&disk, &allowed);
        match disk.failed().filter(|_| !was_met) {
            Some((_, death)) if !goes_on => {
                was_met = true;
                mapping = None;
                let _ = fs::remove_file(path_of(&table.path()));
                disk = Disk::after_death(&death);
            }
            failed => {
                was_met |= failed.is_some();
                if let Some(state) = acknowledged {
                    allowed = vec![digest(&state)];
                }
                disk.begin(0);
                take(&disk, &allowed);
            }
        }
    }
    (moments, was_met)
}

/// Later syncs do not write what the failed one did not.
#[test]
fn sync_that_fails_loses_no_checkpoint() {
    let table = Interrupted::new();
    let mut rng = SmallRng::seed_from_u64(13);
    let (mut failed, mut images) = (0, 0);
    for goes_on in [true, false] {
        for nth in 0.. {
            let (moments, was_met) = sessions_with_a_failed_sync(&table, nth, goes_on);
            for (state, allowed) in moments {
                for image in state.power_cuts(3, &mut rng) {
                    for path in [table.path(), path_of(&table.path())] {
                        let _ = fs::remove_file(path);
                    }
                    for (path, bytes) in &image {
                        fs::write(path, bytes).unwrap();
                    }
                    let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
                    assert!(
                        allowed.contains(&digest(&contents(&mapping))),
                        "sync {nth}, goes on: {goes_on}"
                    );
                    images += 1;
                }
            }
            if !was_met {
                break;
            }
            failed += 1;
        }
    }
    assert!(
        failed > 20 && images > 1000,
        "{failed} syncs, {images} images"
    );
}
