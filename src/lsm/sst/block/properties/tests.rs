use std::sync::Arc;

use gphash_layout::mark::COUNT_LIMIT;

use super::*;
use crate::data::{Block, Builder, Decoded};
use crate::frame;

/// A salvage keeps what blocks have, so these refuse what the properties of the next file would.
#[test]
fn sequence_number_that_cannot_be_counted_up_is_refused() {
    for sequence in [0, COUNT_LIMIT - 1, COUNT_LIMIT, u64::MAX] {
        let entry = Entry {
            key: b"key",
            sequence,
            value: Some(Value::Inline(b"value")),
        };
        let mut properties = Properties::none();
        properties.count(&entry);
        properties.largest = entry.key.to_vec();
        let read = Properties::read(&properties.to_bytes());
        assert_eq!(read.is_ok(), sequence < COUNT_LIMIT, "{read:?}");
        let mut builder = Builder::default();
        builder.add(&entry);
        let mut bytes = Vec::new();
        frame::write(builder.content(), 0, &mut bytes);
        let block = Block::open(bytes, 0).unwrap();
        let decoded = Decoded::new(Arc::new(block));
        assert_eq!(decoded.is_ok(), sequence < COUNT_LIMIT, "{sequence}");
    }
}
