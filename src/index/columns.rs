//! The columns of an index's values, and what else the file says of itself.

use bytemuck::{Pod, cast_slice};
use fixedbitset::FixedBitSet;

use super::Index;
use crate::layout::{Column, Metadata};
use crate::table::record::ValuePart;
use crate::{Error, Result};

impl<K: Pod, V: Pod> Index<K, V> {
    /// Copies one column of the values of the keys that are present. It reads no other bytes of them, unless lookups
    /// compare [checksums](crate::Options::verify_checksums), which are of whole values. Bit *i* of the answer says
    /// that key *i* is. Its bytes are those of `out` from *i* × *n* on, where *n* is the [length](crate::Column::len)
    /// of the column; they are untouched if the key is absent.
    ///
    /// `column` is the name of one of the [columns](crate::Options::columns) that the index was made with. Beside
    /// running changes each column is read whole, as by [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// use gphash::{Column, ColumnRole, DType, Index, Options};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("index");
    /// let options = Options::new().columns([
    ///     Column::new("weight", DType::F32, [2], 0),
    ///     Column::new("momentum", DType::F32, [2], 8).with_role(ColumnRole::OptimizerState),
    /// ]);
    /// let index = Index::<u64, [f32; 4]>::create(&path, &options)?;
    /// index.insert_one(&7, &[0.5, 1.5, 0.0, 0.25])?;
    /// let mut momentum = [[-1.0f32; 2]; 2];
    /// let found = index.get_column("momentum", &[7, 8], bytemuck::cast_slice_mut(&mut momentum))?;
    /// assert_eq!(found.ones().collect::<Vec<_>>(), [0]);
    /// assert_eq!(momentum, [[0.0, 0.25], [-1.0, -1.0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no such column, or `out` has not *n* bytes a key, before anything
    /// is done. Others as those of [`get`](Self::get).
    pub fn get_column(&self, column: &str, keys: &[K], out: &mut [u8]) -> Result<FixedBitSet> {
        let part = self.part_of(column)?;
        let size = part.len as usize;
        if keys.len().checked_mul(size) != Some(out.len()) {
            return Err(Error::InvalidOption {
                option: "out",
                found: format!("{} bytes for {} keys", out.len(), keys.len()),
                expected: format!("{size} bytes a key, those of the column {column:?}"),
            });
        }
        self.backend()?
            .get(&self.table, part, cast_slice(keys), out)
    }

    /// The bytes of a column in each value.
    fn part_of(&self, name: &str) -> Result<ValuePart> {
        let column = self.columns.iter().find(|column| column.name() == name);
        let part = column.and_then(|column| {
            Some(ValuePart {
                offset: u32::try_from(column.offset()).ok()?,
                len: u32::try_from(column.len()?).ok()?,
            })
        });
        part.ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(Column::name).collect();
            Error::InvalidOption {
                option: "column",
                found: format!("{name:?}"),
                expected: match names.is_empty() {
                    true => "an index that was made with columns; this one has none".into(),
                    false => format!("one of {}", names.join(", ")),
                },
            }
        })
    }

    /// What the file says of itself: kind of the keys, columns of a value, version, bytes of the user.
    ///
    /// The **version** is the number of the state that was published last. A new index has version 1. Each
    /// successful [`sync`](Self::sync) publishes the next one, and so does a clean close after changes. A sync
    /// that fails uses its number up. A version that was reported is never reported for another published
    /// state, also after a crash:
    ///
    /// - In the domain `Checkpointed` a crash leaves the state of a version, exactly: that of the last
    ///   `sync`, or of one that was under way.
    /// - In the other domains a crash leaves such a state with what was changed since.
    /// - Opening a file that was not cleanly closed publishes what it has found as a version of its own,
    ///   unless it can tell that it is the state of the last one, as mostly in `Checkpointed`.
    ///
    /// What was changed since the last version has none yet. With threads at work, a version covers every
    /// batch that returned before the `sync` was called, and may cover later ones.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// assert_eq!(index.metadata().version, 1);
    /// index.sync()?;
    /// assert_eq!(index.metadata().version, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metadata(&self) -> Metadata {
        self.table.metadata()
    }

    /// Replaces the bytes of the user in the file, at most 2,048; they begin empty. They mean what the
    /// program wants: a model's name, a position in a stream of updates. Calls at the same time take effect
    /// one after the other, and [`metadata`](Self::metadata) gives the new bytes from then on.
    ///
    /// They are as durable as a batch: in the domain `Checkpointed` with the next [`sync`](Self::sync) or
    /// close, in one checkpoint with the items; in the others when the call returns. A crash leaves the
    /// old bytes or the new ones, whole.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// index.set_user_metadata(b"offset 17")?;
    /// index.sync()?; // both are durable now
    /// assert_eq!(index.metadata().user, b"offset 17");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`] and [`Error::Forked`]; nothing was done.
    pub fn set_user_metadata(&self, user: &[u8]) -> Result<()> {
        self.table.opener().check(self.table.path())?;
        self.table.set_user_metadata(user)
    }
}
