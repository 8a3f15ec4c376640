//! A process dies while pages of a checkpoint go home, and the path of the file is not what it was.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use gphash::{Domain, Error};
use tempfile::TempDir;

use crate::child::{Dying, dies};
use crate::{Table, options, value};

const KEYS: std::ops::Range<u64> = 1..1500;

/// Names within the folder of a test.
const HOME: &str = "home";
const OTHER: &str = "other";
const FILE: &str = "table";

fn store(index: &Table, version: u64) {
    let keys: Vec<u64> = KEYS.collect();
    let values: Vec<_> = keys.iter().map(|&key| value(key, version)).collect();
    index.upsert(&keys, &values).unwrap();
}

/// A folder with a file that was cleanly closed.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in [HOME, OTHER] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let path = folder.path().join(HOME).join(FILE);
    let index = Table::create(path, &options(Domain::Checkpointed)).unwrap();
    store(&index, 1);
    index.close().unwrap();
    folder
}

/// The checkpoint that the file at `path` holds.
fn version(path: &Path) -> Result<u64, Error> {
    let index = Table::open(path, &options(Domain::Checkpointed))?;
    let version = index.get_one(&KEYS.start).unwrap().unwrap()[0] >> 32;
    for key in KEYS {
        assert_eq!(index.get_one(&key).unwrap(), Some(value(key, version)));
    }
    assert_eq!(index.len(), KEYS.end - KEYS.start);
    index.close().unwrap();
    Ok(version)
}

/// Changes all values and dies in the checkpoint of that, with `between` done while the file is open.
fn die_in(path: &Path, dying: Arc<Dying>, between: impl FnOnce()) {
    let options = options(Domain::Checkpointed).faults(dying);
    let index = Table::open(path, &options).unwrap();
    between();
    store(&index, 2);
    index.sync().unwrap();
}

pub fn plain(folder: &Path, dying: Arc<Dying>) {
    die_in(&folder.join(HOME).join(FILE), dying, || ());
}

pub fn after_chdir(folder: &Path, dying: Arc<Dying>) {
    env::set_current_dir(folder.join(HOME)).unwrap();
    die_in(Path::new(FILE), dying, || {
        env::set_current_dir(folder.join(OTHER)).unwrap();
    });
}

pub fn through_a_link(folder: &Path, dying: Arc<Dying>) {
    let link = folder.join(OTHER).join("link");
    // A link to a link, seen from where it stands.
    symlink(Path::new("..").join(OTHER).join("second"), &link).unwrap();
    symlink(
        folder.join(HOME).join(FILE),
        folder.join(OTHER).join("second"),
    )
    .unwrap();
    die_in(&link, dying, || ());
}

pub fn in_a_renamed_folder(folder: &Path, dying: Arc<Dying>) {
    die_in(&folder.join(HOME).join(FILE), dying, || {
        fs::rename(folder.join(HOME), folder.join("moved")).unwrap();
        fs::create_dir(folder.join(HOME)).unwrap();
    });
}

pub fn of_a_renamed_file(folder: &Path, dying: Arc<Dying>) {
    let home = folder.join(HOME);
    die_in(&home.join(FILE), dying, || {
        fs::rename(home.join(FILE), home.join("renamed")).unwrap();
    });
}

pub fn through_a_hard_link(folder: &Path, dying: Arc<Dying>) {
    let link = folder.join(OTHER).join("link");
    fs::hard_link(folder.join(HOME).join(FILE), &link).unwrap();
    die_in(&link, dying, || ());
}

/// Calls at which the process dies: both copies of the superblock are written, then pages.
const FATAL: [i64; 7] = [0, 1, 2, 3, 4, 10, 40];

/// Has a process die at each of the calls; `look` gets the folder that it leaves.
fn kill(task: &str, look: impl Fn(&Path)) {
    for at in FATAL {
        let folder = folder();
        assert!(dies(task, folder.path(), at), "{task} at {at}");
        look(folder.path());
    }
}

#[test]
fn checkpoint_is_whole_by_the_path_of_the_file() {
    let _guard = crate::beside_no_fork();
    for task in ["plain", "chdir", "symlink"] {
        kill(task, |folder| {
            let found = version(&folder.join(HOME).join(FILE)).unwrap();
            assert!(found == 1 || found == 2, "{task}: {found}");
            // Nothing was left in the folder where the process went, or where the link is.
            let journal = |entry: &str| entry.ends_with(".journal");
            let others = fs::read_dir(folder.join(OTHER)).unwrap();
            let names = others.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            assert_eq!(names.filter(|name| journal(name)).count(), 0, "{task}");
        });
    }
}

#[test]
fn checkpoint_is_whole_in_a_renamed_dir() {
    let _guard = crate::beside_no_fork();
    kill("renamed folder", |folder| {
        let found = version(&folder.join("moved").join(FILE)).unwrap();
        assert!(found == 1 || found == 2, "{found}");
    });
}

/// The file is refused by a name beside which its journal is not, unless it is whole without; by the
/// name `right`, once the journal is there, it is whole.
fn check_names(wrong: &Path, right: &Path, mend: impl Fn()) -> bool {
    let refused = match version(wrong) {
        Ok(found) => {
            assert!(found == 1, "{found}");
            return false;
        }
        Err(error) => error,
    };
    assert!(
        matches!(&refused, Error::JournalMissing { path, .. } if path == wrong),
        "{refused}"
    );
    assert!(gphash::recover(wrong, gphash::Repair::Recover, &|_| {}).is_err());
    mend();
    let found = version(right).unwrap();
    assert!(found == 1 || found == 2, "{found}");
    true
}

#[test]
fn file_that_is_renamed_is_refused_without_its_journal() {
    let _guard = crate::beside_no_fork();
    let refused = std::cell::Cell::new(0);
    kill("renamed file", |folder| {
        let file = folder.join(HOME).join("renamed");
        let journal = folder.join(HOME).join("table.journal");
        let mended = || fs::rename(&journal, file.with_extension("journal")).unwrap();
        refused.set(refused.get() + u32::from(check_names(&file, &file, mended)));
    });
    assert!(refused.get() >= 4, "{refused:?}");
}

#[test]
fn hard_link_is_refused_without_the_journal_of_the_other() {
    let _guard = crate::beside_no_fork();
    let refused = std::cell::Cell::new(0);
    kill("hard link", |folder| {
        let link = folder.join(OTHER).join("link");
        let was = check_names(&folder.join(HOME).join(FILE), &link, || ());
        refused.set(refused.get() + u32::from(was));
    });
    assert!(refused.get() >= 4, "{refused:?}");
}
