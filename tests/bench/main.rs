//! What the benches reckon: percentiles and the layout of batches in device memory.

mod percentiles;
mod windows;

#[path = "../../bench/workload/latency.rs"]
mod latency;
#[path = "../../bench/workload/window.rs"]
mod window;
