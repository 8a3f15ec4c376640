use super::*;

const FORMAT: FileFormat = FileFormat {
    magic: *b"GPHTEST\n",
    version: 3,
};

#[test]
fn magic_comes_before_version() {
    let path = Path::new("f");
    let preamble = FORMAT.preamble(0, [1, 2]);
    let bytes = bytemuck::bytes_of(&preamble);
    FORMAT.check(bytes, path).unwrap();
    for len in 0..8 {
        let cut = FORMAT.check(&bytes[..len], path);
        assert!(matches!(cut, Err(Error::Foreign { .. })), "{len} bytes");
    }
    let mut newer = bytes.to_vec();
    newer[8] = 4;
    // Without its last byte the version is not known.
    FORMAT.check(&newer[..11], path).unwrap();
    let refused = FORMAT.check(&newer, path);
    assert!(
        matches!(
            refused,
            Err(Error::NewerFormat {
                found: 4,
                supported: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    newer[0] ^= 1;
    let refused = FORMAT.check(&newer, path);
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
}

#[test]
fn version_that_the_checksum_denies_is_damage() {
    let path = Path::new("f");
    let mut bytes = bytemuck::bytes_of(&FORMAT.preamble(0, [1, 2])).to_vec();
    bytes.extend([0; 8]);
    seal(&mut bytes);
    for bit in 2..32 {
        let mut damaged = bytes.clone();
        damaged[8 + bit / 8] ^= 1 << (bit % 8);
        let refused = FORMAT.check(&damaged, path);
        let is_told = matches!(refused, Err(Error::Damaged { at: 8, .. }));
        assert!(is_told, "bit {bit}: {refused:?}");
        seal(&mut damaged);
        let refused = FORMAT.check(&damaged, path);
        let is_told = match bit {
            ..16 => matches!(refused, Err(Error::NewerFormat { .. })),
            // No build will write that.
            _ => matches!(refused, Err(Error::Damaged { at: 8, .. })),
        };
        assert!(is_told, "bit {bit}: {refused:?}");
    }
}

#[test]
fn seal_replaces_the_last_eight_bytes() {
    let mut bytes = [7; 24];
    seal(&mut bytes);
    assert_eq!(bytes[..16], [7; 16]);
    assert_eq!(bytes[16..], xxh3_64(&[7; 16]).to_le_bytes());
    assert_eq!(bytes[16..], checksum(&bytes).to_le_bytes());
}
