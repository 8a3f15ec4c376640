use super::*;

/// What may not be read is no read-only file, whatever was to be done with it.
#[test]
fn permission_error_tells_reading_from_writing() {
    let denied = |code, may_be_read| {
        let source = io::Error::from_raw_os_error(code);
        Error::of_io(Path::new("f"), "open", source, || may_be_read).to_string()
    };
    assert!(denied(libc::EACCES, false).starts_with("f: cannot open: "));
    assert!(denied(libc::EACCES, true).starts_with("f: may not be written: "));
    assert!(denied(libc::EROFS, false).starts_with("f: may not be written: "));
    // A file that is not there is to be made.
    let dir = tempfile::tempdir().unwrap();
    let source = io::Error::from_raw_os_error(libc::EACCES);
    let error = Error::io(&dir.path().join("f"), "create", source);
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
}

#[test]
fn no_space_error_names_what_needs_room() {
    let full = || io::Error::from_raw_os_error(libc::ENOSPC);
    let text = |needed| {
        let (path, source) = ("f".into(), full().into());
        Error::NoSpace {
            path,
            needed,
            source,
        }
        .to_string()
    };
    assert!(text(4096).starts_with("f: no room for 4096 more bytes: "));
    assert!(text(1).starts_with("f: no room for one more byte: "));
    let unknown = Error::io(Path::new("f"), "create", full()).to_string();
    assert!(unknown.starts_with("f: no room on the disk: "), "{unknown}");
}
