use super::*;

#[test]
fn unsynced_log_has_a_share_of_the_budget() {
    let options = StoreOptions::new();
    assert_eq!(options.unsynced_bytes_max(), 32 << 20);
    for (budget, most) in [(64 << 20, 4 << 20), (1 << 30, 32 << 20)] {
        let options = options.clone().memory_budget(budget);
        assert_eq!(options.unsynced_bytes_max(), most);
    }
}

#[test]
fn durability_is_parsed_from_its_text() {
    let intervals = [
        (Duration::ZERO, "0s"),
        (Duration::from_secs(90), "90s"),
        (Duration::from_millis(1500), "1500ms"),
        (Duration::from_micros(20), "20us"),
        (Duration::from_nanos(1001), "1001ns"),
    ];
    let texts = intervals
        .map(|(interval, text)| (Durability::Interval(interval), text))
        .into_iter()
        .chain([(Durability::Always, "always"), (Durability::None, "none")]);
    for (durability, text) in texts {
        assert_eq!(durability.to_string(), text);
        assert_eq!(text.parse(), Ok(durability));
    }
    for text in [
        "",
        "Always",
        "ms",
        "5",
        "-1s",
        "1.5s",
        "1 s",
        "5min",
        "18446744074s",
    ] {
        let error = text.parse::<Durability>().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("durability {text:?}; expected ")),
            "{error}"
        );
    }
}

#[test]
fn when_full_is_parsed_from_its_text() {
    for when_full in [WhenFull::Wait, WhenFull::Refuse] {
        assert_eq!(when_full.to_string().parse(), Ok(when_full));
    }
    let error = "fail".parse::<WhenFull>().unwrap_err().to_string();
    assert_eq!(error, "when_full \"fail\"; expected wait or refuse");
}

#[test]
fn new_store_has_a_partition_for_each_core_within_its_budget() {
    let of_cores = [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 4),
        (16, 16),
        (64, 64),
        (256, 64),
    ];
    for (cores, partitions) in of_cores {
        assert_eq!(default_partitions(cores, None), partitions, "{cores}");
    }
    for (megabytes, partitions) in [(1, 1), (64, 1), (200, 3), (1024, 16), (1 << 40, 16)] {
        assert_eq!(default_partitions(16, Some(megabytes << 20)), partitions);
    }
}
