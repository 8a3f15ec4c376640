//! Writing a file, entry by entry.

use super::block;
use super::block::Compressor;
use super::data::Builder;
use super::filter::Filter;
use super::index;
use super::properties::Properties;
use super::{Footer, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, header, key_hash};
use crate::Result;
use crate::lsm::Entry;
use crate::lsm::header::Header;
use crate::lsm::pieces::PieceWriter;
use crate::lsm::values::Value;
use crate::pm::Dir;

/// A file that is being written. Unless it is finished, dropping it removes it.
pub struct Writer {
    out: PieceWriter,
    header: Header,
    block: Builder,
    compressor: Compressor,
    index: index::Builder,
    properties: Properties,
    hashes: Vec<u64>,
    is_finished: bool,
}

impl Writer {
    /// Begins file `number`, under a name.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn create(dir: &Dir, name: String, store_id: [u64; 2], number: u64) -> Result<Self> {
        let header = header(store_id, number);
        Ok(Self {
            out: PieceWriter::new(dir.create_file(&name)?, bytemuck::bytes_of(&header)),
            header,
            block: Builder::default(),
            compressor: Compressor::new(),
            index: index::Builder::default(),
            properties: Properties::new(),
            hashes: Vec::new(),
            is_finished: false,
        })
    }

    /// How long the file is so far, in bytes.
    pub fn len(&self) -> u64 {
        self.out.len()
    }

    /// Whether the next addition writes to the file.
    pub fn is_full(&self) -> bool {
        self.out.is_full()
    }

    /// Adds an entry, whose key is behind those of all others.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        if self.is_full() {
            self.out.flush()?;
        }
        let is_short = match entry.value {
            Some(Value::Inline(value)) => value.len() <= INLINE_VALUE_BYTES_MAX,
            Some(Value::Apart(_)) | None => true,
        };
        assert!(entry.key.len() <= KEY_BYTES_MAX && is_short);
        debug_assert!(self.properties.entries == 0 || self.block.last_key() < entry.key);
        if self.block.is_full_for(entry) {
            self.end_block();
        }
        if self.block.len() == 0 {
            self.index.separate(self.block.last_key(), entry.key);
        }
        self.properties.count(entry);
        self.hashes
            .push(key_hash(self.header.preamble.store_id, entry.key));
        self.block.add(entry);
        Ok(())
    }

    fn end_block(&mut self) {
        if self.block.len() == 0 {
            return;
        }
        let start = self.out.buffer.len();
        let (seed, entries) = (self.header.seed(self.len()), self.block.len());
        self.compressor
            .write(self.block.content(), seed, &mut self.out.buffer);
        self.index.add(self.out.buffer.len() - start, entries);
        self.block.clear();
    }

    /// Makes the file durable, but not its name, and gives its length in bytes. It must have an
    /// entry.
    ///
    /// # Errors
    /// What the operating system answers; the file is of no use then.
    pub fn finish(mut self) -> Result<u64> {
        assert!(self.properties.entries > 0);
        self.end_block();
        self.properties.largest = self.block.last_key().to_vec();
        let mut offsets = [0; 3];
        offsets[0] = self.len();
        let filter = Filter::build(&mut self.hashes);
        let pieces = filter.pieces();
        let header = block::header_of(&pieces, self.header.end_seed(offsets[0]));
        self.out.buffer.extend_from_slice(&header);
        self.out.buffer.extend(pieces.concat());
        offsets[1] = self.len();
        let seed = self.header.end_seed(offsets[1]);
        self.compressor
            .write(self.index.content(), seed, &mut self.out.buffer);
        offsets[2] = self.len();
        let seed = self.header.end_seed(offsets[2]);
        self.compressor
            .write(&self.properties.to_bytes(), seed, &mut self.out.buffer);
        let footer = Footer {
            filter: offsets[0],
            index: offsets[1],
            properties: offsets[2],
            checksum: 0,
            magic: [0; 8],
        };
        let footer = footer.seal(self.header.end_seed(self.len()));
        self.out
            .buffer
            .extend_from_slice(bytemuck::bytes_of(&footer));
        self.out.sync()?;
        self.is_finished = true;
        Ok(self.len())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = self.out.file.remove()
        {
            tracing::warn!(%error, "an unfinished SST stays until the next opening");
        }
    }
}
