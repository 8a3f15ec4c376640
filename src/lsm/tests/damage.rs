//! Files that are damaged: each answer is the right one or an error.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::Error;
use crate::lsm::repair::{Checks, repair};
use crate::width::low_byte;

const NUMBER: u64 = 1;

fn checks(dir: &Dir) -> Checks {
    Checks::new(dir, options().store_id)
}

/// A file of a few blocks, all of whose bytes matter.
fn small(dir: &Path) -> (Model, LevelFile) {
    let spill = open(dir, None, options()).unwrap();
    let mut model = Model::new();
    for n in 0..120u64 {
        let value = match n % 10 {
            0 => None,
            1 => Some((0..700).map(|i| low_byte((i * n * n) >> 5)).collect()),
            // Blocks have different numbers of entries.
            _ => Some(vec![low_byte(n); 128 + to_usize(n / 4)]),
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
    let files = FileCatalog::open(Dir::at(dir.to_path_buf(), None))
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
fn ask(dir: &Path, file: &LevelFile, model: &Model) -> Result<()> {
    let dir = Dir::at(dir.to_path_buf(), None);
    let spill = Spill::open(dir, &[*file], Arc::new(NoCatalog), options())?;
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

/// Checks the error for a file of which byte `at` is damaged.
fn is_told(at: usize, error: &Error) {
    let told = match at {
        0..8 => matches!(error, Error::Foreign { .. }),
        _ => matches!(error, Error::Damaged { .. }),
    };
    assert!(told, "byte {at}: {error}");
}

/// Puts the bytes of a file where there is no other.
fn write_file(dir: &Path, file: &LevelFile, bytes: &[u8]) {
    std::fs::write(dir.join(sst::name(file.number)), bytes).unwrap();
}

/// Another directory with the value files of one.
fn with_values_of(dir: &Path) -> TempDir {
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    for file in std::fs::read_dir(dir).unwrap() {
        let name = file.unwrap().file_name();
        if values::number(name.to_str().unwrap()).is_some() {
            std::fs::copy(dir.join(&name), other.path().join(&name)).unwrap();
        }
    }
    other
}

/// The one value file of a directory.
fn value_file(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let is_values = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "val");
    let found: Vec<PathBuf> = paths.filter(is_values).collect();
    assert_eq!(found.len(), 1);
    found[0].clone()
}

#[test]
fn sst_damage_of_any_byte_is_detected() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(dir.path());
    let bytes = std::fs::read(dir.path().join(sst::name(file.number))).unwrap();
    assert_eq!(bytes.len() as u64, file.len);
    let dir = with_values_of(dir.path());
    write_file(dir.path(), &file, &bytes);
    ask(dir.path(), &file, &model).unwrap();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        write_file(dir.path(), &file, &bytes);
        let error = ask(dir.path(), &file, &model).unwrap_err();
        is_told(at, &error);
    }
    write_file(dir.path(), &file, &bytes);
    let spill = Spill::open(
        Dir::at(dir.path().into(), None),
        &[file],
        Arc::new(NoCatalog),
        options(),
    );
    let spill = spill.unwrap();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        write_file(dir.path(), &file, &bytes);
        let checked = spill.verify(&|_, _| {});
        is_told(at, checked[0].1.as_ref().unwrap_err());
    }
    drop(spill);
    for len in (0..bytes.len()).step_by(37) {
        write_file(dir.path(), &file, &bytes[..len]);
        let error = ask(dir.path(), &file, &model).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{len}: {error}");
        let cut = LevelFile {
            len: len as u64,
            ..file
        };
        assert!(ask(dir.path(), &cut, &model).is_err(), "{len}");
    }
    std::fs::remove_file(dir.path().join(sst::name(file.number))).unwrap();
    let error = ask(dir.path(), &file, &model).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}

#[test]
fn sst_of_another_store_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(dir.path());
    let other = LevelFile {
        number: NUMBER,
        ..file
    };
    let path = |file: &LevelFile| dir.path().join(sst::name(file.number));
    std::fs::copy(path(&file), path(&other)).unwrap();
    let error = ask(dir.path(), &other, &model).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let at = Dir::at(dir.path().to_path_buf(), None);
    let others = SpillOptions {
        store_id: [7, 9],
        ..options()
    };
    let opened = Spill::open(at, &[file], Arc::new(NoCatalog), others);
    assert!(matches!(opened.err().unwrap(), Error::Damaged { .. }));
}

/// A list that cannot be is refused: files of one level that have keys in common, a level too many.
#[test]
fn levels_that_are_invalid_are_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (_, file) = small(dir.path());
    let first = FileCatalog::open(Dir::at(dir.path().to_path_buf(), None))
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
        let at = Dir::at(dir.path().to_path_buf(), None);
        let opened = Spill::open(at, &files, Arc::new(NoCatalog), options());
        assert!(matches!(opened.err().unwrap(), Error::Damaged { .. }));
    }
}

/// Whatever byte is damaged, repair saves all other blocks, and says what it could not save.
#[test]
fn repair_keeps_undamaged_blocks() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(dir.path());
    let bytes = std::fs::read(dir.path().join(sst::name(file.number))).unwrap();
    let dir = with_values_of(dir.path());
    let at = Dir::at(dir.path().to_path_buf(), None);
    let total = model.len() as u64;
    let mut losses = std::collections::BTreeSet::new();
    let repair_and_check = |bytes: &[u8]| {
        write_file(dir.path(), &file, bytes);
        let repaired = repair(&at, &file, options().store_id).unwrap();
        if let Some(repaired) = repaired.file {
            let spill =
                Spill::open(at.clone(), &[repaired], Arc::new(NoCatalog), options()).unwrap();
            let found = contents(&spill.version(), false, 50).unwrap();
            let is_ours = |(key, item): (&Vec<u8>, &_)| model.get(key) == Some(item);
            assert!(found.iter().all(is_ours));
            drop(spill);
            let checked = checks(&at).check(&repaired, &|_| {}).unwrap();
            assert_eq!(checked.entries, found.len() as u64);
        }
        let known = repaired
            .lost
            .is_none_or(|lost| repaired.kept + lost == total);
        assert!(known, "{repaired:?}");
        repaired
    };
    assert_eq!(repair_and_check(&bytes).lost, Some(0));
    for nth in (0..bytes.len()).step_by(3) {
        let mut bytes = bytes.clone();
        bytes[nth] ^= 0x40;
        let repaired = repair_and_check(&bytes);
        // No block has more than a third of them.
        assert!(repaired.kept >= total * 2 / 3, "byte {nth}: {repaired:?}");
        losses.insert(repaired.lost);
    }
    assert!(losses.contains(&None) && losses.contains(&Some(0)) && losses.len() > 3);
    for len in (0..bytes.len()).step_by(101) {
        let repaired = repair_and_check(&bytes[..len]);
        assert_eq!(repaired.file.is_some(), repaired.kept > 0);
    }
    // Two faults: the index, and a block, which still says how long it is.
    let mut two = bytes.clone();
    let index = two.len() - 300;
    two[index] ^= 1;
    two[100] ^= 1;
    assert!(repair_and_check(&two).kept > 0);
}

/// Whatever byte of a value file is damaged, those who read its value are told, and nobody else; repair loses
/// that value alone.
#[test]
fn value_file_damage_of_any_byte_is_detected() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(dir.path());
    let path = value_file(dir.path());
    let whole = std::fs::read(&path).unwrap();
    let at = Dir::at(dir.path().to_path_buf(), None);
    let sst_path = dir.path().join(sst::name(file.number));
    let sst_bytes = std::fs::read(&sst_path).unwrap();
    let total = model.len() as u64;
    let repaired = |bytes: Option<&[u8]>| {
        match bytes {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        assert!(checks(&at).check(&file, &|_| {}).is_err());
        let repaired = repair(&at, &file, options().store_id).unwrap();
        let file = repaired.file.expect("most entries have no value there");
        checks(&at).check(&file, &|_| {}).unwrap();
        std::fs::write(&sst_path, &sst_bytes).unwrap();
        assert_eq!(repaired.lost, Some(total - repaired.kept));
        total - repaired.kept
    };
    let apart = model.values().filter(|(_, value)| {
        let len = value.as_ref().map_or(0, Vec::len);
        len >= options().value_bytes_min
    });
    let apart = apart.count() as u64;
    assert!(apart > 5);
    for nth in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[nth] ^= 1 << (nth % 8);
        std::fs::write(&path, &bytes).unwrap();
        let error = ask(dir.path(), &file, &model).unwrap_err();
        is_told(nth, &error);
        // A header is made anew: each value that is whole says which file it is.
        assert_eq!(repaired(Some(&bytes)), u64::from(nth >= 48), "byte {nth}");
        if nth < 48 {
            assert!(std::fs::read(&path).unwrap() == whole, "byte {nth}");
        }
    }
    for len in (0..whole.len()).step_by(501) {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert!(ask(dir.path(), &file, &model).is_err(), "{len}");
        assert!(repaired(Some(&whole[..len])) > 0);
    }
    assert_eq!(repaired(None), apart);
    std::fs::write(&path, &whole).unwrap();
    ask(dir.path(), &file, &model).unwrap();
}

/// A value file that has the place of another is no more believed than one of another store.
#[test]
fn value_file_that_is_swapped_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(dir.path());
    let path = value_file(dir.path());
    let whole = std::fs::read(&path).unwrap();
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let others = SpillOptions {
        store_id: [7, 9],
        ..options()
    };
    let spill = open(other.path(), None, others).unwrap();
    let value = (1, Some(vec![7; whole.len()]));
    add(&spill, &Model::from([(vec![1], value)])).unwrap();
    drop(spill);
    std::fs::copy(value_file(other.path()), &path).unwrap();
    let error = ask(dir.path(), &file, &model).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// A sorted file of the format without value files is refused as such.
#[test]
fn sst_of_an_older_format_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (model, file) = small(dir.path());
    let path = dir.path().join(sst::name(file.number));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 1;
    crate::layout::preamble::seal(&mut bytes[..48]);
    std::fs::write(&path, &bytes).unwrap();
    let error = ask(dir.path(), &file, &model).unwrap_err();
    let is_older = matches!(error, Error::OlderFormat { found: 1, .. });
    assert!(is_older, "{error}");
    // Nor does a salvage take it for a damaged one.
    let at = Dir::at(dir.path().to_path_buf(), None);
    let checked = checks(&at).check(&file, &|_| {});
    assert!(matches!(checked, Err(Error::OlderFormat { .. })));
    let store = crate::lsm::gather::store_of(&at, file.number);
    assert!(matches!(store, Err(Error::OlderFormat { .. })));
}

/// A tombstone that may hide something in a file whose filter cannot be read is kept.
#[test]
fn tombstones_stay_beside_a_filter_that_cannot_be_read() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let key = |nth: u64| nth.to_be_bytes().to_vec();
    let put = |nth| (key(nth), (1, Some(b"value".to_vec())));
    add(&spill, &(0..100).map(put).collect()).unwrap();
    let version = spill.version();
    let (_, sst) = version.files().next().unwrap();
    let path = dir.path().join(sst::name(sst.number()));
    let mut bytes = std::fs::read(&path).unwrap();
    // The only block is the first thing in it, and the filter behind it.
    let filter = to_usize(sst.meta().unwrap().index.handle(0).to);
    bytes[filter + 9] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    // Another filter takes the place of this one.
    add(&spill, &(1_000..1_100).map(put).collect()).unwrap();
    assert!(spill.version().may_have(&key(1_050)).unwrap());
    assert!(spill.version().may_have(&key(50)).is_err());
    add(&spill, &[(key(50), (2, None))].into()).unwrap();
    assert!(matches!(spill.version().get(&key(50)), Ok(Some((2, None)))));
}
