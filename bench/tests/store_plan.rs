//! What the bench `store` draws.

use std::collections::HashSet;

use gphash_bench::workload::store::{Draw, Operation, Workload};

const RECORDS: u64 = 1000;

/// Batches of workload D, of each thread.
fn latest(batch: usize, added: u64) -> Vec<Vec<Operation>> {
    let draw = Draw {
        workload: Workload::D,
        law: None,
        theta: 0.99,
        records: RECORDS,
        added,
        operations: 20_000,
        batch,
        threads: 2,
        seed: 1,
    };
    draw.operations()
}

#[test]
fn gets_of_workload_d_reach_records_that_it_has_added() {
    for (batch, added) in [(1, 0), (100, 0), (100, 20_000)] {
        for operations in latest(batch, added) {
            let mut there = HashSet::new();
            let (mut gets, mut of_new) = (0, 0);
            for batch in operations.chunks(batch) {
                for operation in batch {
                    if let Operation::Get(record) = operation {
                        gets += 1;
                        of_new += u32::from(*record >= RECORDS);
                        let is_there = *record < RECORDS || there.contains(record);
                        assert!(is_there, "record {record} is not there yet");
                    }
                }
                there.extend(batch.iter().filter_map(|operation| match operation {
                    Operation::Put(record) => Some(*record),
                    _ => None,
                }));
            }
            assert!(
                there.iter().all(|record| *record >= RECORDS + added),
                "a record was added that was there"
            );
            assert!(
                of_new * 2 > gets,
                "{of_new} of {gets} gets were of new records"
            );
        }
    }
}
