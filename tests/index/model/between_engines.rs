//! One file, passed back and forth between the engine under test and the CPU engine.

use gphash::{Engine, Index};

use crate::{Checked, folder, options};

#[test]
fn file_stays_the_same_between_engines() {
    let folder = folder();
    let path = folder.path().join("f");
    let engines = [options(), options().engine(Engine::Cpu)].map(|options| options.capacity(64));
    let mut model = Default::default();
    Index::<u64, [u32; 5]>::create(&path, &engines[0])
        .unwrap()
        .close()
        .unwrap();
    for round in 0..10u64 {
        let index =
            Index::<u64, [u32; 5]>::open(&path, &engines[usize::try_from(round).unwrap() % 2])
                .unwrap();
        assert!(index.recovery().clean);
        let mut checked = Checked { index, model };
        checked.check();
        let keys: Vec<u64> = (round * 300..round * 300 + 900)
            .chain([0, u64::MAX])
            .collect();
        let values: Vec<[u32; 5]> = keys
            .iter()
            .map(|key| [u32::try_from((key % (1 << 32)) ^ round).unwrap(); 5])
            .collect();
        checked.upsert(&keys, &values);
        checked.remove(&keys[..200]);
        checked.get(&keys, [7; 5]);
        checked.check();
        checked.index.close().unwrap();
        model = checked.model;
    }
}
