//! Journals that are not what they say.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gphash::layout::{PAGE, Superblock};
use gphash::pm::{Call, Faults};
use gphash::{Domain, Error};
use xxhash_rust::xxh3::xxh3_64;

use crate::file::{Hostile, Table, folder, keys, options};

/// What is done to a journal, and to a superblock in it.
type Spoil<'s> = &'s dyn Fn(&mut Parts);
type Lie = fn(&mut Superblock);

/// Keeps pages from coming home.
#[derive(Debug, Default)]
struct Away(AtomicBool);

impl Faults for Away {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) && call == Call::Write && path.extension().is_none() {
            return Err(io::Error::other("kept away"));
        }
        Ok(())
    }
}

/// A file with the complete journal of a checkpoint beside it.
fn interrupted() -> Hostile {
    let folder = folder();
    let path = folder.path().join("index");
    let away = Arc::new(Away::default());
    let options = options()
        .domain(Domain::Checkpointed)
        .capacity(20)
        .faults(away.clone());
    let index = Table::create(&path, &options).unwrap();
    index.insert(&keys(), &keys()).unwrap();
    index.sync().unwrap();
    away.0.store(true, Ordering::Relaxed);
    index.upsert(&keys()[..50], &[7; 50]).unwrap();
    index.sync().unwrap_err();
    let mut file = Hostile::of(fs::read(&path).unwrap());
    file.journal = fs::read(path.with_extension("journal")).ok();
    away.0.store(false, Ordering::Relaxed);
    file
}

/// A journal by its parts, with checksums that match.
#[derive(Clone)]
struct Parts {
    header: [u64; 8],
    numbers: Vec<u64>,
    pages: Vec<u8>,
}

const PAGE_COUNT: usize = 6;
const FILE_LEN: usize = 7;
const HEADER: usize = 72;

impl Parts {
    fn of(journal: &[u8]) -> Self {
        let words: Vec<u64> = journal[..HEADER]
            .chunks_exact(8)
            .map(bytemuck::pod_read_unaligned)
            .collect();
        let count = usize::try_from(words[PAGE_COUNT]).unwrap();
        let (numbers, rest) = journal[HEADER..].split_at(8 * count);
        Self {
            header: words[..8].try_into().unwrap(),
            numbers: numbers
                .chunks_exact(8)
                .map(bytemuck::pod_read_unaligned)
                .collect(),
            pages: rest[..count * usize::try_from(PAGE).unwrap()].to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let header: &[u8] = bytemuck::cast_slice(&self.header);
        let numbers: &[u8] = bytemuck::cast_slice(&self.numbers);
        let sum = xxh3_64(header).to_le_bytes();
        let mut bytes = [header, &sum, numbers, &self.pages].concat();
        let trailer = xxh3_64(&bytes).to_le_bytes();
        bytes.extend(trailer);
        bytes
    }
}

#[test]
fn journal_that_is_valid_is_replayed() {
    let mut file = interrupted();
    let journal = file.journal.clone().unwrap();
    let parts = Parts::of(&journal);
    assert!(parts.bytes() == journal);
    let folder = folder();
    let path = file.write(folder.path());
    let index = Table::open(&path, &options()).unwrap();
    assert_eq!(index.get_one(&3).unwrap(), Some(7));
    drop(index);
    file.journal = Some(parts.bytes());
    file.attack("an honest journal").unwrap();
}

#[test]
fn journals_of_other_files_or_lengths() {
    let file = interrupted();
    let honest = Parts::of(file.journal.as_ref().unwrap());
    let last = honest.numbers.len() - 1;
    let far = 1 << 40;
    let spoil: [(&str, Spoil); 8] = [
        ("a page behind the end", &|parts| {
            parts.numbers[last] = parts.header[FILE_LEN] / PAGE;
        }),
        ("a page far away", &|parts| {
            parts.numbers[last] = far;
            parts.header[FILE_LEN] = (far + 1) * PAGE;
        }),
        ("a page that wraps", &|parts| {
            parts.numbers[last] = u64::MAX;
            parts.header[FILE_LEN] = u64::MAX;
        }),
        ("a longer file", &|parts| parts.header[FILE_LEN] += PAGE),
        ("pages in no order", &|parts| parts.numbers.swap(0, last)),
        ("a page twice", &|parts| {
            parts.numbers[last] = parts.numbers[last - 1]
        }),
        ("small pages", &|parts| parts.header[1] = 3 | 512 << 32),
        ("another file", &|parts| parts.header[2] ^= 1),
    ];
    for (name, spoil) in spoil {
        let mut parts = honest.clone();
        spoil(&mut parts);
        let mut file = file.clone();
        file.journal = Some(parts.bytes());
        file.must_be_refused(&format!("a journal of {name}"));
    }
}

#[test]
fn journals_whose_numbers_wrap() {
    let file = interrupted();
    let honest = Parts::of(file.journal.as_ref().unwrap());
    for count in [
        1 << 20,
        u64::MAX,
        u64::MAX / 4104,
        u64::MAX / 4104 + 1,
        1 << 61,
    ] {
        let mut parts = honest.clone();
        parts.header[PAGE_COUNT] = count;
        let mut file = file.clone();
        file.journal = Some(parts.bytes());
        // It is torn, so the last checkpoint stands.
        file.attack(&format!("a journal of {count} pages")).unwrap();
    }
}

#[test]
fn journal_with_a_forged_superblock() {
    let file = interrupted();
    let honest = Parts::of(file.journal.as_ref().unwrap());
    let superblock = |nth: &usize| -> Superblock {
        let at = nth * usize::try_from(PAGE).unwrap();
        bytemuck::pod_read_unaligned(&honest.pages[at..][..size_of::<Superblock>()])
    };
    let page = (0..honest.numbers.len())
        .filter(|&nth| honest.numbers[nth] < 2)
        .max_by_key(|nth| superblock(nth).generation)
        .unwrap();
    let lies: [(&str, Lie); 4] = [
        ("length", |s| s.file_len <<= 8),
        ("extents", |s| s.extent_count = u32::MAX),
        ("levels", |s| s.top_level = 39),
        ("generation", |s| s.generation = u64::MAX),
    ];
    for (name, lie) in lies {
        let mut parts = honest.clone();
        let at = page * usize::try_from(PAGE).unwrap();
        let bytes = &mut parts.pages[at..][..size_of::<Superblock>()];
        let mut superblock: Superblock = bytemuck::pod_read_unaligned(bytes);
        lie(&mut superblock);
        superblock.seal();
        bytes.copy_from_slice(bytemuck::bytes_of(&superblock));
        let mut file = file.clone();
        file.journal = Some(parts.bytes());
        let error = file.attack(&format!("a journal that lies about its {name}"));
        assert!(matches!(
            error,
            Err(Error::Damaged { .. } | Error::Truncated { .. })
        ));
    }
}
