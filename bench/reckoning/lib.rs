//! What the benches reckon: percentiles, batches in device memory, orders of places, limits, charts. Apart from
//! them, so that its tests are built without the stores and the tools that benches need.

pub mod chart;
pub mod latency;
pub mod limit;
pub mod order;
pub mod window;
