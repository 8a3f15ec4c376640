//! Metadata blocks with sealed nonsense.

use gphash::layout::{METADATA, MetadataPage};
use gphash::{Column, DType, Index};

use crate::file::{Hostile, folder, options};

/// A closed file of values of 8 bytes with two columns.
fn with_columns() -> Hostile {
    let folder = folder();
    let path = folder.path().join("index");
    let columns = [
        Column::new("a", DType::U16, [2], 0),
        Column::new("b", DType::U32, [], 4),
    ];
    let index = Index::<u64, u64>::create(&path, &options().columns(columns)).unwrap();
    index.insert(&[1, 2], &[3, 4]).unwrap();
    index.set_user_metadata(b"mine").unwrap();
    index.close().unwrap();
    Hostile::of(std::fs::read(&path).unwrap())
}

/// Changes both copies.
fn spoil(file: &mut Hostile, spoil: impl Fn(&mut MetadataPage)) {
    for at in METADATA {
        let at = usize::try_from(at).unwrap();
        let bytes = &mut file.bytes[at..][..size_of::<MetadataPage>()];
        let mut page: MetadataPage = bytemuck::pod_read_unaligned(bytes);
        spoil(&mut page);
        bytes.copy_from_slice(bytemuck::bytes_of(&page));
    }
}

#[test]
fn metadata_with_nonsense_is_refused() {
    type Spoil = fn(&mut MetadataPage);
    let attacks: [(&str, Spoil); 14] = [
        ("generation", |page| page.generation |= 1 << 63),
        ("version", |page| page.version = u64::MAX),
        ("key kind", |page| page.key_kind = 0),
        ("17 columns", |page| page.column_count = 17),
        ("many columns", |page| page.column_count = u32::MAX),
        ("user bytes", |page| page.user_len = u32::MAX),
        ("rank 5", |page| page.columns[0].rank = 5),
        ("rank 255", |page| page.columns[0].rank = 255),
        ("columns that overlap", |page| page.columns[1].offset = 3),
        ("a name that is not UTF-8", |page| {
            page.columns[0].name[0] = 0xC0
        }),
        ("a name without an end", |page| {
            page.columns[0].name = [b'a'; 32]
        }),
        ("a length that wraps", |page| {
            page.columns[0].dims = [u32::MAX, 1, 1, 1]
        }),
        ("an offset that wraps", |page| {
            page.columns[1].offset = u32::MAX
        }),
        ("a type", |page| page.columns[0].dtype = 77),
    ];
    for (name, attack) in attacks {
        for unclean in [false, true] {
            let mut file = with_columns();
            spoil(&mut file, |page| {
                attack(page);
                page.seal();
            });
            let file = if unclean { file.unclean() } else { file };
            file.must_be_refused(&format!("metadata with {name}"));
        }
    }
}

#[test]
fn metadata_without_a_whole_copy_is_refused() {
    let mut file = with_columns();
    spoil(&mut file, |page| page.user[0] ^= 1);
    file.must_be_refused("no whole copy of the metadata");
}
