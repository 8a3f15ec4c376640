//! Files whose journal is missing or damaged while they need it: any of their pages may be of the last
//! checkpoint or of the one before. Only a salvage uses them, says so, and leaves them whole.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::damage_tests::{Home, Kind, Model, Open};
use super::repair::{recover, recover_with};
use crate::index::fault_tests::faults::{Failing, TestDir};
use crate::index::fault_tests::seed;
use crate::layout::{PAGE, SUPERBLOCKS};
use crate::pm::{Entry, MapOptions};
use crate::width::to_usize;
use crate::{Domain, Error, Repair, ReportState, Result};

/// A file before and after a checkpoint, whose journal is complete.
struct Half {
    kind: Kind,
    test_dir: TestDir,
    before: Vec<u8>,
    after: Vec<u8>,
    journal: Vec<u8>,
    /// Every item that there ever was: each key has had one value.
    ever: Model,
}

impl Half {
    /// `grows`: the table does between the checkpoints.
    fn new(kind: Kind, grows: bool) -> Self {
        let test_dir = TestDir::all().into_iter().nth(1).unwrap();
        assert_eq!(test_dir.domain, Domain::Checkpointed);
        let home = Arc::new(Home(AtomicU64::new(u64::MAX)));
        let options = test_dir.options(None).faults(home.clone());
        let index = kind.open(&test_dir.path(), &options).unwrap();
        index.change(0..140);
        index.sync().unwrap();
        let mut ever = index.contents().unwrap();
        index.change(if grows { 100..600 } else { 100..150 });
        ever.extend(index.contents().unwrap());
        home.0.store(0, Ordering::Relaxed);
        index.sync().unwrap_err();
        let before = fs::read(test_dir.path()).unwrap();
        home.0.store(u64::MAX, Ordering::Relaxed);
        let journal = fs::read(test_dir.path().with_extension("journal")).unwrap();
        index.sync().unwrap();
        let after = fs::read(test_dir.path()).unwrap();
        index.close();
        fs::remove_file(test_dir.path()).unwrap();
        Self {
            kind,
            test_dir,
            before,
            after,
            journal,
            ever,
        }
    }

    fn path(&self) -> PathBuf {
        self.test_dir.path()
    }

    /// Names of what is beside the file.
    fn beside(&self) -> Vec<String> {
        let mut names = self.test_dir.files();
        names.retain(|name| name != "index");
        names
    }

    /// Both copies of the superblock have come home, as they do first, and some other pages.
    fn mixture(&self, rng: &mut SmallRng) -> Vec<u8> {
        let mut home = self.before.clone();
        let most = rng.random_range(0.0..=1.0);
        for at in (0..home.len()).step_by(to_usize(PAGE)) {
            if SUPERBLOCKS.contains(&(at as u64)) || rng.random_bool(most) {
                let page = at..at + to_usize(PAGE);
                home[page.clone()].copy_from_slice(&self.after[page]);
            }
        }
        home
    }

    fn put(&self, home: &[u8], journal: Option<&[u8]>) {
        for name in self.beside() {
            fs::remove_file(self.test_dir.dir.path().join(name)).unwrap();
        }
        fs::write(self.path(), home).unwrap();
        if let Some(journal) = journal {
            fs::write(self.path().with_extension("journal"), journal).unwrap();
        }
    }

    fn read(&self) -> Result<Model> {
        self.kind
            .open(&self.path(), &self.test_dir.options(None))
            .and_then(|index: Open| index.contents())
    }

    /// Whether all that was found was there once; values of fixed size may be other keys'.
    fn are_of_old(&self, found: &Model) -> bool {
        found.iter().all(|(key, value)| match self.kind {
            Kind::Variable => self.ever.get(key) == Some(value),
            Kind::Word | Kind::Wide => self.ever.contains_key(key),
        })
    }
}

#[test]
fn salvage_opens_a_file_without_its_journal() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for kind in [Kind::Word, Kind::Wide, Kind::Variable] {
        for grows in [false, true] {
            let half = Half::new(kind, grows);
            let (mut salvaged, mut named, mut unnamed) = (0, 0, 0);
            let mut spoilt = half.journal.clone();
            spoilt[to_usize(PAGE)] ^= 8;
            let cut = &half.journal[..half.journal.len() - 9];
            for nth in 0..120 {
                let home = half.mixture(&mut rng);
                let journal = [None, Some(&spoilt[..]), Some(cut)][nth % 3];
                half.put(&home, journal);
                let told = half.read().unwrap_err();
                match journal {
                    None => assert!(matches!(told, Error::JournalMissing { .. }), "{told}"),
                    Some(_) => assert!(
                        matches!(&told, Error::Damaged { what, .. } if *what == "journal"),
                        "{told}"
                    ),
                }
                for repair in [Repair::Check, Repair::Recover] {
                    recover(half.path(), repair, &|_| {}).unwrap_err();
                }
                assert!(fs::read(half.path()).unwrap() == home);
                let report = recover(half.path(), Repair::Salvage, &|_| {}).unwrap();
                assert_eq!(report.state, ReportState::Damaged);
                assert!(
                    report.recovery.damage[0].starts_with("journal: "),
                    "{report:?}"
                );
                let kept = fs::read(half.path().with_extension("journal.damaged")).ok();
                assert!(kept.as_deref() == journal);
                let found = half.read().unwrap();
                assert!(half.are_of_old(&found), "{kind:?}");
                assert_eq!(found.len() as u64, report.recovery.items);
                let report_after = recover(half.path(), Repair::Check, &|_| {}).unwrap();
                assert_eq!(report_after.state, ReportState::Clean, "{report_after:?}");
                salvaged += found.len();
                named += report.recovery.items_lost;
                unnamed += u64::from(report.recovery.items_lost == 0);
            }
            println!(
                "{kind:?}, grows: {grows}: {salvaged} items, {named} lost, {unnamed} of 120 none"
            );
        }
    }
}

/// All pages are of one checkpoint: nothing is lost, and still it says that this is not known.
#[test]
fn salvage_keeps_a_file_that_is_whole_without_its_journal() {
    for kind in [Kind::Word, Kind::Wide, Kind::Variable] {
        let half = Half::new(kind, true);
        for home in [&half.before, &half.after] {
            half.put(&half.before, Some(&half.journal));
            let expected = match home == &half.after {
                true => half.read().unwrap(),
                false => {
                    // A torn journal that no page has left is none.
                    half.put(home, Some(&half.journal[..half.journal.len() - 9]));
                    half.read().unwrap()
                }
            };
            half.put(home, None);
            let report = recover(half.path(), Repair::Salvage, &|_| {}).unwrap();
            assert_eq!(
                (report.state, report.recovery.items_lost),
                (ReportState::Damaged, 0)
            );
            assert!(half.read().unwrap() == expected);
        }
    }
}

/// A salvage that is cut short leaves a file that is still refused, or one that is salvaged.
#[test]
fn salvage_that_dies_leaves_no_torn_file() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for (kind, domain) in [
        (Kind::Variable, Domain::Checkpointed),
        (Kind::Word, Domain::Checkpointed),
        (Kind::Word, Domain::Shared),
    ] {
        let half = Half::new(kind, false);
        let home = half.mixture(&mut rng);
        let (mut refused, mut whole) = (0, 0);
        let mut spoilt = half.journal.clone();
        spoilt[to_usize(PAGE)] ^= 8;
        half.put(&home, Some(&spoilt));
        let items = recover(half.path(), Repair::Salvage, &|_| {})
            .unwrap()
            .recovery
            .items;
        let expected = half.read().unwrap();
        assert_eq!(expected.len() as u64, items);
        // All calls from one on fail, or only that one.
        for (calls, for_good) in (0..).flat_map(|calls| [(calls, false), (calls, true)]) {
            half.put(&home, Some(&spoilt));
            let faults = Failing::at(calls, libc::EIO, for_good);
            let options = MapOptions {
                faults: Some(faults.clone()),
                domain,
                ..MapOptions::default()
            };
            let salvaged = Entry::at(&half.path(), options.faults.clone())
                .and_then(|entry| recover_with(&entry, Repair::Salvage, &|_| {}, &options));
            match half.read() {
                Ok(found) => {
                    assert!(found == expected, "after {calls} calls");
                    whole += 1;
                }
                Err(error) => {
                    assert!(salvaged.is_err(), "{error}");
                    recover(half.path(), Repair::Salvage, &|_| {}).unwrap();
                    assert!(half.read().unwrap() == expected, "after {calls} calls");
                    refused += 1;
                }
            }
            if !faults.was_met() {
                break;
            }
        }
        println!("{kind:?}, {domain:?}: {refused} refused, {whole} salvaged");
        assert!(refused > 5 && whole > 0);
    }
}
