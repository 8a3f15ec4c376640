//! Copying values from many places of the file.

use super::Mapping;
use crate::pm::Medium;

/// How many values lie between the one that is copied and the one that is asked for.
const AHEAD: usize = 32;

/// Bytes of a line of the CPU's cache.
const LINE: u64 = 64;

/// Most lines of a value that are asked for; the processor sees the pattern of longer ones.
const MOST_LINES: usize = 8;

impl Mapping {
    /// Copies the value at each of `places` to its position among `values`, which has as many of the same
    /// length; those at place 0 are left as they are. No write to the other places may run beside it.
    pub(crate) fn gather(&self, places: &[u64], values: &mut [u8]) {
        if places.is_empty() {
            return;
        }
        let size = values.len() / places.len();
        for (nth, value) in values.chunks_exact_mut(size).enumerate() {
            if let Some(&next) = places.get(nth + AHEAD).filter(|&&place| place != 0) {
                let lines = (next..next + size as u64).step_by(LINE as usize);
                lines.take(MOST_LINES).for_each(|at| self.prefetch(at));
            }
            if places[nth] != 0 {
                self.read(places[nth], value);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pm::MapOptions;

    #[test]
    fn values_come_from_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let len = 1 << 16;
        let file = Mapping::create(&folder.path().join("f"), len, &MapOptions::default()).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at / 5 % 251) as u8).collect();
        file.write(0, &bytes);
        for size in [1, 8, 16, 24, 128, 1000] {
            let places: Vec<u64> = (0..100).map(|nth| nth % 3 * nth * 7919 % 60_000).collect();
            let mut values = vec![255; places.len() * size];
            file.gather(&places, &mut values);
            for (place, value) in places.iter().zip(values.chunks_exact(size)) {
                match *place as usize {
                    0 => assert!(value.iter().all(|byte| *byte == 255)),
                    place => assert_eq!(value, &bytes[place..place + size]),
                }
            }
        }
        file.gather(&[], &mut []);
    }
}
