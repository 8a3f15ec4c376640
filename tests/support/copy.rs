use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Copies what the death of the process would leave of a store's directory. Files may come and go meanwhile, and those of
/// these names be written anew, after which it copies again.
///
/// # Panics
/// If a copy that is not whole cannot be removed.
pub fn copy_store(from: &Path, to: &Path, names: &[&str]) {
    let replaced = || {
        let dirs = fs::read_dir(from).into_iter().flatten().flatten();
        let dirs = dirs.map(|entry| entry.path()).filter(|path| path.is_dir());
        let dirs = dirs.chain([from.to_path_buf()]);
        let paths = dirs.flat_map(|dir| names.iter().map(move |name| dir.join(name)));
        let read = |path: PathBuf| (fs::read(&path).ok(), path);
        paths.map(read).collect::<Vec<_>>()
    };
    loop {
        let before = replaced();
        let copied = copy_files(from, to);
        if copied.is_ok() && replaced() == before {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_files(&entry.path(), &target)?,
            // Room that is held has no contents, and to get pages for it takes longer than for all others.
            false if entry.file_name() == "RESERVE" => {
                File::create(target)?.set_len(entry.metadata()?.len())?;
            }
            false => drop(fs::copy(entry.path(), &target)?),
        }
    }
    Ok(())
}
