use super::*;

#[test]
fn each_request_goes_to_one_partition_and_its_answer_back() {
    for len in [0, 1, 100, CHUNK_REQUESTS, 2 * CHUNK_REQUESTS + 77] {
        for partitions in [1, 3, 256] {
            let number_of = |nth: usize| nth * nth % partitions;
            let split = Split::new(len, number_of);
            let mut responses = SplitAnswers::new(&split);
            assert!(split.counts().is_sorted());
            let counts = split.counts().iter();
            assert_eq!(counts.map(|(_, count)| count).sum::<usize>(), len);
            for (rank, &(number, count)) in split.counts().iter().enumerate() {
                let expected: Vec<usize> =
                    (0..len).filter(|&nth| number_of(nth) == number).collect();
                let positions: Vec<usize> = split.positions(rank).collect();
                assert_eq!(positions, expected);
                assert!(count == expected.len() && count > 0);
                let value = |nth: &usize| nth.to_le_bytes().to_vec();
                let response = |nth| Some(value(nth));
                let all = positions.iter().map(response).collect();
                if number % 2 == 0 {
                    responses.add(rank, all);
                }
            }
            let responses = responses.in_order(None);
            assert_eq!(responses.len(), len);
            for (nth, response) in responses.iter().enumerate() {
                let expected = nth.to_le_bytes();
                match (response, number_of(nth) % 2) {
                    (Some(value), 0) => assert_eq!(value, &expected),
                    (response, _) => assert_eq!(*response, None),
                }
            }
            let mut seen = vec![0; split.counts().len()];
            for at in 0..len {
                let (rank, nth) = (split.rank(at), split.nth(at));
                assert_eq!(split.counts()[rank].0, number_of(at));
                assert_eq!((nth, split.position(rank, nth)), (seen[rank], at));
                seen[rank] += 1;
            }
            let counts = split.counts().iter().map(|(_, count)| *count);
            assert!(seen.into_iter().eq(counts));
        }
    }
}
