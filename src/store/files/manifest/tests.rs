use rand::SeedableRng;
use rand::rngs::SmallRng;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::lsm::Catalog;
use crate::pm::sim_disk::{Disk, Files};
use crate::store::files::dir::StoreDir;
use crate::store::files::identity::PartitionCount;

fn manifest() -> Manifest {
    Manifest {
        store_id: [3, 4],
        complete: true,
        marked: true,
        unnamed: false,
        salvaged: false,
        partitions: 3,
        partition: 2,
        generation: 11,
        next_file: 13,
        first_segment: 5,
        last_segment: 7,
        sequence: 1 << 40,
        merge_operator: "sum".into(),
        partitioner: "by tenant".into(),
        files: vec![
            LevelFile {
                number: 9,
                level: 2,
                len: 4096,
            },
            LevelFile {
                number: 12,
                level: 0,
                len: 77,
            },
        ],
        others: vec![6],
    }
}

#[test]
fn manifest_in_force_is_the_newer_valid_copy() {
    let dir = tempfile::tempdir().unwrap();
    let dir = Dir::at(dir.path().to_path_buf(), None);
    manifest().write(&dir).unwrap();
    let changed = Manifest {
        generation: 12,
        sequence: 9,
        files: Vec::new(),
        ..manifest()
    };
    changed.write(&dir).unwrap();
    let found = Manifest::find(&dir).unwrap();
    assert_eq!(found.manifest, changed);
    assert!(found.other.is_none());
    let mut names = dir.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    let spoil = |name| {
        let mut bytes = changed.to_bytes();
        bytes[40] ^= 1;
        std::fs::write(dir.join(name), bytes).unwrap();
    };
    for name in NAMES {
        // Older, damaged, or not there.
        manifest().write_copy(&dir, name).unwrap();
        assert_eq!(Manifest::find(&dir).unwrap().manifest, changed);
        spoil(name);
        let found = Manifest::find(&dir).unwrap();
        assert_eq!(found.manifest, changed);
        assert_eq!(found.other.unwrap().0, name);
        dir.remove_file(name).unwrap();
        let found = Manifest::find(&dir).unwrap();
        assert!(matches!(found.other, Some((other, Error::Missing { .. })) if other == name));
        changed.write_copy(&dir, name).unwrap();
    }
    for name in NAMES {
        spoil(name);
    }
    assert!(matches!(Manifest::find(&dir), Err(Error::Damaged { .. })));
}

#[test]
fn manifest_of_the_first_version_is_read() {
    let only = Manifest {
        partitions: 1,
        partition: 0,
        partitioner: String::new(),
        others: Vec::new(),
        ..manifest()
    };
    let mut bytes = only.to_bytes();
    bytes.truncate(bytes.len() - 8);
    bytes.drain(HEADER..HEADER + SECOND);
    bytes[8..16].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
    bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    let first = Manifest {
        marked: false,
        generation: 0,
        next_file: 0,
        ..only
    };
    assert_eq!(
        Manifest::parse(&bytes, Path::new("MANIFEST")).unwrap(),
        first
    );
}

#[test]
fn manifest_damage_of_any_bit_is_detected() {
    let path = Path::new("MANIFEST");
    let of_version_2 = Manifest {
        partitioner: String::new(),
        ..manifest()
    };
    for manifest in [manifest(), of_version_2] {
        let whole = manifest.to_bytes();
        assert_eq!(Manifest::parse(&whole, path).unwrap(), manifest);
        // A copy that was longer has a tail.
        for tail in [&[][..], &[7; 24]] {
            for bit in 0..whole.len() * 8 {
                let mut bytes = [&whole[..], tail].concat();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let error = Manifest::parse(&bytes, path).unwrap_err();
                let told = match bit / 8 {
                    0..8 => matches!(error, Error::Foreign { .. }),
                    _ => matches!(error, Error::Damaged { .. }),
                };
                assert!(told, "bit {bit}: {error}");
            }
        }
    }
    let bytes = manifest().to_bytes();
    for len in 0..bytes.len() {
        assert!(Manifest::parse(&bytes[..len], path).is_err(), "{len} bytes");
    }
}

/// Whichever call of an edit fails, a power cut amid the next one leaves a copy.
#[test]
fn edit_after_one_that_failed_leaves_a_whole_copy() {
    let mut rng = SmallRng::seed_from_u64(7);
    let seen = tempfile::tempdir_in("/dev/shm").unwrap();
    for failing in 0.. {
        let path = tempfile::tempdir_in("/dev/shm").unwrap();
        let disk = Disk::holding(&Files::new());
        let dir = Dir::at(path.path().to_path_buf(), Some(disk.clone()));
        let mut first = 0;
        let mut edit = |generation| {
            let mut next = manifest();
            next.generation = generation;
            // Each one is longer than the last.
            next.files = (0..generation)
                .map(|number| LevelFile {
                    number,
                    level: 0,
                    len: 1,
                })
                .collect();
            next.rewrite(&dir, &mut first)
        };
        edit(1).unwrap();
        disk.fail(|_| true, failing);
        if edit(2).is_ok() {
            assert!(failing > 4, "{failing} calls");
            return;
        }
        disk.recorded();
        edit(3).unwrap();
        for (_, state) in disk.recorded() {
            for image in state.power_cuts(20, &mut rng) {
                for (file, bytes) in &image {
                    let name = file.file_name().unwrap();
                    std::fs::write(seen.path().join(name), bytes).unwrap();
                }
                let found = Manifest::find(&Dir::at(seen.path().to_path_buf(), None));
                let found = found.expect("a copy is whole").manifest;
                assert!((1..=3).contains(&found.generation));
            }
        }
    }
}

/// Files from ten to the power of twelve on have no names.
#[test]
fn file_numbers_without_a_name_are_refused() {
    let numbered = |number, next_file| {
        let mut manifest = manifest();
        manifest.files[1].number = number;
        manifest.next_file = next_file;
        Manifest::parse(&manifest.to_bytes(), Path::new("MANIFEST"))
    };
    assert!(numbered(NUMBERS_MAX - 1, NUMBERS_MAX).is_ok());
    for (number, next_file) in [(NUMBERS_MAX, NUMBERS_MAX), (12, NUMBERS_MAX + 1)] {
        let error = numbered(number, next_file).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
}

/// A list that is full has room for what takes more from it than it adds.
#[test]
fn full_list_of_files_can_shrink() {
    let path = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = StoreDir::open(path.path(), None, PartitionCount::ANY, None).unwrap();
    let file = |number| LevelFile {
        number,
        level: 0,
        len: 1,
    };
    let full = 1 << 20;
    let fill = |manifest: &mut Manifest| manifest.files = (0..full).map(file).collect();
    dir.edit(fill).unwrap();
    let refused = Catalog::edit(&dir, &[file(full)], &[full + 1]);
    assert!(matches!(refused, Err(Error::Limit { .. })), "{refused:?}");
    Catalog::edit(&dir, &[file(full)], &[3, 4]).unwrap();
    assert_eq!(dir.manifest().files.len() + 1, FILES_MAX);
}
