//! Checksums of values: both engines write the same ones, and compare them if they are told to.

use std::fs;

use gphash::{Error, Index, Repair, ReportState, recover};

use crate::{folder, options};

type Value = [u64; 3];

/// Keys whose batch is served by the caller's thread, and by others.
const KEYS: [u64; 2] = [200, 20_000];

fn value(key: u64, version: u64) -> Value {
    [key, version << 40 | 0xC0FFEE, !key]
}

#[test]
fn checksums_are_right_after_every_verb() {
    for keys in KEYS {
        let folder = folder();
        let path = folder.path().join("f");
        let options = options().capacity(100).checksums(true);
        let index = Index::<u64, Value>::create(&path, &options).unwrap();
        let keys: Vec<u64> = (0..keys - 1).chain([u64::MAX]).collect();
        let values = |version| {
            keys.iter()
                .map(|&key| value(key, version))
                .collect::<Vec<_>>()
        };
        index.insert(&keys, &values(1)).unwrap();
        index.upsert(&keys[100..], &values(2)[100..]).unwrap();
        index.update(&keys[..150], &values(3)[..150]).unwrap();
        index.remove(&keys[120..140]).unwrap();
        index.insert(&keys[110..130], &values(4)[110..130]).unwrap();
        index.close().unwrap();
        let report = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(
            (report.state, report.checksums),
            (ReportState::Clean, true),
            "{report:?}"
        );
        assert_eq!(report.recovery.items, keys.len() as u64 - 10);
    }
}

#[test]
fn checksums_are_compared_if_lookups_are_told_to() {
    for keys in KEYS {
        let folder = folder();
        let path = folder.path().join("f");
        let options = options().capacity(keys).checksums(true);
        let index = Index::<u64, Value>::create(&path, &options).unwrap();
        let keys: Vec<u64> = (1..=keys).collect();
        let values: Vec<Value> = keys.iter().map(|&key| value(key, 1)).collect();
        index.insert(&keys, &values).unwrap();
        index.close().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let stored = bytemuck::bytes_of(&values[77]);
        let at = bytes.windows(24).position(|part| part == stored).unwrap();
        bytes[at + 20] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let mut found = values.clone();
        for verify in [false, true] {
            let options = options.clone().verify_checksums(verify);
            let index = Index::<u64, Value>::open(&path, &options).unwrap();
            match index.get(&keys, &mut found) {
                Ok(answers) => {
                    assert!(!verify && answers.count_ones(..) == keys.len());
                    assert!(found[77] != values[77] && found[78] == values[78]);
                }
                Err(Error::Damaged { at: told, .. }) => assert!(verify && told == at as u64),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(index.get_one(&keys[78]).unwrap(), Some(values[78]));
            assert_eq!(index.get_one(&keys[77]).is_err(), verify);
        }
    }
}
