//! A disk that loses its power: a process dies at one of its calls, and of what has not been made
//! durable any sectors may have arrived.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gphash::pm::{Call, Faults};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// What a disk writes at once.
const SECTOR: usize = 512;

/// Watches the calls of a process.
#[derive(Debug, Default)]
pub struct Disk(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Contents of files when they were last made durable.
    durable: BTreeMap<PathBuf, Vec<u8>>,
    /// Names that the folder has for certain.
    named: Vec<PathBuf>,
    /// Calls until the process dies.
    left: Option<u64>,
}

impl Faults for Disk {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if let Some(left) = &mut state.left {
            if *left == 0 {
                return Err(io::Error::other("no power"));
            }
            *left -= 1;
        }
        match call {
            Call::Sync => {
                let contents = std::fs::read(path)?;
                state.durable.insert(path.to_path_buf(), contents);
            }
            Call::SyncFolder => {
                let folder = path.parent().unwrap();
                state.named = std::fs::read_dir(folder)?
                    .map(|entry| entry.unwrap().path())
                    .collect();
            }
            _ => {}
        }
        Ok(())
    }

    fn most_bytes(&self) -> usize {
        9000
    }
}

impl Disk {
    /// A disk with what is in a folder, all of it durable.
    pub fn with(folder: &Path) -> Self {
        let named: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let contents = |file: &PathBuf| (file.clone(), std::fs::read(file).unwrap());
        Self(Mutex::new(State {
            durable: named.iter().map(contents).collect(),
            named,
            left: None,
        }))
    }

    /// Lets the process die after so many calls.
    pub fn fail_after(&self, calls: u64) {
        self.0.lock().unwrap().left = Some(calls);
    }

    /// What may be in the folder of `path` when the power comes back.
    pub fn image(&self, path: &Path, to: &Path, seed: u64) {
        let state = self.0.lock().unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
            let file = entry.unwrap().path();
            if !state.named.contains(&file) && rng.random() {
                continue;
            }
            let now = std::fs::read(&file).unwrap();
            let durable = state.durable.get(&file).map_or(&[][..], Vec::as_slice);
            let len = if rng.random() {
                now.len()
            } else {
                durable.len()
            };
            let mut image = durable.to_vec();
            image.resize(len, 0);
            let odds = rng.random_range(0..=4);
            for at in (0..len.min(now.len())).step_by(SECTOR) {
                let end = (at + SECTOR).min(len).min(now.len());
                if rng.random_range(0..4) < odds {
                    image[at..end].copy_from_slice(&now[at..end]);
                }
            }
            std::fs::write(to.join(file.file_name().unwrap()), image).unwrap();
        }
        // A file that has been removed may come back unless the folder knows better.
        for file in &state.named {
            if !file.exists() && rng.random() {
                let durable = state.durable.get(file).map_or(&[][..], Vec::as_slice);
                std::fs::write(to.join(file.file_name().unwrap()), durable).unwrap();
            }
        }
    }
}
