//! create, open, open_or_create.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytemuck::Pod;

use super::Index;
use crate::engine::Backend;
use crate::layout::DATA_START;
use crate::options::Options;
use crate::pm::{Entry, MapOptions, Mapping, Medium};
use crate::process::Own;
use crate::table::recovery::{Policy, Recovery};
use crate::table::{Table, read_superblock};
use crate::{Error, Result};

impl<K: Pod, V: Pod> Index<K, V> {
    /// Makes a new file at `path` with an empty index and opens it.
    ///
    /// # Examples
    /// ```
    /// use gphash::{Error, Index, Options};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("index");
    /// let options = Options::new().capacity(10_000);
    /// let index = Index::<u64, u64>::create(&path, &options)?;
    /// let again = Index::<u64, u64>::create(&path, &options);
    /// assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if something stands at `path`, or a journal that another index has left beside it
    /// (`path` and `.journal`); [`Error::InvalidOption`], [`Error::NoSpace`], [`Error::Limit`], [`Error::ReadOnly`], [`Error::Io`], [`Error::Domain`],
    /// [`Error::Gpu`]. Then nothing new is left there.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        let shape = options.shape_for(size_of::<K>(), size_of::<V>())?;
        let metadata = options.metadata_for(&shape)?;
        let backend = Backend::choose(options)?;
        let entry = Entry::at(path, options.faults.clone())?;
        let map_options = MapOptions {
            expected_len: shape.file_len_for(options.capacity),
            ..map_options(options)
        };
        let medium = Mapping::create_at(&entry, DATA_START, &map_options)?;
        let table = Table::create_described(medium, shape, metadata, options.capacity, path)?;
        table.sync()?;
        let recovery = Recovery {
            created: true,
            ..Recovery::default()
        };
        let index = Self::with_table(table, recovery, backend, options)?;
        index.table.medium.publish()?;
        Ok(index)
    }

    /// Opens the index in the file at `path`, and recovers it if it was not cleanly closed. Waits
    /// for up to half a second while another handle has the file open.
    ///
    /// # Examples
    /// ```
    /// use gphash::{Index, Options};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("index");
    /// # Index::<u64, u64>::create(&path, &Options::new())?.close()?;
    /// let index = Index::<u64, u64>::open(&path, &Options::new())?;
    /// assert!(index.recovery().clean);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] for keys or values of another size; [`Error::OptionMismatch`] for another key kind or
    /// other columns; [`Error::InvalidOption`], [`Error::Domain`], and [`Error::Gpu`] if a GPU is asked for by name;
    /// [`Error::WrongKind`], [`Error::Foreign`], [`Error::OlderFormat`], [`Error::NewerFormat`],
    /// [`Error::UnknownFeatures`], [`Error::Truncated`], [`Error::Damaged`], [`Error::JournalMissing`],
    /// [`Error::InUse`], [`Error::NotAFile`], [`Error::ReadOnly`], [`Error::NoSpace`], [`Error::Io`]. The file stays as
    /// it was, but a complete checkpoint in its journal may have come home, as by any opening.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        // The file knows its shape; checking ours finds types that no file can have.
        options.shape_for(size_of::<K>(), size_of::<V>())?;
        let mut backend = Backend::choose(options)?;
        let started = Instant::now();
        let medium = Mapping::open(path, &map_options(options))?;
        tracing::debug!(took = ?started.elapsed(), len = medium.len(), "mapped the file");
        let superblock = read_superblock(&medium, path)?;
        if superblock.is_variable() {
            return Err(Error::WrongKind {
                path: path.to_path_buf(),
                found: "keys and values of variable length",
                expected: "keys and values of fixed size",
            });
        }
        for (what, found, expected) in [
            ("key", superblock.key_size, size_of::<K>()),
            ("value", superblock.value_size, size_of::<V>()),
        ] {
            if found as usize != expected {
                return Err(Error::SizeMismatch {
                    path: path.to_path_buf(),
                    what,
                    found: u64::from(found),
                    expected: expected as u64,
                });
            }
        }
        let shape = superblock.shape(path)?;
        let found = Table::find_metadata(&medium, &shape, path, false)?;
        options.check_metadata(&found.metadata, path)?;
        let (table, recovery) =
            Table::open_with(medium, superblock, path, Policy::INDEX, |table, used| {
                backend.scan(table, used)
            })?;
        tracing::info!(path = %path.display(), ?recovery, "opened");
        Self::with_table(table, recovery, backend, options)
    }

    /// Opens the file at `path` if there is one, else makes it.
    ///
    /// # Examples
    /// ```
    /// use gphash::{Index, Options};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("index");
    /// let index = Index::<u64, u64>::open_or_create(&path, &Options::new())?;
    /// assert!(index.recovery().created);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        match Self::create(path, options) {
            // A journal may be there alone.
            Err(Error::AlreadyExists { path: found }) if found == path || path.exists() => {
                Self::open(path, options)
            }
            made => made,
        }
    }

    fn with_table(
        mut table: Table<Mapping>,
        recovery: Recovery,
        mut backend: Backend,
        options: &Options,
    ) -> Result<Self> {
        table.verify_records(options.verify_checksums.unwrap_or(false));
        table.compact_after(options.idle_compaction, options.sharers);
        let table = Arc::new(table);
        backend.attach(&table, options)?;
        Ok(Self {
            maintainer: Own::new(backend.maintain(&table)),
            backend: Own::new(backend),
            columns: table.metadata().columns,
            table: Own::new(table),
            recovery,
            closed: false,
            types: std::marker::PhantomData,
        })
    }
}

pub(crate) fn map_options(options: &Options) -> MapOptions {
    MapOptions {
        domain: options.domain,
        assume_dax: options.assume_dax,
        faults: options.faults.clone(),
        ..MapOptions::default()
    }
}
