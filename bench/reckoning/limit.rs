//! Which of the measured rates is the limit of a workload.

/// The fastest of some ways to do the same, with its rate; `None` of no way.
pub fn fastest<W: Copy>(rates: &[(W, f64)]) -> Option<(W, f64)> {
    rates
        .iter()
        .copied()
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The rate of operations of several parts that share one resource: each part is as many as
/// `times` of something that is done at `rate`.
pub fn one_after_another(parts: &[(f64, f64)]) -> f64 {
    let time: f64 = parts.iter().map(|(times, rate)| times / rate).sum();
    1.0 / time
}

/// The measured rate by its limit, in percent; 0 without a limit.
pub fn percent(measured: f64, limit: f64) -> f64 {
    if limit > 0.0 {
        100.0 * measured / limit
    } else {
        0.0
    }
}
