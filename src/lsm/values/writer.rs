//! Writing a value file, value by value.

use std::sync::Arc;

use super::file::ValueFile;
use super::{ValueRef, checksum, header, name};
use crate::Result;
use crate::lsm::cache::{FileCache, with_descriptors};
use crate::lsm::pieces::{PIECE_BYTES, PieceWriter};

/// A value file that is being written. Unless it is finished, dropping it removes it.
pub struct ValueWriter {
    out: PieceWriter,
    /// What is written, for those who refer to it.
    shared: Arc<ValueFile>,
    is_finished: bool,
}

impl ValueWriter {
    /// Begins value file `number`.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn create(cache: &Arc<FileCache>, store_id: [u64; 2], number: u64) -> Result<Self> {
        let file = with_descriptors(|| cache.dir().create_file(name(number)))?;
        Ok(Self {
            out: PieceWriter::new(file, bytemuck::bytes_of(&header(store_id, number))),
            shared: cache.new_value_file(number),
            is_finished: false,
        })
    }

    /// The file, for those who refer to it.
    pub fn file(&self) -> &Arc<ValueFile> {
        &self.shared
    }

    /// How long the file is so far, in bytes.
    pub fn len(&self) -> u64 {
        self.out.len()
    }

    /// Whether the addition of a value of `len` bytes writes to the file.
    pub fn is_full_for(&self, len: usize) -> bool {
        len >= PIECE_BYTES || self.out.is_full()
    }

    /// Adds a value, which can be read after the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn add(&mut self, value: &[u8]) -> Result<ValueRef> {
        let reference = ValueRef {
            file: self.shared.number(),
            offset: self.len(),
            len: value.len(),
            checksum: checksum(value),
        };
        if value.len() >= PIECE_BYTES {
            self.out.write(value)?;
            return Ok(reference);
        }
        if self.out.is_full() {
            self.out.flush()?;
        }
        self.out.buffer.extend_from_slice(value);
        Ok(reference)
    }

    /// Writes what has been added.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    /// Makes the file durable, but not its name.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn finish(mut self) -> Result<()> {
        self.out.sync()?;
        self.shared.set_len(self.len());
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for ValueWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.set_obsolete();
        }
    }
}
