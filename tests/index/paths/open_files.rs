//! A thousand files open in one process.

use gphash::Domain;
use tempfile::TempDir;

use crate::{Table, options, value};

const FILES: u64 = 1000;

/// Lets the process have as many files open as it may.
fn allow_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write the one struct that they are given.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    limit.rlim_cur
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn indexes_open_by_the_thousand_in_a_process() {
    let _guard = crate::beside_no_fork();
    let allowed = allow_files();
    if allowed < 4 * FILES {
        println!("skipped: {allowed} files may be open");
        return;
    }
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let options = options(Domain::Checkpointed).capacity(16);
    let before = descriptors();
    let indexes: Vec<Table> = (0..FILES)
        .map(|n| {
            let index = Table::create(folder.path().join(n.to_string()), &options).unwrap();
            index.insert_one(&n, &value(n, 1)).unwrap();
            index.sync().unwrap();
            index
        })
        .collect();
    // The file and its folder; other tests have files open, too.
    let most = before + usize::try_from(2 * FILES).unwrap() + 200;
    let found = descriptors();
    assert!(found <= most, "{found} descriptors, {before} before");
    for (n, index) in (0..).zip(&indexes) {
        assert_eq!(index.get_one(&n).unwrap(), Some(value(n, 1)));
    }
    indexes.into_iter().for_each(|index| index.close().unwrap());
}
