//! What the benches reckon: percentiles, batches in device memory, orders of places, limits, figures.

mod figures;
mod limits;
mod orders;
mod percentiles;
mod windows;
