//! What the file of an index says of itself: key kind, columns, version, bytes of the user.

use std::fs;

use gphash::{
    Column, ColumnRole, DType, Domain, Engine, Error, Index, KeyKind, Options, Repair, ReportState,
    recover,
};
use tempfile::TempDir;

type Row = [f32; 32];

fn options() -> Options {
    Options::new().engine(Engine::Cpu)
}

fn columns() -> [Column; 2] {
    [
        Column::new("weight", DType::F32, [4, 4], 0),
        Column::new("momentum", DType::F32, [16], 64).with_role(ColumnRole::OptimizerState),
    ]
}

/// A directory on a disk, where files are in the domain `Checkpointed`, and one in memory.
fn dirs() -> [(TempDir, Domain); 2] {
    let memory = TempDir::new_in("/dev/shm").unwrap();
    [
        (TempDir::new().unwrap(), Domain::Checkpointed),
        (memory, Domain::Shared),
    ]
}

#[test]
fn metadata_outlives_close_and_open() {
    for (dir, domain) in dirs() {
        let path = dir.path().join("index");
        let made = options()
            .domain(domain)
            .key_kind(KeyKind::Unsigned)
            .columns(columns());
        let index = Index::<u64, Row>::create(&path, &made).unwrap();
        let metadata = index.metadata();
        assert_eq!(
            (metadata.key_kind, metadata.version),
            (KeyKind::Unsigned, 1)
        );
        assert_eq!(
            (&metadata.columns[..], &metadata.user[..]),
            (&columns()[..], &[][..])
        );
        index.set_user_metadata(b"epoch 1").unwrap();
        assert_eq!(index.metadata().user, b"epoch 1");
        index.sync().unwrap();
        index.sync().unwrap();
        assert_eq!(index.metadata().version, 3);
        // Nothing has changed since.
        index.close().unwrap();
        let index = Index::<u64, Row>::open(&path, &options().domain(domain)).unwrap();
        assert_eq!(index.metadata().version, 3);
        index.insert_one(&1, &[1.0; 32]).unwrap();
        assert_eq!(index.metadata().version, 3);
        drop(index);
        let index = Index::<u64, Row>::open(&path, &made).unwrap();
        let found = index.metadata();
        assert_eq!((found.version, &found.user[..]), (4, &b"epoch 1"[..]));
        assert_eq!(found.columns, columns());
        let long = index.set_user_metadata(&[7; 2049]);
        assert!(
            matches!(
                long,
                Err(Error::TooLong {
                    found: 2049,
                    limit: 2048,
                    ..
                })
            ),
            "{long:?}"
        );
        index.set_user_metadata(&[7; 2048]).unwrap();
        index.close().unwrap();
        let report = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(report.state, ReportState::Clean);
        assert_eq!(
            (report.metadata.version, &report.metadata.user[..]),
            (5, &[7; 2048][..])
        );
        assert_eq!(report.metadata.columns, columns());
    }
}

#[test]
fn metadata_of_another_kind_is_refused_unchanged() {
    for (dir, domain) in dirs() {
        let path = dir.path().join("index");
        let made = options()
            .domain(domain)
            .key_kind(KeyKind::Signed)
            .columns(columns());
        Index::<u64, Row>::create(&path, &made)
            .unwrap()
            .close()
            .unwrap();
        let before = fs::read(&path).unwrap();
        for (option, other) in [
            ("key_kind", made.clone().key_kind(KeyKind::Unsigned)),
            ("columns", made.clone().columns([])),
            ("columns", made.clone().columns([columns()[0].clone()])),
        ] {
            let refused = Index::<u64, Row>::open(&path, &other);
            match refused {
                Err(Error::OptionMismatch { option: found, .. }) => assert_eq!(found, option),
                other => panic!("{other:?}"),
            }
            assert!(fs::read(&path).unwrap() == before, "{option}");
        }
    }
}

#[test]
fn metadata_that_no_index_can_have_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("index");
    let refused = |options: Options, option: &str, expected: &str| {
        match Index::<u64, Row>::create(&path, &options) {
            Err(error @ Error::InvalidOption { .. }) => {
                let text = error.to_string();
                assert!(text.contains(option) && text.contains(expected), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert!(!path.exists());
    };
    let end = Column::new("x", DType::F32, [16], 68);
    refused(
        options().columns([end]),
        "columns",
        "within the 128 bytes of a value",
    );
    let [weight, _] = columns();
    let state = Column::new("m", DType::F16, [4], 120).with_role(ColumnRole::OptimizerState);
    let wide = Column::new("w", DType::F32, [24], 0);
    refused(
        options().columns([wide, state.clone()]),
        "columns",
        "8 bytes of padding before column \"m\"",
    );
    Index::<u64, Row>::create(&path, &options().columns([weight, state])).unwrap();
    let refused = Index::<[u8; 24], Row>::create(
        dir.path().join("wide"),
        &options().key_kind(KeyKind::Signed),
    );
    assert!(matches!(
        refused,
        Err(Error::InvalidOption {
            option: "key_kind",
            ..
        })
    ));
}
