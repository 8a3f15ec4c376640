//! Files that are damaged: each answer is the right one or an error.

use std::path::Path;

use super::*;
use crate::Error;

const NUMBER: u64 = 1;

/// A file of a few blocks, all of whose bytes matter.
fn small(folder: &Path) -> (Model, LevelFile) {
    let spill = open(folder, None, options()).unwrap();
    let mut model = Model::new();
    for n in 0..120u64 {
        let value = match n % 10 {
            0 => None,
            // Some blocks are compressed, others are not.
            1 => Some((0..700).map(|i| ((i * n * n) >> 5) as u8).collect()),
            _ => Some(vec![n as u8; 150]),
        };
        model.insert(format!("key{n:05}").into_bytes(), (n + 1, value));
    }
    // A tombstone that hides nothing would be left out.
    let hidden = model.iter().filter(|(_, (_, value))| value.is_none());
    let hidden: Model = hidden
        .map(|(key, _)| (key.clone(), (0, Some(Vec::new()))))
        .collect();
    add(&spill, &hidden).unwrap();
    add(&spill, &model).unwrap();
    let files = FileCatalog::open(Folder::at(folder.to_path_buf(), None))
        .unwrap()
        .files();
    (model, files[1])
}

struct NoCatalog;

impl Catalog for NoCatalog {
    fn edit(&self, _: &[LevelFile], _: &[u64]) -> Result<()> {
        Ok(())
    }
}

/// Asks a spill of one file everything; gives the first error.
fn ask(folder: &Path, file: &LevelFile, model: &Model) -> Result<()> {
    let folder = Folder::at(folder.to_path_buf(), None);
    let spill = Spill::open(folder, &[*file], Arc::new(NoCatalog), options())?;
    let version = spill.version();
    let mut first = Ok(());
    for (key, item) in model {
        match version.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(item)),
            Err(error) => first = first.and(Err(error)),
        }
        let mut other = key.clone();
        other.push(7);
        match version.get(&other) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => first = first.and(Err(error)),
        }
    }
    for from_end in [false, true] {
        match contents(&version, from_end, 30) {
            Ok(found) => assert!(found == *model),
            Err(error) => first = first.and(Err(error)),
        }
    }
    for (_, checked) in spill.verify(&|_, _| {}) {
        first = first.and(checked.map(|_| ()));
    }
    first
}

/// Puts the bytes of a file where there is no other.
fn place(folder: &Path, file: &LevelFile, bytes: &[u8]) {
    std::fs::write(folder.join(sst::name(file.number)), bytes).unwrap();
}

#[test]
fn every_byte_counts() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(folder.path());
    let bytes = std::fs::read(folder.path().join(sst::name(file.number))).unwrap();
    assert_eq!(bytes.len() as u64, file.len);
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    place(folder.path(), &file, &bytes);
    ask(folder.path(), &file, &model).unwrap();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        place(folder.path(), &file, &bytes);
        let error = ask(folder.path(), &file, &model).unwrap_err();
        let told = match at {
            0..8 => matches!(error, Error::Foreign { .. }),
            8..12 => matches!(error, Error::NewerFormat { .. } | Error::Damaged { .. }),
            _ => matches!(error, Error::Damaged { .. }),
        };
        assert!(told, "byte {at}: {error}");
    }
    for len in (0..bytes.len()).step_by(37) {
        place(folder.path(), &file, &bytes[..len]);
        let error = ask(folder.path(), &file, &model).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{len}: {error}");
        let cut = LevelFile {
            len: len as u64,
            ..file
        };
        assert!(ask(folder.path(), &cut, &model).is_err(), "{len}");
    }
    std::fs::remove_file(folder.path().join(sst::name(file.number))).unwrap();
    let error = ask(folder.path(), &file, &model).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}

#[test]
fn files_of_others_are_refused() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(folder.path());
    let other = LevelFile {
        number: NUMBER,
        ..file
    };
    let path = |file: &LevelFile| folder.path().join(sst::name(file.number));
    std::fs::copy(path(&file), path(&other)).unwrap();
    let error = ask(folder.path(), &other, &model).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let at = Folder::at(folder.path().to_path_buf(), None);
    let others = SpillOptions {
        store_id: [7, 9],
        ..options()
    };
    let opened = Spill::open(at, &[file], Arc::new(NoCatalog), others);
    assert!(matches!(opened.err().unwrap(), Error::Damaged { .. }));
}

/// A list that cannot be is refused: files of one level that have keys in common, a level too many.
#[test]
fn impossible_levels_are_refused() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (_, file) = small(folder.path());
    let first = FileCatalog::open(Folder::at(folder.path().to_path_buf(), None))
        .unwrap()
        .files()[0];
    for levels in [(1, 1), (0, 8), (u32::MAX, 0)] {
        let files = [
            LevelFile {
                level: levels.0,
                ..first
            },
            LevelFile {
                level: levels.1,
                ..file
            },
        ];
        let at = Folder::at(folder.path().to_path_buf(), None);
        let opened = Spill::open(at, &files, Arc::new(NoCatalog), options());
        assert!(matches!(opened.err().unwrap(), Error::Damaged { .. }));
    }
}
