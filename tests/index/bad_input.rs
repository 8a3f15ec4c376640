//! Whatever an index is given that it cannot take: an error that says what was found, a file
//! that stays as it was, and no panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gphash::layout::superblock::Flags;
use gphash::layout::{DATA_START, SUPERBLOCKS, Superblock};
use gphash::{Engine, Error, Index, Options, ReportState, recover};
use gphash_test_support::setting;
use tempfile::TempDir;

type Table = Index<u64, [u64; 2]>;

fn options() -> Options {
    let engine = setting("GPHASH_TEST_ENGINE").unwrap_or(Engine::Cpu);
    Options::new().engine(engine)
}

/// A file with a few items, cleanly closed.
fn file() -> (TempDir, PathBuf) {
    file_in(&std::env::temp_dir())
}

fn file_in(place: &Path) -> (TempDir, PathBuf) {
    let folder = TempDir::new_in(place).unwrap();
    let path = folder.path().join("index");
    let index = Table::create(&path, &options().capacity(20)).unwrap();
    index.insert(&[1, 2, 0, u64::MAX], &[[7; 2]; 4]).unwrap();
    index.close().unwrap();
    (folder, path)
}

/// Opens the file as it is, and tells the error; neither may change a byte.
fn refusal(path: &Path) -> Error {
    let before = fs::read(path).unwrap();
    let error = Table::open(path, &options()).expect_err("it opened");
    assert!(
        fs::read(path).unwrap() == before,
        "the file was changed; {error}"
    );
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "something was left beside the file; {error}");
    error
}

fn superblock(bytes: &[u8]) -> Superblock {
    Superblock::parse(bytes, bytes.len() as u64, Path::new("index")).unwrap()
}

/// Writes `superblock` as both copies.
fn write_superblock(bytes: &mut [u8], mut superblock: Superblock) {
    superblock.seal();
    for at in SUPERBLOCKS {
        bytes[usize::try_from(at).unwrap()..][..size_of::<Superblock>()]
            .copy_from_slice(bytemuck::bytes_of(&superblock));
    }
}

#[test]
fn options_that_cannot_be() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("index");
    for (option, wrong) in [
        ("capacity", options().capacity(0)),
        ("capacity", options().capacity(u64::MAX)),
        ("capacity", options().capacity(Options::MAX_CAPACITY + 1)),
        ("threads", options().threads(Options::MAX_THREADS + 1)),
        ("threads", options().threads(1 << 16)),
        ("threads", options().threads(usize::MAX)),
        ("cache_ratio", options().cache_ratio(f64::NAN)),
        ("cache_ratio", options().cache_ratio(-0.1)),
        ("cache_ratio", options().cache_ratio(1.1)),
        ("cache_period", options().cache_period(Some(Duration::ZERO))),
        ("shape", options().shape(0, 2, 8)),
        ("shape", options().shape(2, 0, 8)),
        ("shape", options().shape(2, 2, 0)),
        ("shape", options().shape(2, 2, 9)),
        ("shape", options().shape(u32::MAX, u32::MAX, u32::MAX)),
        ("shape", options().shape(1 << 16, 1 << 16, 1)),
    ] {
        for made in [Table::create(&path, &wrong), Table::open(&path, &wrong)] {
            let error = made.expect_err("it was made");
            assert!(
                matches!(error, Error::InvalidOption { option: named, .. } if named == option),
                "{error}"
            );
        }
        assert!(!path.exists());
    }
}

#[test]
fn threads_at_their_maximum_execute_whole_batches() {
    let folder = TempDir::new().unwrap();
    let options = options().threads(Options::MAX_THREADS);
    let index = Table::create(folder.path().join("index"), &options).unwrap();
    let keys: Vec<u64> = (0..20_000).collect();
    let wanted: Vec<[u64; 2]> = keys.iter().map(|&key| [key, !key]).collect();
    assert_eq!(index.insert(&keys, &wanted).unwrap().count_ones(..), 20_000);
    let mut values = vec![[0; 2]; keys.len()];
    let found = index.get(&keys, &mut values).unwrap();
    assert_eq!((found.count_ones(..), values), (20_000, wanted));
}

#[test]
fn types_that_no_table_can_have() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("index");
    let errors = [
        Index::<u32, u64>::create(&path, &options()).err(),
        Index::<[u32; 3], u64>::create(&path, &options()).err(),
        Index::<[u64; 17], u64>::create(&path, &options()).err(),
        Index::<[u64; 0], u64>::create(&path, &options()).err(),
        Index::<u64, [u8; 0]>::create(&path, &options()).err(),
        Index::<u64, [u64; 8193]>::create(&path, &options()).err(),
    ];
    for error in errors {
        assert!(
            matches!(error, Some(Error::InvalidOption { .. })),
            "{error:?}"
        );
        assert!(!path.exists());
    }
}

#[test]
fn capacity_that_no_disk_has() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("index");
    let error = Table::create(&path, &options().capacity(Options::MAX_CAPACITY)).err();
    assert!(
        matches!(error, Some(Error::NoSpace { .. } | Error::Limit { .. })),
        "{error:?}"
    );
    assert!(!path.exists());
}

#[test]
fn engine_that_this_build_lacks() {
    if cfg!(feature = "cuda") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("index");
    let cuda = Options::new().engine(Engine::Cuda { device: 0 });
    let error = Table::create(&path, &cuda).expect_err("it was made");
    assert!(matches!(error, Error::Gpu { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn slices_of_unequal_length() {
    let (_folder, path) = file();
    let index = Table::open(&path, &options()).unwrap();
    let errors = [
        index.insert(&[5, 6], &[[1; 2]]).err(),
        index.upsert(&[5], &[[1; 2]; 2]).err(),
        index.update(&[1], &[]).err(),
        index.get(&[], &mut [[1; 2]]).err(),
    ];
    for error in errors {
        assert!(
            matches!(error, Some(Error::LengthMismatch { .. })),
            "{error:?}"
        );
    }
    assert_eq!(index.len(), 4);
    assert_eq!(index.get_one(&1).unwrap(), Some([7; 2]));
}

#[test]
fn keys_and_values_of_another_size() {
    let (_folder, path) = file();
    let before = fs::read(&path).unwrap();
    let key = Index::<[u64; 2], [u64; 2]>::open(&path, &options()).err();
    assert!(
        matches!(
            key,
            Some(Error::SizeMismatch {
                what: "key",
                found: 8,
                expected: 16,
                ..
            })
        ),
        "{key:?}"
    );
    let value = Index::<u64, u64>::open(&path, &options()).err();
    assert!(
        matches!(
            value,
            Some(Error::SizeMismatch {
                what: "value",
                found: 16,
                expected: 8,
                ..
            })
        ),
        "{value:?}"
    );
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn path_that_leads_to_no_file() {
    let folder = TempDir::new().unwrap();
    let missing = Table::open(folder.path().join("missing"), &options()).err();
    assert!(matches!(missing, Some(Error::Io { .. })), "{missing:?}");
    let nowhere = Table::create(folder.path().join("no/folder"), &options()).err();
    assert!(matches!(nowhere, Some(Error::Io { .. })), "{nowhere:?}");
    let directory = Table::open(folder.path(), &options()).err();
    assert!(
        matches!(
            directory,
            Some(Error::NotAFile {
                found: "directory",
                ..
            })
        ),
        "{directory:?}"
    );
    let taken = Table::create(folder.path(), &options()).err();
    assert!(
        matches!(taken, Some(Error::AlreadyExists { .. })),
        "{taken:?}"
    );
    let device = Table::open("/dev/null", &options()).err();
    assert!(matches!(device, Some(Error::NotAFile { .. })), "{device:?}");
}

#[test]
fn file_that_exists_and_one_in_use() {
    let (_folder, path) = file();
    let exists = Table::create(&path, &options()).err();
    assert!(
        matches!(exists, Some(Error::AlreadyExists { .. })),
        "{exists:?}"
    );
    let index = Table::open(&path, &options()).unwrap();
    for error in [
        Table::open(&path, &options()).err(),
        Table::open_or_create(&path, &options()).err(),
        recover(&path, gphash::Repair::Salvage, &|_| {}).err(),
        recover(&path, gphash::Repair::Check, &|_| {}).err(),
    ] {
        assert!(matches!(error, Some(Error::InUse { .. })), "{error:?}");
    }
    assert_eq!(index.len(), 4);
}

/// What stands where the journal does is named, and nobody waits for it.
#[test]
fn journal_that_is_a_pipe_or_alone() {
    let (folder, path) = file();
    let journal = folder.path().join("index.journal");
    // A process that is forked to run `mkfifo` would hold the locks of other tests until it does.
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &journal,
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    let names_it = |error: &Error| match error {
        Error::NotAFile { path, .. } | Error::AlreadyExists { path } => *path == journal,
        _ => false,
    };
    for error in [
        Table::open(&path, &options()).err(),
        recover(&path, gphash::Repair::Check, &|_| {}).err(),
        recover(&path, gphash::Repair::Salvage, &|_| {}).err(),
    ] {
        assert!(error.as_ref().is_some_and(names_it), "{error:?}");
    }
    fs::remove_file(&path).unwrap();
    let error = Table::open_or_create(&path, &options()).err();
    assert!(error.as_ref().is_some_and(names_it), "{error:?}");
}

#[test]
fn file_of_another_program() {
    let (_folder, path) = file();
    for bytes in [
        vec![],
        b"#!/bin/sh\n".to_vec(),
        vec![0; 1 << 20],
        vec![255; 5000],
    ] {
        fs::write(&path, bytes).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }
}

#[test]
fn file_that_is_truncated() {
    let (_folder, path) = file();
    let whole = fs::read(&path).unwrap();
    for len in [
        600,
        4096,
        5000,
        8192,
        usize::try_from(DATA_START).unwrap(),
        whole.len() - 4096,
        whole.len() - 1,
    ] {
        fs::write(&path, &whole[..len]).unwrap();
        let error = refusal(&path);
        assert!(
            matches!(error, Error::Truncated { .. }),
            "{len} bytes: {error}"
        );
    }
}

#[test]
fn file_of_a_newer_format() {
    let (_folder, path) = file();
    let mut bytes = fs::read(&path).unwrap();
    let mut newer = superblock(&bytes);
    newer.version += 1;
    write_superblock(&mut bytes, newer);
    fs::write(&path, &bytes).unwrap();
    let error = refusal(&path);
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 4,
                supported: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn file_of_an_older_format() {
    let (_folder, path) = file();
    let mut bytes = fs::read(&path).unwrap();
    let mut older = superblock(&bytes);
    older.version -= 1;
    write_superblock(&mut bytes, older);
    fs::write(&path, &bytes).unwrap();
    let error = refusal(&path);
    assert!(
        matches!(
            error,
            Error::OlderFormat {
                found: 2,
                supported: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn superblock_with_any_byte_damaged() {
    // More than a thousand opens, which need no disk.
    let memory = Path::new("/dev/shm");
    let (_folder, path) = match memory.is_dir() {
        true => file_in(memory),
        false => file(),
    };
    let whole = fs::read(&path).unwrap();
    for byte in 0..size_of::<Superblock>() {
        let mut both = whole.clone();
        for at in SUPERBLOCKS {
            both[usize::try_from(at).unwrap() + byte] ^= 0x10;
        }
        fs::write(&path, &both).unwrap();
        let error = refusal(&path);
        let told = match byte {
            0..8 => matches!(error, Error::Foreign { .. }),
            8..12 => matches!(error, Error::NewerFormat { .. }),
            _ => matches!(error, Error::Damaged { .. }),
        };
        assert!(told, "byte {byte}: {error}");
        // One copy alone is what a torn write leaves, and the other one holds.
        for at in SUPERBLOCKS {
            let mut one = whole.clone();
            one[usize::try_from(at).unwrap() + byte] ^= 0x10;
            fs::write(&path, &one).unwrap();
            let index = Table::open(&path, &options()).unwrap();
            assert_eq!(
                index.get_one(&1).unwrap(),
                Some([7; 2]),
                "byte {byte} at {at}"
            );
        }
    }
}

#[test]
fn extent_table_with_any_byte_damaged() {
    let (_folder, path) = file();
    let whole = fs::read(&path).unwrap();
    let superblock = superblock(&whole);
    for byte in superblock.entry_offset(0)..superblock.entry_offset(superblock.extent_count) {
        let mut bytes = whole.clone();
        bytes[usize::try_from(byte).unwrap()] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let error = refusal(&path);
        assert!(
            matches!(
                error,
                Error::Damaged {
                    what: "extent table",
                    ..
                }
            ),
            "byte {byte}: {error}"
        );
    }
}

/// Where the record word of key 1 stands.
fn record_word_of_key_1(bytes: &[u8]) -> usize {
    let superblock = superblock(bytes);
    let shape = superblock.shape(Path::new("index")).unwrap();
    let slot = (superblock.bottom_level..=superblock.top_level)
        .flat_map(|level| {
            let offset = superblock.level_directory[level as usize];
            (0..1 << level).map(move |bucket| offset + bucket * shape.bucket_size)
        })
        .flat_map(|bucket| (0..shape.slots).map(move |slot| shape.slot_addr(bucket, slot)))
        .find(|place| bytes[usize::try_from(place.state).unwrap()..][..8] == 1u64.to_le_bytes())
        .expect("key 1 has a slot");
    usize::try_from(slot.record).unwrap()
}

#[test]
fn changes_give_up_no_record_that_a_damaged_word_names() {
    let (_folder, path) = file();
    let whole = fs::read(&path).unwrap();
    let record = record_word_of_key_1(&whole);
    // Values of 16 bytes: the words of the others differ in bits from the fourth on.
    for bit in 4..8 {
        let mut bytes = whole.clone();
        bytes[record] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        let index = Table::open(&path, &options()).unwrap();
        for change in 0..3 {
            let refused = match change {
                0 => index.update(&[1, 2], &[[8; 2]; 2]).err(),
                1 => index.upsert(&[1, 2], &[[8; 2]; 2]).err(),
                _ => index.remove(&[1]).err(),
            };
            assert!(
                matches!(refused, Some(Error::Damaged { .. })),
                "bit {bit}, change {change}: {refused:?}"
            );
        }
        assert!(!index.insert_one(&1, &[9; 2]).unwrap());
        assert_eq!(index.len(), 4);
        // No value takes a record that another item has.
        let new: Vec<u64> = (10..200).collect();
        let values: Vec<_> = new.iter().map(|&key| [key; 2]).collect();
        index.insert(&new, &values).unwrap();
        assert!(matches!(index.get_one(&2).unwrap(), Some([7, 7] | [8, 8])));
        for key in [0, u64::MAX] {
            assert_eq!(index.get_one(&key).unwrap(), Some([7; 2]));
        }
    }
}

#[test]
fn item_with_an_invalid_record_word() {
    let (_folder, path) = file();
    let whole = fs::read(&path).unwrap();
    let mut unclean = superblock(&whole);
    unclean.set_flag(Flags::CLEAN, false);
    let record = record_word_of_key_1(&whole);
    for nowhere in [
        8,
        DATA_START + 1,
        DATA_START + 8,
        unclean.file_len,
        (1 << 56) - 8,
    ] {
        let mut bytes = whole.clone();
        bytes[record..][..8].copy_from_slice(&nowhere.to_le_bytes());
        // A file cleanly closed is believed, and the lookup meets the damage.
        fs::write(&path, &bytes).unwrap();
        if nowhere % 16 != 0 || !(DATA_START..unclean.file_len).contains(&nowhere) {
            let index = Table::open(&path, &options()).unwrap();
            assert!(matches!(index.get_one(&1), Err(Error::Damaged { .. })));
            assert_eq!(index.get_one(&2).unwrap(), Some([7; 2]));
            for inserted in [index.insert(&[1], &[[8; 2]]), index.upsert(&[1], &[[8; 2]])] {
                assert!(matches!(inserted, Ok(_) | Err(Error::Damaged { .. })));
                assert_eq!(index.len(), 4, "a second item of the same key");
            }
            assert!(matches!(index.get_one(&1), Err(Error::Damaged { .. })));
        }
        write_superblock(&mut bytes, unclean);
        fs::write(&path, &bytes).unwrap();
        let error = refusal(&path);
        assert!(
            matches!(
                error,
                Error::Damaged {
                    what: "record word",
                    ..
                }
            ),
            "{error}"
        );
        let report = recover(&path, gphash::Repair::Check, &|_| {}).unwrap();
        assert_eq!(
            (report.state, report.recovery.items),
            (ReportState::Damaged, 3)
        );
        assert!(
            fs::read(&path).unwrap() == bytes,
            "a check has changed the file"
        );
        recover(&path, gphash::Repair::Salvage, &|_| {}).unwrap();
        let index = Table::open(&path, &options()).unwrap();
        assert_eq!((index.len(), index.get_one(&1).unwrap()), (3, None));
    }
}

#[test]
fn dir_that_takes_no_file() {
    let error = Table::create("/proc/index", &options()).expect_err("it was made");
    assert!(
        matches!(error, Error::ReadOnly { .. } | Error::Io { .. }),
        "{error}"
    );
}
