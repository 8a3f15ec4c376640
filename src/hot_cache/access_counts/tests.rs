use super::*;

#[test]
fn eviction_cut_takes_the_coldest_first() {
    let access_counts = AccessCounts::new(1 << 21);
    let partitions = access_counts.partitions.len() as u64;
    let fingerprint = |partition: u64| partition << access_counts.shift;
    // The second half is read, its end more often.
    for partition in partitions / 2..partitions {
        access_counts.count(fingerprint(partition));
    }
    for _ in 0..300 {
        access_counts.count(fingerprint(partitions - 1));
    }
    let left = |share| {
        let mut histogram = Histogram::default();
        for partition in 0..partitions {
            access_counts.enter(fingerprint(partition), &mut histogram);
        }
        let cold = access_counts.coldest(&histogram, share);
        let is_cold = |partition: &u64| access_counts.is_cold(fingerprint(*partition), &cold);
        (0..partitions).filter(is_cold).collect::<Vec<_>>()
    };
    for share in [0.25, 0.5, 0.75, 1.0] {
        let left = left(share);
        let (wanted, found) = (share * partitions as f64, left.len() as f64);
        let differ = (found - wanted).abs();
        assert!(differ <= 0.1 * partitions as f64, "{share}: {found}");
        let of_cold_half = left.iter().filter(|each| **each < partitions / 2).count();
        assert_eq!(of_cold_half, left.len().min(index(partitions) / 2));
        assert_eq!(left.contains(&(partitions - 1)), share == 1.0);
    }
    access_counts.age();
    assert!(!left(0.9).contains(&(partitions - 1)));
}

#[test]
fn access_counts_call_the_second_read_a_revisit() {
    let access_counts = AccessCounts::new(0);
    assert!(!access_counts.is_revisit(77));
    assert!(access_counts.is_revisit(77));
    assert!(!access_counts.is_revisit(77 + REVISITS.0));
    assert!(!access_counts.is_revisit(77));
}
