use std::path::Path;

use super::*;
use crate::layout::DATA_START;
use crate::pm::sim::Simulated;
use crate::table::resize::tests::insert;

#[test]
fn level_is_preallocated_earlier_beside_long_device_batches() {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let memory = Simulated::new(DATA_START, 1 << 24);
    let table = Table::create(memory, shape, 10_000, Path::new("memory")).unwrap();
    let slots = table.slots();
    let fill = |to: u64| insert(&mut table.session(), table.len() + 1..to + 1);
    let levels = table.levels.live();
    fill(slots * 69 / 100);
    table.maintenance.expect_batches(slots);
    assert_eq!(table.coming_level(), None, "however long the batches are");
    fill(slots * 75 / 100);
    for (batch, coming) in [
        (1, None),
        (slots / 160, None),
        (slots / 60, Some(levels.top + 1)),
    ] {
        table.maintenance.longest_batch.store(0, Ordering::Relaxed);
        table.maintenance.expect_batches(batch);
        assert_eq!(table.coming_level(), coming, "{batch} of {slots}");
    }
    table.maintenance.longest_batch.store(0, Ordering::Relaxed);
    fill(slots * 81 / 100);
    assert_eq!(table.coming_level(), Some(levels.top + 1));
    assert_eq!(table.levels.live(), levels);
}
