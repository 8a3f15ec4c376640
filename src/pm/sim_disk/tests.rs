use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;

fn outcomes(disk: &Disk) -> BTreeSet<Option<Vec<u8>>> {
    let mut rng = SmallRng::seed_from_u64(1);
    let images = disk.now().power_cuts(1000, &mut rng);
    images
        .into_iter()
        .map(|mut image| image.remove(Path::new("file")))
        .collect()
}

#[test]
fn sync_makes_names_lengths_and_sectors_certain() {
    let disk = Disk::default();
    let path = Path::new("file");
    disk.after(FileEvent::Created, path);
    assert_eq!(outcomes(&disk), [None, Some(vec![])].into());
    disk.after(FileEvent::SyncedDir, path);
    assert_eq!(outcomes(&disk), [Some(vec![])].into());
    disk.after(FileEvent::Wrote(510, &[1; 4]), path);
    let halves = |first: u8, second: u8| {
        let mut file = vec![0; 514];
        file[510..512].fill(first);
        file[512..].fill(second);
        Some(file)
    };
    let torn = [halves(0, 0), halves(0, 1), halves(1, 0), halves(1, 1)];
    let all: BTreeSet<_> = torn.into_iter().chain([Some(vec![])]).collect();
    assert_eq!(outcomes(&disk), all);
    disk.after(FileEvent::Synced, path);
    assert_eq!(outcomes(&disk), [halves(1, 1)].into());
    disk.after(FileEvent::SetLen(0), path);
    disk.after(FileEvent::SetLen(514), path);
    assert_eq!(outcomes(&disk).len(), 5);
    disk.after(FileEvent::Synced, path);
    assert_eq!(outcomes(&disk), [halves(0, 0)].into());
    disk.after(FileEvent::Removed, path);
    assert_eq!(outcomes(&disk), [halves(0, 0), None].into());
}

#[test]
fn sync_that_fails_forgets_what_is_not_written_again() {
    let disk = Disk::default();
    let path = Path::new("file");
    let file = |first: u8, second: u8| {
        let mut file = vec![first; 2 * SECTOR];
        file[SECTOR..].fill(second);
        Some(file)
    };
    let sync = || {
        disk.before(Call::Sync, path)?;
        disk.after(FileEvent::Synced, path);
        io::Result::Ok(())
    };
    disk.after(FileEvent::Created, path);
    disk.after(FileEvent::SyncedDir, path);
    disk.after(FileEvent::Wrote(0, &[1; 2 * SECTOR]), path);
    disk.fail(|call| call == Call::Sync, 1);
    sync().unwrap();
    disk.after(FileEvent::Wrote(0, &[2; 2 * SECTOR]), path);
    assert!(disk.failed().is_none());
    sync().unwrap_err();
    assert!(disk.failed().is_some());
    let torn = [file(1, 1), file(1, 2), file(2, 1), file(2, 2)];
    sync().unwrap();
    assert_eq!(outcomes(&disk), torn.into());
    disk.after(FileEvent::Wrote(SECTOR as u64, &[2; SECTOR]), path);
    sync().unwrap();
    assert_eq!(outcomes(&disk), [file(1, 2), file(2, 2)].into());
    disk.after(FileEvent::Wrote(0, &[2]), path);
    sync().unwrap();
    assert_eq!(outcomes(&disk), [file(2, 2)].into());
}
