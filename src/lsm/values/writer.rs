//! Writing a value file, value by value.

use std::sync::Arc;

use super::file::ValueFile;
use super::{ValueRef, checksum, header, name};
use crate::Result;
use crate::lsm::cache::FileCache;
use crate::pm::PmFile;

/// Bytes that go to the file at a time, more or less.
const PIECE_BYTES: usize = 256 << 10;

/// A value file that is being written. Unless it is finished, dropping it removes it.
pub struct ValueWriter {
    file: PmFile,
    /// What is written, for those who refer to it.
    shared: Arc<ValueFile>,
    /// What comes next in the file, from byte `at` on.
    buffer: Vec<u8>,
    at: u64,
    is_finished: bool,
}

impl ValueWriter {
    /// Begins value file `number`.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn create(cache: &Arc<FileCache>, store_id: [u64; 2], number: u64) -> Result<Self> {
        let file = cache.dir().create_file(name(number))?;
        Ok(Self {
            file,
            shared: cache.new_value_file(number),
            buffer: bytemuck::bytes_of(&header(store_id, number)).to_vec(),
            at: 0,
            is_finished: false,
        })
    }

    /// The file, for those who refer to it.
    pub fn file(&self) -> &Arc<ValueFile> {
        &self.shared
    }

    /// How long the file is so far, in bytes.
    pub fn len(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Whether the addition of a value of `len` bytes writes to the file.
    pub fn is_full_for(&self, len: usize) -> bool {
        len.max(self.buffer.len()) >= PIECE_BYTES
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
        if self.is_full_for(value.len()) {
            self.flush()?;
        }
        match value.len() {
            PIECE_BYTES.. => {
                self.file.write(value, self.at)?;
                self.at += value.len() as u64;
            }
            _ => self.buffer.extend_from_slice(value),
        }
        Ok(reference)
    }

    /// Writes what has been added.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn flush(&mut self) -> Result<()> {
        self.file.write(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the file durable, but not its name.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.file.sync()?;
        self.shared.set_len(self.at);
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
