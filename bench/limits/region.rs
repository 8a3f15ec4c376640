//! Memory of the kind that an index lies in: a file in memory, mapped as the index maps its own.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use gphash::Domain;
use gphash::pm::{MapOptions, Mapping, Medium};

use crate::workload::target::Failure;

/// A mapped file, which goes with its value.
pub struct Region {
    mapping: Mapping,
}

impl Region {
    /// Maps `len` bytes of a new file at `path`.
    pub fn create(path: &Path, len: u64) -> Result<Self, Failure> {
        let options = MapOptions {
            domain: Domain::Shared,
            ..MapOptions::default()
        };
        // SAFETY: its bytes are reached by atomic words alone.
        let mapping = unsafe { Mapping::create_unsynchronized(path, len, &options)? };
        // The mapping keeps the memory; an interrupted run then leaves nothing behind.
        fs::remove_file(path)?;
        Ok(Self { mapping })
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.mapping.len()
    }

    /// All of it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the bytes are mapped for as long as `self` lives and the file begins at a page.
        // Nobody has any other reference to them.
        unsafe {
            std::slice::from_raw_parts(self.base().cast(), usize::try_from(self.len()).unwrap() / 8)
        }
    }

    /// Share of it that lies in huge pages, if the system tells.
    pub fn huge_share(&self) -> Option<f64> {
        let maps = fs::read_to_string("/proc/self/smaps").ok()?;
        let head = format!("{:x}-", self.base() as usize);
        let of_this = maps.lines().skip_while(|line| !line.starts_with(&head));
        let huge = of_this
            .skip(1)
            .find_map(|line| line.strip_prefix("ShmemPmdMapped:"))?;
        let kib: u64 = huge.trim().strip_suffix(" kB")?.parse().ok()?;
        Some((kib << 10) as f64 / self.len() as f64)
    }
}

/// Bytes of the file system at `folder`, and of memory, that may be taken without harm: half of
/// what is free.
pub fn room(folder: &Path) -> Result<u64, Failure> {
    let disk = fs4::available_space(folder)?;
    let memory = fs::read_to_string("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(disk, |kib| kib << 10);
    Ok(disk.min(memory) / 2)
}
