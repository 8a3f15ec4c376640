use super::*;

#[test]
fn stall_events_keep_the_last_ones() {
    let recorder = StallRecorder::new(StallReason::Log);
    for nth in 0..EVENTS_MAX + 3 {
        assert_eq!(recorder.time(|| nth), nth);
    }
    let mut events = Vec::new();
    let stats = recorder.stats(&mut events);
    assert_eq!(stats.count, EVENTS_MAX as u64 + 3);
    assert_eq!(events.len(), EVENTS_MAX);
    assert!(stats.longest <= stats.total);
    assert!(events.iter().all(|event| event.waited <= stats.longest));
}
