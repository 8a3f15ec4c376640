//! What this process has done, as the system counts it.

use std::fs::read_to_string;

/// Bytes that were given to calls that write, if the system says so.
pub fn written() -> Option<u64> {
    let counters = read_to_string("/proc/self/io").ok()?;
    let mut values = counters
        .lines()
        .filter_map(|line| line.strip_prefix("wchar: "));
    values.next()?.parse().ok()
}

/// Ticks of 10 ms that all threads have spent on processors, if the system says so.
pub fn processor_ticks() -> Option<u64> {
    let stat = read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}
