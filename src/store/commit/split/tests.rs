use super::*;

#[test]
fn each_request_goes_to_one_partition_and_its_answer_back() {
    for len in [0, 1, 100, CHUNK_REQUESTS, 2 * CHUNK_REQUESTS + 77] {
        for partitions in [1, 3, 256] {
            let number_of = |nth: usize| nth * nth % partitions;
            let split = Split::new(len, number_of);
            let mut responses = SplitAnswers::new(&split, AnswerForm::Responses);
            let mut columns = SplitAnswers::new(&split, AnswerForm::Values);
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
                let response = |nth| Response::Value(Some(value(nth)));
                let all = positions.iter().map(response).collect();
                if number % 2 == 0 {
                    responses.add(rank, RunAnswers::Responses(all));
                }
                let parts = positions.chunks(PART_VALUES).map(|positions| {
                    let mut part = ValuesPart::nulls(positions.len());
                    for (at, nth) in positions.iter().enumerate() {
                        part.set(at, &value(nth));
                    }
                    part
                });
                let failed = vec![(count - 1, Error::Conflict)];
                columns.add(rank, RunAnswers::Values(parts.collect(), failed));
            }
            let responses = responses.into_responses();
            let columns = columns.into_columns();
            assert_eq!(responses.len(), len);
            for (nth, response) in responses.iter().enumerate() {
                let expected = nth.to_le_bytes();
                match (response, number_of(nth) % 2) {
                    (Response::Value(Some(value)), 0) => assert_eq!(value, &expected),
                    (response, _) => assert!(matches!(response, Response::Done)),
                }
                assert_eq!(columns.values.get(nth), Some(&expected[..]));
            }
            let mut last: Vec<usize> = (0..split.counts().len())
                .filter_map(|rank| split.positions(rank).last())
                .collect();
            last.sort_unstable();
            let failed: Vec<usize> = columns.failures.iter().map(|(nth, _)| *nth).collect();
            assert_eq!(failed, last);
        }
    }
}
