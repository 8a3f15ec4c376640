//! Opens arbitrary bytes, and real files with arbitrary patches under checksums that match.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use gphash::layout::{ExtentEntry, ExtentKind, SUPERBLOCKS, Superblock};
use gphash::{Engine, Index, Options, recover};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

type Table = Index<u64, [u8; 16]>;

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>),
    Patches(Vec<Patch>),
}

#[derive(Arbitrary, Debug)]
enum Patch {
    Superblock {
        word: u8,
        value: u64,
    },
    Extent {
        index: u8,
        arena: bool,
        class: u8,
        page: u16,
        pages: u16,
    },
    Word {
        at: u32,
        value: u64,
    },
    Byte {
        at: u32,
        value: u8,
    },
}

static REAL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = folder();
    let path = folder.path().join("index");
    let index = Table::create(&path, &options()).unwrap();
    let keys: Vec<u64> = (0..60).chain([u64::MAX]).collect();
    index.insert(&keys, &[[5; 16]; 61]).unwrap();
    index.remove(&keys[10..20]).unwrap();
    index.close().unwrap();
    std::fs::read(path).unwrap()
});

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    }
    .unwrap()
}

fn options() -> Options {
    Options::new().engine(Engine::Cpu).capacity(30)
}

fn patched(patches: &[Patch]) -> Vec<u8> {
    let mut bytes = REAL.clone();
    let mut superblock = Superblock::parse(&bytes, bytes.len() as u64, Path::new("index")).unwrap();
    for patch in patches {
        match *patch {
            Patch::Superblock { word, value } => {
                let words: &mut [u64] =
                    bytemuck::cast_slice_mut(bytemuck::bytes_of_mut(&mut superblock));
                let count = words.len();
                words[usize::from(word) % count] = value;
            }
            Patch::Extent {
                index,
                arena,
                class,
                page,
                pages,
            } => {
                let kind = if arena {
                    ExtentKind::Arena
                } else {
                    ExtentKind::Level
                };
                let entry = ExtentEntry::new(
                    kind,
                    u32::from(class),
                    u64::from(page) << 12,
                    u64::from(pages) << 12,
                );
                let at = ExtentEntry::place(u32::from(index % 8)) as usize;
                bytes[at..][..size_of::<ExtentEntry>()].copy_from_slice(bytemuck::bytes_of(&entry));
            }
            Patch::Word { at, value } => {
                let at = at as usize % (bytes.len() / 8) * 8;
                bytes[at..][..8].copy_from_slice(&value.to_le_bytes());
            }
            Patch::Byte { at, value } => {
                let at = at as usize % bytes.len();
                bytes[at] = value;
            }
        }
    }
    superblock.seal();
    for at in SUPERBLOCKS {
        bytes[at as usize..][..size_of::<Superblock>()]
            .copy_from_slice(bytemuck::bytes_of(&superblock));
    }
    bytes
}

fuzz_target!(|input: Input| {
    let bytes = match input {
        Input::Bytes(bytes) => bytes,
        Input::Patches(patches) => patched(&patches),
    };
    let folder = folder();
    let path = folder.path().join("index");
    std::fs::write(&path, &bytes).unwrap();
    let _ = recover(&path, true, &|_| {});
    assert!(
        std::fs::read(&path).unwrap() == bytes,
        "a check has changed the file"
    );
    if let Ok(index) = Table::open(&path, &options()) {
        let keys: Vec<u64> = (0..80).chain([u64::MAX]).collect();
        let mut values = vec![[0; 16]; keys.len()];
        let _ = index.get(&keys, &mut values);
        let _ = index.remove(&keys[..5]);
        let _ = index.upsert(&keys, &values);
        let _ = index.iter().count();
        let _ = index.close();
    } else {
        assert!(
            std::fs::read(&path).unwrap() == bytes,
            "a refusal has changed the file"
        );
    }
    let _ = recover(&path, false, &|_| {});
});
