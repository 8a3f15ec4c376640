//! A file system that fails to order.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;

use crate::pm::{Call, Faults};
use crate::{Domain, Engine, Error, Options};

/// Fails one call, or all from one on until it is cured, and moves only part of what it is given.
#[derive(Debug)]
pub struct Failing {
    first: u64,
    lasting: bool,
    code: i32,
    only: Option<fn(Call, &Path) -> bool>,
    /// Bytes that there is room for in each file.
    most: u64,
    calls: AtomicU64,
    cured: AtomicBool,
    was_met: AtomicBool,
}

impl Failing {
    /// Answers `code` to the call after `first` others, and to all that follow if `lasting`.
    pub fn at(first: u64, code: i32, lasting: bool) -> Arc<Self> {
        Arc::new(Self {
            first,
            lasting,
            code,
            only: None,
            most: u64::MAX,
            calls: AtomicU64::new(0),
            cured: AtomicBool::new(false),
            was_met: AtomicBool::new(false),
        })
    }

    /// Answers `code` to those calls that `only` names, once it is no longer cured.
    pub fn only(only: fn(Call, &Path) -> bool, code: i32) -> Arc<Self> {
        let mut failing = Self::at(0, code, true);
        let made = Arc::get_mut(&mut failing).expect("nobody else has it");
        made.only = Some(only);
        made.cured = AtomicBool::new(true);
        failing
    }

    /// Has room for `most` bytes of each file until it is cured, and so also for a part of what is wanted.
    pub fn within(most: u64) -> Arc<Self> {
        let mut failing = Self::at(u64::MAX, libc::ENOSPC, false);
        let made = Arc::get_mut(&mut failing).expect("nobody else has it");
        made.most = most;
        failing
    }

    /// Whether a call has been refused.
    pub fn was_met(&self) -> bool {
        self.was_met.load(Ordering::Relaxed)
    }

    /// From now on all calls do what they should, or no longer.
    pub fn cure(&self, cured: bool) {
        self.cured.store(cured, Ordering::Relaxed);
    }

    /// The error that the index must make of the refusal.
    pub fn expect(&self, error: &Error, path: &Path) {
        let told = match self.code {
            libc::ENOSPC => matches!(error, Error::NoSpace { .. }),
            _ => matches!(error, Error::Io { .. }),
        };
        let text = error.to_string();
        assert!(told && text.contains(path.to_str().unwrap()), "{text}");
    }
}

impl Faults for Failing {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let nth = self.calls.fetch_add(1, Ordering::Relaxed);
        let due = nth == self.first || self.lasting && nth > self.first;
        let named = self.only.is_none_or(|only| only(call, path));
        if due && named && !self.cured.load(Ordering::Relaxed) {
            self.was_met.store(true, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(self.code));
        }
        Ok(())
    }

    fn room(&self, _: Call, _: &Path, from: u64, to: u64) -> u64 {
        if to <= self.most || self.cured.load(Ordering::Relaxed) {
            return to;
        }
        self.was_met.store(true, Ordering::Relaxed);
        self.most.max(from)
    }

    /// Every read and write of more than that is a short one.
    fn most_bytes(&self) -> usize {
        60_001
    }
}

/// A disk that has room for so many bytes of each file but journals.
#[derive(Debug)]
pub struct Bounded(AtomicU64);

impl Bounded {
    /// A disk without bound.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(u64::MAX)))
    }

    /// From now on files have room for no more than `most` bytes.
    pub fn limit(&self, most: u64) {
        self.0.store(most, Ordering::Relaxed);
    }
}

impl Faults for Bounded {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn room(&self, _: Call, path: &Path, from: u64, to: u64) -> u64 {
        match path.extension() {
            None => to.min(self.0.load(Ordering::Relaxed)).max(from),
            Some(_) => to,
        }
    }
}

/// A directory for a file of its own, in a domain.
pub struct TestDir {
    pub domain: Domain,
    pub dir: TempDir,
}

impl TestDir {
    /// A file in memory, one there that is saved by checkpoints, and one on a disk.
    pub fn all() -> [Self; 3] {
        let disk = env!("CARGO_MANIFEST_DIR").to_owned() + "/target";
        std::fs::create_dir_all(&disk).unwrap();
        [
            (Domain::Shared, "/dev/shm"),
            (Domain::Checkpointed, "/dev/shm"),
            (Domain::Checkpointed, &disk),
        ]
        .map(|(domain, parent)| Self {
            domain,
            dir: TempDir::new_in(parent).unwrap(),
        })
    }

    /// Whether making something durable takes time here.
    pub fn is_slow(&self) -> bool {
        !self.dir.path().starts_with("/dev/shm")
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("index")
    }

    pub fn options(&self, faults: Option<Arc<Failing>>) -> Options {
        let options = Options::new()
            .engine(Engine::Cpu)
            .domain(self.domain)
            .capacity(1);
        match faults {
            Some(faults) => options.faults(faults),
            None => options,
        }
    }

    /// Names of what is in the directory.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    /// What the death of the process would leave now, beside it. The maintenance may move items meanwhile, and a copy
    /// made around a move would lack one that was never gone: it is made again until nothing has changed.
    pub fn crash(&self) -> Self {
        let dir = TempDir::new_in(self.dir.path().parent().unwrap()).unwrap();
        let copy = |name: &String| {
            let (from, to) = (self.dir.path().join(name), dir.path().join(name));
            let bytes = std::fs::read(&from).unwrap();
            std::fs::write(to, &bytes).unwrap();
            bytes == std::fs::read(from).unwrap()
        };
        while !self.files().iter().all(copy) {}
        Self {
            domain: self.domain,
            dir,
        }
    }
}
