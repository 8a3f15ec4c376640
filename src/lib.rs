//! A persistent hash index that lives in one file and is used in place by GPU kernels and by CPU
//! threads.
//!
//! [`Index`] is the whole of it for most programs: create or open a file, run batches of
//! [`insert`](Index::insert), [`upsert`](Index::upsert), [`update`](Index::update),
//! [`get`](Index::get), [`contains`](Index::contains) and [`remove`](Index::remove) on it from any
//! thread, [`close`](Index::close) it. Keys are [`Pod`](bytemuck::Pod) of 8 to 128 bytes in
//! multiples of 8, values of 1 byte to 64 KiB; the answers of a batch are one bit a key.
//!
//! ```
//! use gphash::{Index, Options};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("counters");
//! let index = Index::<[u8; 16], u64>::open_or_create(&path, &Options::new())?;
//! index.insert_one(b"sixteen bytes :)", &1)?;
//! assert_eq!(index.get_one(b"sixteen bytes :)")?, Some(1));
//! index.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **[`Options`]** say how a file is made and opened: how many items to make room for, which
//!   [`Engine`] runs the batches, which [`Domain`] the file must have.
//! - **[`Domain`]** says when a change is durable, and which crash it survives: when a call returns (persistent memory;
//!   shared memory, for the death of a process), or when [`sync`](Index::sync) returns (any other file).
//! - **[`Engine`]** is who executes: threads of the CPU, or a GPU with the cargo feature `cuda`. Both
//!   use the same file and give the same answers.
//! - **Crashes** need no call: opening a file recovers it, and [`Index::recovery`] tells what was
//!   found. [`recover`] does the same without knowing the types of keys and values; it is what the
//!   tool `gphash-recover` calls.
//! - **[`Stats`]** say how full the table is, which engine and domain it has, and how many lines of
//!   the file its operations touched.
//! - **[`Error`]** is the one error type. Nothing panics on bad input. A file that is shortened while it
//!   is open ends the process with `SIGBUS`.
//!
//! [`layout`] says what the bytes of the file mean, for tools that read files. The directory `docs` of the
//! repository specifies the file and describes the architecture.
//!
//! # Stability
//!
//! Until version 1.0 the API may change with any minor version, but not with a patch version. Items that are
//! hidden in this documentation are for tests, and no part of the API.
//!
//! The file format has a version of its own, [`layout::superblock::FORMAT_VERSION`]. It may change with any
//! minor version of the crate before 1.0. A file of another format version is refused, unchanged, with
//! [`Error::OlderFormat`] or [`Error::NewerFormat`].

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "gphash is for targets with 64-bit pointers and little-endian numbers, as its file is"
);

#[cfg(feature = "cuda")]
pub mod device;
mod domain;
mod engine;
mod error;
mod index;
pub mod layout;
mod lsm;
mod options;
#[doc(hidden)]
pub mod pm;
pub(crate) use gphash_binary_column as binary_column;
pub(crate) use gphash_column as column;
pub(crate) use gphash_hot_cache as hot_cache;
pub(crate) use gphash_layout::width;
pub(crate) use gphash_metrics as metrics;
pub(crate) use gphash_pool as pool;
pub(crate) use gphash_sync as sync;
mod process;
pub mod store;
mod table;

#[cfg(feature = "cuda")]
pub use device::answer_words;
pub use domain::Domain;
pub use error::{Error, ParseOptionError, Result};
#[cfg(feature = "cuda")]
pub(crate) use gphash_kernels::gpu;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use gphash_kernels::gpu::budget::Quota;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use gphash_kernels::gpu::sort::{SortedVersions, VersionBatch, VersionSorter};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use gphash_kernels::gpu::write_trace::{Note, WriteTrace};
pub use index::{
    Index, Iter, Progress, Recovery, Repair, Report, ReportState, Stats, compact, recover,
};
pub use layout::{Column, ColumnRole, DType, KeyKind, Metadata};
pub use options::{AddressOrder, CachePolicy, Engine, Options};
// Crates whose types are in the signatures of this one.
pub use {bytemuck, fixedbitset};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
