use super::*;

fn metadata(version: u64) -> Metadata {
    Metadata {
        key_kind: KeyKind::Signed,
        columns: vec![
            Column::new("weight", DType::BF16, [4, 8], 0),
            Column::new("größe", DType::U64, [], 64).with_role(ColumnRole::Other),
            Column::new("m", DType::F32, [8], 128).with_role(ColumnRole::OptimizerState),
        ],
        version,
        user: b"epoch 3".to_vec(),
    }
}

#[test]
fn metadata_comes_back_from_its_page() {
    for written in [metadata(7), Metadata::default()] {
        let page = MetadataPage::new(&written, 5);
        assert!(page.is_whole());
        assert_eq!(page.copy(), 1);
        assert_eq!(page.decode(8, 160), Ok(written));
    }
    let full = Metadata {
        columns: (0..COLUMNS_MAX)
            .map(|nth| Column::new(format!("{nth:031}"), DType::U8, [1; 4], nth))
            .collect(),
        user: vec![0xA5; USER_METADATA_MAX],
        ..metadata(1)
    };
    assert_eq!(MetadataPage::new(&full, 1).decode(8, 16), Ok(full));
}

#[test]
fn metadata_with_any_bit_flipped_is_not_whole() {
    let [old, new] = [6, 7].map(|number| MetadataPage::new(&metadata(number), number));
    assert_eq!(MetadataPage::find(&[old, new]), Some((&new, true)));
    for bit in 0..8 * size_of::<MetadataPage>() {
        let mut copies = [old, new];
        bytemuck::bytes_of_mut(&mut copies[1])[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            MetadataPage::find(&copies),
            Some((&old, false)),
            "bit {bit}"
        );
    }
    let mut copies = [old, new];
    copies.iter_mut().for_each(|copy| copy.user[2000] ^= 1);
    assert_eq!(MetadataPage::find(&copies), None);
    assert_eq!(MetadataPage::find(&[MetadataPage::zeroed(); 2]), None);
}

#[test]
fn metadata_that_is_torn_anywhere_leaves_the_other_copy() {
    let pages: [MetadataPage; 3] =
        [6, 7, 8].map(|number| MetadataPage::new(&metadata(number), number));
    for cut in (0..size_of::<MetadataPage>()).step_by(8) {
        let mut torn = pages[0];
        bytemuck::bytes_of_mut(&mut torn)[..cut]
            .copy_from_slice(&bytemuck::bytes_of(&pages[2])[..cut]);
        let copies = [torn, pages[1]];
        let (found, _) = MetadataPage::find(&copies).unwrap();
        assert_eq!(found.version, 7, "cut at byte {cut}");
    }
}

#[test]
fn metadata_with_sealed_nonsense_is_refused() {
    type Spoil = fn(&mut MetadataPage);
    let spoil: [(&str, Spoil); 17] = [
        ("generation", |page| page.generation = u64::MAX),
        ("version", |page| page.version = u64::MAX),
        ("key kind", |page| page.key_kind = 4),
        ("column count", |page| page.column_count = u32::MAX),
        ("user bytes", |page| page.user_len = 2049),
        ("no name", |page| page.columns[1].name = [0; 32]),
        ("a long name", |page| page.columns[1].name = [b'x'; 32]),
        ("no UTF-8", |page| page.columns[1].name[0] = 0xFF),
        ("equal names", |page| {
            page.columns[1].name = page.columns[0].name
        }),
        ("type", |page| page.columns[1].dtype = 14),
        ("role", |page| page.columns[1].role = 0),
        ("rank", |page| page.columns[1].rank = 5),
        ("a dimension of 0", |page| page.columns[0].dims[1] = 0),
        ("dimensions that wrap", |page| {
            page.columns[0].dims = [u32::MAX; 4]
        }),
        ("length", |page| page.columns[1].len = 9),
        ("overlapping", |page| page.columns[1].offset = 63),
        ("beyond the end", |page| page.columns[2].offset = u32::MAX),
    ];
    for (name, spoil) in spoil {
        let mut page = MetadataPage::new(&metadata(1), 1);
        spoil(&mut page);
        page.seal();
        assert!(page.decode(8, 160).is_err(), "{name}");
    }
    let page = MetadataPage::new(&metadata(1), 1);
    assert!(page.decode(24, 160).is_err(), "an integer of 24 bytes");
    assert!(page.decode(8, 159).is_err(), "a shorter value");
}
