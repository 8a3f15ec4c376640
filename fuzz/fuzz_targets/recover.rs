//! The recovery tool with arbitrary arguments, on files in arbitrary states: what it prints and how
//! it ends.

#![no_main]

mod files;
mod folder;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use arbitrary::Arbitrary;
use clap::Parser;
use files::{Files, Held, Patches};
use gphash::Error;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[derive(Arbitrary, Debug)]
enum Argument {
    Check,
    Json,
    Quiet,
    Help,
    Version,
    DoubleDash,
    Any(Vec<u8>),
    /// A file with that name.
    File(Vec<u8>, Patches),
    /// A file that is as its program left it.
    Whole(u8),
    Bytes(Vec<u8>),
    Dir,
    Missing,
}

/// Keys of the object that `--json` prints.
const KEYS: [&str; 22] = [
    "file",
    "state",
    "format_version",
    "key_size",
    "value_size",
    "checksums",
    "key_kind",
    "columns",
    "version",
    "user_bytes",
    "domain",
    "levels",
    "items",
    "capacity",
    "load_factor",
    "slots_cleared",
    "duplicates_removed",
    "records_reclaimed",
    "resize_resumed",
    "items_lost",
    "keys_lost",
    "elapsed_ms",
];

/// The argument as it stands on the command line, once its file is there.
fn prepare(argument: Argument, nth: usize, folder: &Path) -> OsString {
    let write = |name: PathBuf, files: &Files| {
        files.write(&name);
        name.into_os_string()
    };
    match argument {
        Argument::Check => "--check".into(),
        Argument::Json => "--json".into(),
        Argument::Quiet => "--quiet".into(),
        Argument::Help => "--help".into(),
        Argument::Version => "--version".into(),
        Argument::DoubleDash => "--".into(),
        // Paths elsewhere are none of our business.
        Argument::Any(bytes) => OsString::from_vec(
            bytes
                .into_iter()
                .filter(|&byte| byte != b'/' && byte != 0 && byte != b'.')
                .collect(),
        ),
        Argument::File(name, patches) => {
            let mut name: Vec<u8> = name
                .into_iter()
                .filter(|byte| !b"/.\0".contains(byte))
                .take(100)
                .collect();
            name.extend(nth.to_string().bytes());
            write(folder.join(OsString::from_vec(name)), &patches.files())
        }
        Argument::Whole(case) => {
            let cases = &files::CASES;
            let case = &cases[usize::from(case) % cases.len()];
            write(folder.join(nth.to_string()), &case.files)
        }
        Argument::Bytes(home) => {
            let journal = None;
            write(folder.join(nth.to_string()), &Files { home, journal })
        }
        Argument::Dir => folder.into(),
        Argument::Missing => folder.join("missing").into(),
    }
}

/// Checks an object of `--json`; gives the exit status that it stands for.
fn check_object(line: &str, file: &Path, only_look: bool) -> u8 {
    let object: Value = serde_json::from_str(line).expect("an object");
    let object = object.as_object().expect("an object");
    for key in KEYS {
        assert!(object.contains_key(key), "no {key} in {line}");
    }
    assert_eq!(object["file"], file.to_string_lossy().as_ref());
    let state = object["state"].as_str().expect("a state");
    let failed = matches!(state, "damaged" | "error");
    assert_eq!(object.contains_key("error"), failed, "{line}");
    assert_eq!(object.len(), KEYS.len() + usize::from(failed), "{line}");
    if let (Some(items), Some(capacity)) = (object["items"].as_u64(), object["capacity"].as_u64()) {
        let load = items as f64 / capacity as f64;
        let told = object["load_factor"].as_f64().expect("a number");
        assert!((told - load).abs() < 1e-9, "{line}");
    }
    match state {
        "clean" => 0,
        "recovered" if !only_look => 0,
        "needs_recovery" if only_look => 1,
        "damaged" | "error" => 2,
        _ => panic!("{line}"),
    }
}

fuzz_target!(|arguments: Vec<Argument>| {
    let folder = folder::new();
    // Files that are as their programs left them, and have no other name.
    let wholes: Vec<PathBuf> = (0..8)
        .filter(|&nth| matches!(arguments.get(nth), Some(Argument::Whole(_))))
        .map(|nth| folder.path().join(nth.to_string()))
        .collect();
    let words: Vec<OsString> = std::iter::once("gphash-recover".into())
        .chain(
            arguments
                .into_iter()
                .take(8)
                .enumerate()
                .map(|(nth, argument)| prepare(argument, nth, folder.path())),
        )
        .collect();
    let arguments = match gphash_recover::Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(refused) => {
            let wants_text = !refused.use_stderr();
            assert_eq!(refused.exit_code(), if wants_text { 0 } else { 2 });
            assert!(!refused.render().to_string().is_empty());
            return;
        }
    };
    let before: Vec<Option<Vec<u8>>> = arguments
        .files
        .iter()
        .map(|file| std::fs::read(file).ok())
        .collect();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = gphash_recover::run(&arguments, &mut stdout, &mut stderr);
    let stdout = String::from_utf8(stdout).expect("text");
    let stderr = String::from_utf8(stderr).expect("text");
    assert!(status <= 2);
    assert!(
        arguments.check || status != 1,
        "only a look leaves work to do"
    );
    if arguments.json {
        assert!(stderr.is_empty(), "{stderr}");
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines.len(), arguments.files.len(), "{stdout}");
        let worst = lines
            .iter()
            .zip(&arguments.files)
            .map(|(line, file)| check_object(line, file, arguments.check))
            .max();
        assert_eq!(worst, Some(status), "{stdout}");
    } else if arguments.quiet {
        assert!(stdout.is_empty(), "{stdout}");
        assert_eq!(stderr.is_empty(), status < 2, "{stderr}");
    } else {
        assert!(status == 2 || stderr.is_empty(), "{stderr}");
        assert!(!stdout.is_empty() || !stderr.is_empty());
    }
    if !arguments.check && status == 0 {
        for file in &arguments.files {
            let whole = files::CASES
                .iter()
                .map(|case| (case.holds)(file))
                .filter(|held| !matches!(held, Err(Error::SizeMismatch { .. })));
            let whole: Vec<_> = whole.collect();
            if wholes.contains(file) {
                assert!(
                    whole.iter().any(|held| matches!(held, Ok(Held::All))),
                    "{whole:?}"
                );
            }
            for case in &*files::CASES {
                let opened = (case.open)(file);
                assert!(matches!(
                    opened,
                    Ok(()) | Err(Error::SizeMismatch { .. } | Error::WrongKind { .. })
                ));
            }
        }
    }
    if arguments.check {
        for (file, before) in arguments.files.iter().zip(before) {
            assert!(std::fs::read(file).ok() == before, "a look changed a file");
        }
    }
});
