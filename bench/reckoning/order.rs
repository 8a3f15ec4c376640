//! Orders to touch the places of a batch in.

use rayon::slice::ParallelSliceMut;

/// The order in which a batch touches its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they were drawn.
    Random,
    /// Places of one of 2^k equal parts of the region side by side, in the order drawn.
    Bins(u32),
    /// By address.
    Address,
}

impl Order {
    /// What it is called in tables and in JSON.
    pub fn name(self) -> String {
        match self {
            Order::Random => "random".into(),
            Order::Bins(bits) => format!("bins_{}", 1 << bits),
            Order::Address => "address".into(),
        }
    }
}

/// Puts the places of one batch in order; all of them lie below `len`.
pub fn arrange(places: &mut [u64], len: u64, order: Order) {
    match order {
        Order::Random => {}
        Order::Bins(bits) => {
            let bin = |place: &u64| (u128::from(*place) << bits) / u128::from(len);
            places.par_sort_by_key(bin);
        }
        Order::Address => places.par_sort_unstable(),
    }
}
