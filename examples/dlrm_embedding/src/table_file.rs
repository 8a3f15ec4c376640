//! Where the table lies when the caller names no file.

use std::error::Error;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A file that stays, or one that goes with this value.
pub struct TableFile {
    /// The index file.
    pub path: PathBuf,
    temporary: Option<TempDir>,
}

impl TableFile {
    /// The caller's file.
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            temporary: None,
        }
    }

    /// A temporary file: in memory when `/dev/shm` has room for `bytes`, else in the folder for
    /// temporary files. It goes when the value is dropped, or when the process is interrupted.
    pub fn temporary(bytes: u64) -> Result<Self, Box<dyn Error>> {
        let memory = Path::new("/dev/shm");
        let roomy = fs4::available_space(memory).is_ok_and(|available| available >= bytes);
        let parent = if roomy {
            memory.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        let folder = tempfile::Builder::new()
            .prefix("gphash-dlrm-")
            .tempdir_in(&parent)
            .map_err(|error| format!("{}: {error}; choose a file with --path", parent.display()))?;
        let doomed = folder.path().to_path_buf();
        ctrlc::set_handler(move || {
            // The process ends here, so nothing else can be done with an error.
            let _ = std::fs::remove_dir_all(&doomed);
            std::process::exit(130);
        })?;
        Ok(Self {
            path: folder.path().join("embeddings.gph"),
            temporary: Some(folder),
        })
    }

    /// Whether the file goes in the end.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }
}
