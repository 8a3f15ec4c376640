//! A file that is written from its beginning to its end, in pieces.

use crate::Result;
use crate::pm::PmFile;

/// Bytes that go to the file at a time, more or less.
pub const PIECE_BYTES: usize = 256 << 10;

/// See the [module](self).
pub struct PieceWriter {
    pub file: PmFile,
    /// What comes next in the file, from byte `at` on.
    pub buffer: Vec<u8>,
    at: u64,
}

impl PieceWriter {
    /// One for a new file, which begins so.
    pub fn new(file: PmFile, header: &[u8]) -> Self {
        Self {
            file,
            buffer: header.to_vec(),
            at: 0,
        }
    }

    /// How long the file is so far, in bytes.
    pub fn len(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Whether the buffer has a piece.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= PIECE_BYTES
    }

    /// Writes what is in the buffer.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn flush(&mut self) -> Result<()> {
        self.file.write(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is in the buffer, and then bytes from where they are.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        self.file.write(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Makes all of the file durable, but not its name.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync()
    }
}
