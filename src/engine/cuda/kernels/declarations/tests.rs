use std::collections::BTreeMap;

use bytemuck::Zeroable;

use super::*;
use crate::gpu::kernel::Arguments;

/// The bytes of each parameter of each kernel, by its name.
type Parameters = BTreeMap<String, Vec<usize>>;

/// Those that the compiled kernels state.
fn compiled() -> Parameters {
    let entries = gphash_kernels::INDEX.split(".entry ").skip(1);
    let parameters = entries.map(|entry| {
        let (name, rest) = entry.split_once('(').unwrap();
        let (list, _) = rest.split_once(')').unwrap();
        (name.to_owned(), list.split(',').map(size).collect())
    });
    parameters.collect()
}

/// The bytes of `.param .u64 name` and the like, and of `.param .align 8 .b8 name[48]`.
fn size(parameter: &str) -> usize {
    match parameter.trim().strip_suffix(']') {
        Some(array) => array.split_once('[').unwrap().1.parse().unwrap(),
        None if parameter.contains(".u64 ") => 8,
        None if parameter.contains(".u32 ") => 4,
        None => panic!("a parameter of another type: {parameter}"),
    }
}

fn declare<A: Arguments + Zeroable>(parameters: &mut Parameters, kernel: Kernel<A>) {
    let arguments = A::zeroed();
    let sizes: Vec<_> = arguments
        .bytes()
        .as_ref()
        .iter()
        .map(|bytes| bytes.len())
        .collect();
    let suffixes: &[_] = match kernel.has_key_sizes {
        true => &["_word", "_wide"],
        false => &[""],
    };
    for suffix in suffixes {
        parameters.insert(format!("{}{suffix}", kernel.name), sizes.clone());
    }
}

#[test]
fn kernel_arguments_agree_between_host_and_kernels() {
    let mut declared = Parameters::new();
    for verb in [Write::Insert, Write::Upsert, Write::Update, Write::Remove] {
        declare(&mut declared, resolve(verb));
        declare(&mut declared, write(verb));
    }
    for verb in [Read::Get, Read::Contains, Read::Locate] {
        declare(&mut declared, read(verb));
    }
    declare(&mut declared, FETCH);
    declare(&mut declared, SCATTER);
    declare(&mut declared, START_BINS);
    declare(&mut declared, ARRANGE);
    declare(&mut declared, ENTER_FREE);
    declare(&mut declared, WRITE_BACK_FREE);
    declare(&mut declared, CLEAR_BATCH);
    declare(&mut declared, GROUP_KEYS);
    declare(&mut declared, SPREAD);
    declare(&mut declared, REPORT);
    declare(&mut declared, DRAIN);
    declare(&mut declared, SPLIT_BUCKETS);
    declare(&mut declared, RECOVERY_SCAN);
    declare(&mut declared, CACHE_SCORE);
    declare(&mut declared, CACHE_SELECT);
    declare(&mut declared, CACHE_RELEASE);
    declare(&mut declared, CACHE_ASSIGN);
    declare(&mut declared, CACHE_FILL);
    declare(&mut declared, CACHE_LINK);
    declare(&mut declared, CACHE_REMOVE_LEVEL);
    assert_eq!(declared, compiled());
}
