use super::*;

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
