//! Batches whose keys, values and answers lie in device memory, held with the crate `cust`. Without a GPU it
//! says so and ends.
//!
//! `cargo run --release --features cust --example device_slices`

use std::error::Error;

use cust::CudaFlags;
use cust::context::Context;
use cust::device::Device;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use gphash::{Engine, Index, Options, answer_words};

const LEN: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    if let Err(error) = cust::init(CudaFlags::empty()) {
        println!("no GPU here: {error:?}");
        return Ok(());
    }
    // The primary context, which the index uses, too.
    let _context = Context::new(Device::get_device(0)?)?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;

    let folder = tempfile::tempdir()?;
    let options = Options::new()
        .capacity(LEN)
        .engine(Engine::Cuda { device: 0 });
    let index = Index::<u64, u64>::create(folder.path().join("squares"), &options)?;

    let keys: Vec<u64> = (1..=LEN).collect();
    let squares: Vec<u64> = keys.iter().map(|key| key * key).collect();
    let keys = DeviceBuffer::from_slice(&keys)?;
    let values = DeviceBuffer::from_slice(&squares)?;
    let mut found = DeviceBuffer::from_slice(&vec![0_u64; squares.len()])?;
    let mut answers = DeviceBuffer::from_slice(&vec![0_u64; answer_words(squares.len())])?;

    index.insert_device(&stream, &*keys, &*values, &mut *answers)?;
    index.get_device(&stream, &*keys, &mut *found, &mut *answers)?;

    let mut back = vec![0_u64; squares.len()];
    found.copy_to(&mut back)?;
    assert_eq!(back, squares);
    println!(
        "{LEN} values went through device memory on {}",
        index.stats().engine
    );
    index.close()?;
    Ok(())
}
