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

    /// Every read and write of more than that is a short one.
    fn most_bytes(&self) -> usize {
        20_001
    }
}

/// A folder for a file of its own, in a domain.
pub struct Place {
    pub domain: Domain,
    pub folder: TempDir,
}

impl Place {
    /// A file in memory, one there that is saved by checkpoints, and one on a disk.
    pub fn all() -> [Self; 3] {
        let disk = env!("CARGO_MANIFEST_DIR").to_owned() + "/target";
        std::fs::create_dir_all(&disk).unwrap();
        [
            (Domain::Shared, "/dev/shm"),
            (Domain::Checkpointed, "/dev/shm"),
            (Domain::Checkpointed, &disk),
        ]
        .map(|(domain, place)| Self {
            domain,
            folder: TempDir::new_in(place).unwrap(),
        })
    }

    /// Whether making something durable takes time here.
    pub fn is_slow(&self) -> bool {
        !self.folder.path().starts_with("/dev/shm")
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("index")
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

    /// Names of what is in the folder.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    /// What the death of the process would leave now, beside it.
    pub fn crash(&self) -> Self {
        let folder = TempDir::new_in(self.folder.path().parent().unwrap()).unwrap();
        for name in self.files() {
            std::fs::copy(self.folder.path().join(&name), folder.path().join(&name)).unwrap();
        }
        Self {
            domain: self.domain,
            folder,
        }
    }
}
