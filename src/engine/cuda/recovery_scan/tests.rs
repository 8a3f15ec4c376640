use super::*;
use crate::Options;
use crate::engine::device_tests::alone;
use crate::layout::{DATA_START, Shape};
use crate::pm::MapOptions;
use crate::table::key::reserved_bucket_at;

/// A file that is refused is unmapped before the engine ends, and the driver must not have it pinned then.
#[test]
fn scan_that_finds_damage_lets_go_of_the_file() {
    let Some(_alone) = alone() else { return };
    let mut engine = CudaEngine::open(0, &Options::new()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let mapping = Mapping::create(&path, DATA_START, &MapOptions::default()).unwrap();
    let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
    let table = Table::create(mapping, shape, 1000, &path).unwrap();
    let reachable = ReachableRecords::new(&table.arena);
    for is_damaged in [false, true] {
        let addr = shape.slot_addr(reserved_bucket_at(0), 0);
        let word = if is_damaged { RecordWord::TENTATIVE } else { 0 };
        table.medium.store(addr.record, word);
        let findings = engine.recovery_scan(&table, &reachable).unwrap().unwrap();
        assert_eq!(findings.damage.is_empty(), !is_damaged);
        assert_eq!(engine.prepared.is_none(), is_damaged);
        let _entered = engine.service.device().enter().unwrap();
        engine.prepared = None;
    }
}
