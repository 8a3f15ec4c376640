//! Files by someone who knows the format: whatever they say under checksums that match, no reader
//! panics, runs for ever, or takes more memory than files may ask for.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use gphash_block::frame::{self, BLOCK_HEADER};
use gphash_block::index::{self, Index};

use super::*;
use crate::lsm::cache::FileCache;
use crate::lsm::gather::gather;
use crate::lsm::repair::repair;
use crate::lsm::tests::{page, seed};
use crate::lsm::values::{Value, ValueWriter};
use crate::lsm::version::LsmVersion;
use crate::lsm::{Entry, LevelFile};
use crate::pm::Dir;
use crate::pool::clock::Clock;
use crate::width::{low_byte, to_usize};

const STORE: [u64; 2] = [1, 2];
const NUMBER: u64 = 3;

/// What stands in the blocks of a file.
#[derive(Clone)]
struct Contents {
    data: Vec<Vec<u8>>,
    /// Filter, index and properties.
    ends: [Vec<u8>; 3],
}

impl Contents {
    /// Those of a file in a directory.
    fn read(dir: &Dir) -> Self {
        let bytes = std::fs::read(dir.join(name(NUMBER))).unwrap();
        let header = header(STORE, NUMBER);
        let at = bytes.len() - FOOTER;
        let footer = Footer::read(&bytes[at..], &header, at as u64, Path::new("")).unwrap();
        let content = |from: u64, to: u64, seed| {
            let block = bytes[to_usize(from)..to_usize(to)].to_vec();
            frame::check(&block, seed).unwrap();
            block[BLOCK_HEADER..].to_vec()
        };
        let offsets = [footer.filter, footer.index, footer.properties, at as u64];
        let end = |nth: usize| {
            content(
                offsets[nth],
                offsets[nth + 1],
                header.end_seed(offsets[nth]),
            )
        };
        let ends = [end(0), end(1), end(2)];
        let index = Index::read(&ends[1], HEADER as u64..footer.filter).unwrap();
        let data = (0..index.blocks()).map(|nth| {
            let BlockHandle { from, to, .. } = index.handle(nth);
            content(from, to, header.seed(from))
        });
        let data = data.collect();
        Self { data, ends }
    }

    /// A file with these contents. Its index says where the blocks are unless `honest` is false: then it
    /// says what it says.
    fn write(&self, honest: bool) -> Vec<u8> {
        let header = header(STORE, NUMBER);
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        let add = |bytes: &mut Vec<u8>, content: &[u8], is_data: bool| {
            let at = bytes.len() as u64;
            let seed = if is_data {
                header.seed(at)
            } else {
                header.end_seed(at)
            };
            frame::write(content, seed, bytes);
            at
        };
        let mut index = index::Builder::default();
        for (nth, content) in self.data.iter().enumerate() {
            let first = nth.to_string();
            index.separate(b"", first.as_bytes());
            index.add(content.len() + BLOCK_HEADER, 10);
            add(&mut bytes, content, true);
        }
        let index = if honest {
            index.content()
        } else {
            &self.ends[1]
        };
        let footer = Footer {
            filter: add(&mut bytes, &self.ends[0], false),
            index: add(&mut bytes, index, false),
            properties: add(&mut bytes, &self.ends[2], false),
            checksum: 0,
            magic: MAGIC,
        };
        let at = bytes.len() as u64;
        let footer = footer.seal(header.end_seed(at));
        bytes.extend_from_slice(bytemuck::bytes_of(&footer));
        bytes
    }
}

fn spoil(bytes: &mut Vec<u8>, rng: &mut SmallRng) {
    if bytes.is_empty() {
        return bytes.push(rng.random());
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..6) {
        0 => bytes[at] = rng.random(),
        1 => bytes[at] ^= 1 << rng.random_range(0..8),
        2 => bytes.truncate(at),
        3 => bytes.insert(at, [0, 1, 0x7F, 0x80, 0xFF][rng.random_range(0..5)]),
        4 => {
            let word: u32 = [0, 1, 16, 1 << 31, u32::MAX][rng.random_range(0..5)];
            let end = bytes.len().min(at + 4);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        // Long numbers.
        _ => drop(bytes.splice(
            at..at,
            [0xFF; 9].into_iter().chain([rng.random_range(0..3)]),
        )),
    }
}

fn unbounded() -> Arc<Clock<MetaBlocks>> {
    Arc::new(Clock::new(u64::MAX))
}

/// Asks a file everything there is to ask; says whether it was opened.
fn ask(dir: &Dir, file: &LevelFile) -> bool {
    let cache = Arc::new(FileCache::new(dir.clone(), 4, 1 << 16, unbounded()));
    let Ok(sst) = Sst::open(&cache, STORE, file) else {
        return false;
    };
    let _ = sst.check(&|_| {});
    let version = LsmVersion::new(STORE, dir.path(), [(1, Arc::new(sst))]).unwrap();
    for n in 0..60 {
        let _ = version.get(&key(n));
        let _ = version.get(&n.to_string().into_bytes());
    }
    for from_end in [false, true] {
        for from in [Bound::Unbounded, Bound::Excluded(&key(20)[..])] {
            let range = match from_end {
                false => (from, Bound::Unbounded),
                true => (Bound::Unbounded, from),
            };
            if let Ok(page) = page(&version, range, from_end, 1 << 20) {
                assert!(page.items.len() < 1 << 16);
            }
        }
    }
    true
}

fn key(n: u64) -> Vec<u8> {
    format!("prefix{n:04}").into_bytes()
}

#[test]
fn blocks_in_another_order_are_gathered_in_that_of_keys() {
    let parent = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = Dir::at(parent.path().to_path_buf(), None);
    let mut writer = Writer::create(&dir, name(NUMBER), STORE, NUMBER, 0).unwrap();
    for n in 0..50 {
        let value = vec![low_byte(n); 300];
        let entry = Entry {
            key: &key(n),
            sequence: n,
            value: Some(Value::Inline(&value)),
        };
        writer.add(&entry).unwrap();
    }
    writer.finish().unwrap();
    let mut contents = Contents::read(&dir);
    assert!(contents.data.len() > 2);
    contents.data.rotate_left(1);
    std::fs::write(dir.join(name(NUMBER)), contents.write(true)).unwrap();
    let gathered = gather(&dir, STORE, &[NUMBER], NUMBER + 1).unwrap();
    assert_eq!(gathered.read, 50);
    assert!((1..50).contains(&gathered.kept), "{}", gathered.kept);
    let cache = Arc::new(FileCache::new(dir.clone(), 4, 0, unbounded()));
    let mut kept = 0;
    let mut last: Option<Vec<u8>> = None;
    for file in &gathered.files {
        let sst = Arc::new(Sst::open(&cache, STORE, file).unwrap());
        let version = LsmVersion::new(STORE, dir.path(), [(1, sst)]).unwrap();
        let page = page(
            &version,
            (Bound::Unbounded, Bound::Unbounded),
            false,
            1 << 20,
        )
        .unwrap();
        for (found, _) in page.items {
            assert!(last.as_ref() < Some(&found));
            last = Some(found);
            kept += 1;
        }
    }
    assert_eq!(kept, gathered.kept);
}

#[test]
fn sst_that_is_forged_is_read_or_refused() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let parent = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = Dir::at(parent.path().to_path_buf(), None);
    let mut writer = Writer::create(&dir, name(NUMBER), STORE, NUMBER, 0).unwrap();
    let cache = Arc::new(FileCache::new(dir.clone(), 4, 0, unbounded()));
    let mut values = ValueWriter::create(&cache, STORE, NUMBER + 1).unwrap();
    for n in 0..50 {
        let value = vec![low_byte(n); 300];
        let entry = Entry {
            key: &key(n),
            sequence: n,
            value: match n % 7 {
                0 => None,
                1 => Some(Value::Apart(values.add(&value).unwrap())),
                _ => Some(Value::Inline(&value)),
            },
        };
        writer.add(&entry).unwrap();
    }
    writer.finish().unwrap();
    values.finish().unwrap();
    let whole = Contents::read(&dir);
    assert!(whole.data.len() > 2);
    let (mut opened, mut repaired) = (0, 0);
    for _ in 0..4000 {
        let mut contents = whole.clone();
        let blocks = contents.data.len();
        for _ in 0..rng.random_range(1..4) {
            let nth = rng.random_range(0..blocks + 3);
            let content = match nth.checked_sub(blocks) {
                None => &mut contents.data[nth],
                Some(end) => &mut contents.ends[end],
            };
            spoil(content, &mut rng);
        }
        let bytes = contents.write(rng.random());
        std::fs::write(dir.join(name(NUMBER)), &bytes).unwrap();
        let file = LevelFile {
            number: NUMBER,
            level: 1,
            len: bytes.len() as u64,
        };
        opened += u32::from(ask(&dir, &file));
        if let Some(file) = repair(&dir, &file, STORE).unwrap().file {
            assert!(ask(&dir, &file));
            repaired += 1;
        }
    }
    assert!(
        opened > 400 && repaired > 2000,
        "{opened} opened, {repaired} repaired"
    );
}

/// What is reckoned by the count of entries must not overflow.
#[test]
fn counts_of_entries_that_no_file_has_are_refused() {
    let parent = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = Dir::at(parent.path().to_path_buf(), None);
    let mut writer = Writer::create(&dir, name(NUMBER), STORE, NUMBER, 0).unwrap();
    for n in 0..50 {
        let entry = Entry {
            key: &key(n),
            sequence: n,
            value: Some(Value::Inline(b"value")),
        };
        writer.add(&entry).unwrap();
    }
    writer.finish().unwrap();
    let whole = Contents::read(&dir);
    for (entries, is_possible) in [(50u64, true), (100_000, false), (1 << 63, false)] {
        let mut contents = whole.clone();
        contents.ends[2][..8].copy_from_slice(&entries.to_le_bytes());
        let bytes = contents.write(true);
        std::fs::write(dir.join(name(NUMBER)), &bytes).unwrap();
        let file = LevelFile {
            number: NUMBER,
            level: 1,
            len: bytes.len() as u64,
        };
        assert_eq!(ask(&dir, &file), is_possible, "{entries}");
    }
}
