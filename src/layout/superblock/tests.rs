use super::*;

fn sealed(generation: u64) -> Superblock {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let mut superblock = Superblock::new(&shape, [1, 2], 3);
    superblock.generation = generation;
    superblock.top_level = 1;
    superblock.level_directory[0] = DATA_START;
    superblock.level_directory[1] = DATA_START + PAGE;
    superblock.file_len = DATA_START + 2 * PAGE;
    superblock.seal();
    superblock
}

fn head(copies: [Option<Superblock>; 2]) -> Vec<u8> {
    let mut head = vec![0; 2 * to_usize(PAGE)];
    for (at, copy) in SUPERBLOCKS.into_iter().zip(copies) {
        if let Some(copy) = copy {
            head[to_usize(at)..][..size_of::<Superblock>()]
                .copy_from_slice(bytemuck::bytes_of(&copy));
        }
    }
    head
}

fn parse(head: &[u8]) -> Result<Superblock> {
    Superblock::parse(head, 1 << 30, Path::new("x"))
}

#[test]
fn superblock_in_force_is_the_newer_valid_copy() {
    let both = head([Some(sealed(8)), Some(sealed(7))]);
    assert_eq!(parse(&both).unwrap().generation, 8);
    for byte in 0..size_of::<Superblock>() {
        let mut torn = both.clone();
        torn[byte] ^= 0x40;
        assert_eq!(parse(&torn).unwrap().generation, 7, "byte {byte}");
    }
}

#[test]
fn superblock_is_clean_only_beside_its_predecessor() {
    let clean = |generation| {
        let mut superblock = sealed(generation);
        superblock.set_flag(Flags::CLEAN, true);
        superblock.seal();
        superblock
    };
    let is_clean = |copies| parse(&head(copies)).unwrap().is_clean();
    assert!(is_clean([Some(clean(8)), Some(sealed(7))]));
    assert!(is_clean([Some(clean(8)), Some(clean(7))]));
    assert!(!is_clean([Some(clean(8)), Some(sealed(9))]));
    assert!(!is_clean([Some(clean(8)), Some(sealed(5))]));
    assert!(!is_clean([Some(clean(8)), None]));
    let mut opened = sealed(9);
    opened.items ^= 1;
    assert!(!is_clean([Some(clean(8)), Some(opened)]));
}

#[test]
fn superblock_recovers_the_extent_of_a_lost_copy() {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let older = sealed(8);
    let with = |entry: Option<ExtentEntry>, other: Option<Superblock>| {
        let mut head = head([Some(older), other]);
        head.resize(usize::try_from(DATA_START).unwrap(), 0);
        if let Some(entry) = entry {
            let at = usize::try_from(older.entry_offset(older.extent_count)).unwrap();
            head[at..at + 32].copy_from_slice(bytemuck::bytes_of(&entry));
        }
        parse(&head).unwrap()
    };
    let (end, len) = (older.file_len, shape.level_len(2));
    let level = ExtentEntry::new(ExtentKind::Level, 2, end, len);
    let grown = with(Some(level), None);
    assert_eq!((grown.top_level, grown.extent_count), (2, 1));
    assert_eq!((grown.level_directory[2], grown.file_len), (end, end + len));
    let arena = ExtentEntry::new(ExtentKind::Arena, 0, end, 8 * PAGE);
    let grown = with(Some(arena), None);
    assert_eq!((grown.extent_count, grown.file_len), (1, end + 8 * PAGE));
    // Nothing was lost, or what stands there is none that could have come next.
    assert_eq!(with(None, None), older);
    assert_eq!(with(Some(level), Some(sealed(7))), older);
    for (kind, class, offset, len) in [
        (ExtentKind::Level, 3, end, len),
        (ExtentKind::Level, 2, end + PAGE, len),
        (ExtentKind::Level, 2, end, len + PAGE),
        (ExtentKind::Arena, 1, end, PAGE),
        (ExtentKind::Arena, 0, end, 100),
        (ExtentKind::Arena, 0, end, 2 << 30),
        (ExtentKind::Arena, 0, end, u64::MAX),
        (ExtentKind::Arena, 0, DATA_START, PAGE),
    ] {
        let entry = ExtentEntry::new(kind, class, offset, len);
        assert_eq!(with(Some(entry), None), older, "{entry:?}");
    }
}

#[test]
fn superblock_recovers_an_arena_in_free_space() {
    let mut older = sealed(8);
    (older.extent_table, older.features) = (1, Features::FREE_EXTENTS.bits());
    (older.extent_count, older.file_len) = (1, older.file_len + 8 * PAGE);
    older.seal();
    let parsed = |entries: &[ExtentEntry]| {
        let mut head = head([Some(older), None]);
        head.resize(usize::try_from(DATA_START).unwrap(), 0);
        for (index, entry) in (0..).zip(entries) {
            let at = usize::try_from(older.entry_offset(index)).unwrap();
            head[at..at + 32].copy_from_slice(bytemuck::bytes_of(entry));
        }
        parse(&head).unwrap().extent_count
    };
    let offset = older.file_len - 8 * PAGE;
    let [free, arena] = [ExtentKind::Free, ExtentKind::Arena]
        .map(|kind| ExtentEntry::new(kind, 0, offset, 8 * PAGE));
    assert_eq!(parsed(&[free, arena]), 2);
    assert_eq!(parsed(&[arena, arena]), 1);
    assert_eq!(parsed(&[arena, free]), 1);
}

#[test]
fn superblock_with_unknown_features_is_refused() {
    for (bits, names) in [
        (2, "SHRINK"),
        (3, "SHRINK"),
        (1 << 63 | 2 | 16, "SHRINK, bit 4, bit 63"),
    ] {
        let mut superblock = sealed(8);
        superblock.features = bits;
        // What means nothing without the feature is not read.
        superblock.shrink_level = 2;
        superblock.key_size = 7;
        superblock.seal();
        match parse(&head([Some(superblock), Some(sealed(7))])) {
            Err(Error::UnknownFeatures { found, .. }) => assert_eq!(found, names),
            parsed => panic!("{parsed:?}"),
        }
    }
    let mut superblock = sealed(8);
    superblock.features = Features::FREE_EXTENTS.bits();
    superblock.seal();
    assert_eq!(
        parse(&head([Some(superblock), Some(sealed(7))])).unwrap(),
        superblock
    );
}

#[test]
fn superblock_errors_name_what_is_wrong() {
    assert!(matches!(parse(&[]), Err(Error::Foreign { .. })));
    assert!(matches!(parse(b"hello world"), Err(Error::Foreign { .. })));
    let mut newer = sealed(1);
    newer.version = 4;
    newer.seal();
    assert!(matches!(
        parse(&head([Some(newer), None])),
        Err(Error::NewerFormat { found: 4, .. })
    ));
    newer.checksum ^= 1;
    assert!(matches!(
        parse(&head([Some(newer), None])),
        Err(Error::NewerFormat { found: 4, .. })
    ));
    let mut older = sealed(1);
    older.version = 1;
    older.seal();
    assert!(matches!(
        parse(&head([Some(older), None])),
        Err(Error::OlderFormat { found: 1, .. })
    ));
    let mut damaged = sealed(1);
    damaged.checksum ^= 1;
    assert!(matches!(
        parse(&head([Some(damaged), None])),
        Err(Error::Damaged { .. })
    ));
    assert!(matches!(
        Superblock::parse(&head([Some(sealed(1)), None]), DATA_START, Path::new("x")),
        Err(Error::Truncated { .. })
    ));
}

#[test]
fn superblock_with_sealed_nonsense_is_damaged() {
    let spoil: [fn(&mut Superblock); 13] = [
        |s| s.key_size = 7,
        |s| s.slots = 0,
        |s| s.locations = 1 << 31,
        |s| s.top_level = 60,
        |s| s.bottom_level = 2,
        |s| s.level_directory[1] = u64::MAX - 4095,
        |s| s.extent_count = u32::MAX,
        |s| s.hash_function = 9,
        |s| s.generation = u64::MAX,
        |s| s.checkpoints = u64::MAX,
        |s| s.extent_table = 2,
        |s| s.shrink_level = 2,
        |s| s.shrink_level = u32::MAX,
    ];
    for spoil in spoil {
        let mut superblock = sealed(1);
        spoil(&mut superblock);
        superblock.seal();
        let parsed = parse(&head([Some(superblock), None]));
        assert!(matches!(parsed, Err(Error::Damaged { .. })), "{parsed:?}");
    }
}
