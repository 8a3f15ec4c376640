//! What the benches reckon: percentiles, batches in device memory, orders of places, limits, figures.

mod figures;
mod limits;
mod orders;
mod percentiles;
mod windows;

#[path = "../../bench/limits/chart.rs"]
mod chart;
#[path = "../../bench/workload/latency.rs"]
mod latency;
#[path = "../../bench/limits/limit.rs"]
mod limit;
#[path = "../../bench/limits/order.rs"]
mod order;
#[path = "../../bench/workload/window.rs"]
mod window;
