//! Files made to attack, with checksums that match: whatever they say, nobody reads or writes
//! outside of them, waits for ever, or takes more memory than the file is worth.

mod collisions;
mod counts;
mod extents;
mod file;
mod holes;
mod items;
mod journals;
mod memory;
mod metadata;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
