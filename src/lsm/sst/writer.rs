//! Writing a file, entry by entry.

use gphash_block::data::{BLOCK_BYTES, Builder, counted_len};
use gphash_block::properties::Properties;
use gphash_block::{INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, frame, index};

use super::{Footer, header, key_hash};
use crate::Result;
use crate::lsm::Entry;
use crate::lsm::cache::with_descriptors;
use crate::lsm::header::Header;
use crate::lsm::pieces::PieceWriter;
use crate::lsm::values::Value;
use crate::pm::Dir;
use crate::pool::bloom_filter::Filter;
#[cfg(feature = "cuda")]
use crate::{lsm::values::ValueUse, width::to_usize};

/// Whether a block or a file of at most so many bytes ends with an entry, which counts from one position to another.
pub fn is_next(from: u64, to: u64, bytes: u64) -> bool {
    from / bytes != to / bytes
}

/// A data block that is made already.
#[cfg(feature = "cuda")]
pub struct MadeBlock {
    /// Where it begins among all of them, in bytes, and how long it is.
    pub at: u64,
    pub len: u64,
    pub entries: usize,
    pub tombstones: u64,
    /// The smallest and the largest one.
    pub sequences: (u64, u64),
    /// The first and the last one.
    pub keys: (Vec<u8>, Vec<u8>),
}

/// A file that is being written. Unless it is finished, dropping it removes it.
pub struct Writer {
    out: PieceWriter,
    header: Header,
    block: Builder,
    index: index::Builder,
    properties: Properties,
    hashes: Vec<u64>,
    /// That of blocks that were made already.
    filter: Option<Vec<u8>>,
    /// What all entries before count, those of files before among them.
    position: u64,
    is_finished: bool,
}

impl Writer {
    /// Begins file `number`, under a name. Entries that [count](counted_len) `position` stand in files before it.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn create(
        dir: &Dir,
        name: String,
        store_id: [u64; 2],
        number: u64,
        position: u64,
    ) -> Result<Self> {
        let header = header(store_id, number);
        let file = with_descriptors(|| dir.create_file(&name))?;
        Ok(Self {
            out: PieceWriter::new(file, bytemuck::bytes_of(&header)),
            header,
            block: Builder::default(),
            index: index::Builder::default(),
            properties: Properties::none(),
            hashes: Vec::new(),
            filter: None,
            position,
            is_finished: false,
        })
    }

    /// How long the file is so far, in bytes.
    pub fn len(&self) -> u64 {
        self.out.len()
    }

    /// What all entries so far count, those of files before among them.
    pub fn position(&self) -> u64 {
        self.position
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
        let position = self.position + counted_len(entry) as u64;
        let last = std::mem::replace(&mut self.position, position);
        if self.block.entries() == 0 {
            self.index.separate(self.block.last_key(), entry.key);
        }
        self.properties.count(entry);
        self.hashes
            .push(key_hash(self.header.preamble.store_id, entry.key));
        self.block.add(entry);
        if is_next(last, position, BLOCK_BYTES as u64) {
            self.end_block();
        }
        Ok(())
    }

    /// Adds data blocks that are made already, with the filter of their keys and what they have in value files. Nothing
    /// else may be added to the file.
    #[cfg(feature = "cuda")]
    pub fn add_blocks(&mut self, blocks: &[MadeBlock], filter: &[u8], values: Vec<ValueUse>) {
        let mut last: &[u8] = &[];
        for block in blocks {
            let (first_key, last_key) = &block.keys;
            self.index.separate(last, first_key);
            self.index.add(to_usize(block.len), block.entries);
            last = last_key;
            let properties = &mut self.properties;
            if properties.entries == 0 {
                properties.smallest.clone_from(first_key);
            }
            properties.entries += block.entries as u64;
            properties.tombstones += block.tombstones;
            let (smallest, largest) = block.sequences;
            properties.smallest_sequence = properties.smallest_sequence.min(smallest);
            properties.largest_sequence = properties.largest_sequence.max(largest);
        }
        self.block.set_last_key(last);
        self.properties.values = values;
        self.filter = Some(filter.to_vec());
    }

    /// Writes bytes of data blocks that are made already, in their order.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[cfg(feature = "cuda")]
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write(bytes)
    }

    fn end_block(&mut self) {
        if self.block.entries() == 0 {
            return;
        }
        let start = self.out.buffer.len();
        let (seed, entries) = (self.header.seed(self.len()), self.block.entries());
        frame::write(self.block.content(), seed, &mut self.out.buffer);
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
        let built;
        let filter = match &self.filter {
            Some(filter) => filter,
            None => {
                built = Filter::build(&self.hashes);
                built.bytes()
            }
        };
        let seed = self.header.end_seed(offsets[0]);
        frame::write(filter, seed, &mut self.out.buffer);
        offsets[1] = self.len();
        let seed = self.header.end_seed(offsets[1]);
        frame::write(self.index.content(), seed, &mut self.out.buffer);
        offsets[2] = self.len();
        let seed = self.header.end_seed(offsets[2]);
        frame::write(&self.properties.to_bytes(), seed, &mut self.out.buffer);
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
