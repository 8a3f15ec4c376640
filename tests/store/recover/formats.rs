//! Files of a later format, which no salvage may take for damaged ones.

use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// A version that no file has.
const NEWER: u8 = 9;

/// Bytes of the sealed header that a file of a store begins with; that of the manifest is the file.
fn header_bytes(path: &Path) -> usize {
    let name = path.file_name().unwrap().to_str().unwrap();
    match path.extension().and_then(OsStr::to_str) {
        Some("log") => 64,
        Some("sst" | "val") => 48,
        _ if name.starts_with("MANIFEST") => {
            usize::try_from(path.metadata().unwrap().len()).unwrap()
        }
        _ => panic!("{name} has no sealed header"),
    }
}

/// Gives a file a version that this build does not know.
fn make_newer(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    if path.ends_with("index.gph") {
        // Both copies of the superblock.
        for at in [0, 4096] {
            bytes[at + 8] = NEWER;
        }
    } else {
        let header = &mut bytes[..header_bytes(path)];
        header[8] = NEWER;
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("MANIFEST")
        {
            // What a longer list has left may stand behind it: then its own checksum is not at the end, and still fits.
            header[40] ^= 1;
        }
        let end = header.len() - 8;
        let sum = xxh3_64(&header[..end]);
        header[end..].copy_from_slice(&sum.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

/// The files of one kind, in their order.
fn files_of(path: &Path, kind: &str) -> Vec<PathBuf> {
    let is_it = |path: &PathBuf| path.extension().is_some_and(|extension| extension == kind);
    let mut found: Vec<_> = files(path).into_keys().filter(is_it).collect();
    found.sort_unstable();
    found
}

/// A store with values apart from their keys, and a log of several segments.
fn whole(folder: &Path) -> PathBuf {
    let options = options()
        .durability(Durability::None)
        .value_file_threshold(300);
    let path = folder.join("open");
    let store = Store::open(
        &path,
        &options.clone().memory_budget(StoreOptions::MIN_BUDGET),
    )
    .unwrap();
    for number in 0..2000u32 {
        let key = number.wrapping_mul(0x9E37_79B9).to_be_bytes();
        store.put(key, vec![7; 400]).unwrap();
    }
    store.close().unwrap();
    let store = Store::open(&path, &options.domain(Domain::Checkpointed)).unwrap();
    for number in 0..12u8 {
        store.put([b'n', number], vec![number; 900]).unwrap();
    }
    let left = folder.join("left");
    copy(&path, &left);
    drop(store);
    left
}

/// Says that the store at `path` has a file of a later format, and changes nothing.
fn is_refused(path: &Path, what: &str) {
    let before = files(path);
    for arguments in [&["--check"][..], &[], &["--salvage"]] {
        let (status, object) = tool(arguments, path);
        let found = (status, object["state"].as_str());
        assert_eq!(found, (2, Some("error")), "{what}, {arguments:?}: {object}");
        let told = object["error"].as_str().unwrap();
        assert!(told.contains("this build reads"), "{what}: {told}");
        let is_same = files(path) == before;
        assert!(is_same, "{what}: {arguments:?} has changed a file");
    }
}

/// A file of each kind is of a later format, also beside damage, and where there is no manifest.
#[test]
fn files_of_a_newer_format_are_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let left = whole(folder.path());
    let path = folder.path().join("path");
    let begin = || {
        let _ = fs::remove_dir_all(&path);
        copy(&left, &path);
    };
    begin();
    let [logs, ssts, values] = ["log", "sst", "val"].map(|kind| files_of(&path, kind));
    assert!(logs.len() > 2 && !ssts.is_empty() && !values.is_empty());
    let [first, second, index] =
        ["MANIFEST", "MANIFEST.2", "index.gph"].map(|name| path.join(name));
    let [.., damaged, last] = &logs[..] else {
        panic!("{logs:?}")
    };
    let newer = [
        &first, &second, &index, &ssts[0], &values[0], &logs[0], last,
    ];
    for file in newer {
        begin();
        make_newer(file);
        let what = file.to_string_lossy();
        is_refused(&path, &what);
        let before = files(&path);
        for salvage in [false, true] {
            let opened = Store::open(&path, &options().salvage(salvage));
            let error = opened.map(|_| ()).unwrap_err();
            let is_told = matches!(error, Error::NewerFormat { .. });
            assert!(is_told, "{what}: {error}");
            assert!(
                files(&path) == before,
                "{what}: an opening has changed a file"
            );
        }
    }
    // A log that a salvage would cut off before its last segment, and one of the segments behind.
    for file in [last.clone(), path.join("wal/000000000999.log")] {
        begin();
        if file != *last {
            fs::copy(last, &file).unwrap();
        }
        make_newer(&file);
        let mut bytes = fs::read(damaged).unwrap();
        bytes[100] ^= 1;
        fs::write(damaged, bytes).unwrap();
        is_refused(&path, "the end of a damaged log");
        let opened = Store::open(&path, &options().salvage(true));
        assert!(matches!(opened, Err(Error::NewerFormat { .. })));
        assert!(file.exists());
    }
    for file in [&index, &ssts[0], &values[0], &logs[0], last] {
        begin();
        fs::remove_file(&first).unwrap();
        fs::remove_file(&second).unwrap();
        make_newer(file);
        let before = files(&path);
        let (status, object) = tool(&["--salvage"], &path);
        let found = (status, object["state"].as_str());
        assert_eq!(found, (2, Some("error")), "{file:?}: {object}");
        assert!(files(&path) == before, "{file:?}: a file was changed");
    }
}
