use gphash_bench_reckoning::order::{Order, arrange};

const LEN: u64 = 1024;
const DRAWN: [u64; 6] = [900, 130, 0, 890, 512, 128];

fn arranged(order: Order) -> Vec<u64> {
    let mut places = DRAWN.to_vec();
    arrange(&mut places, LEN, order);
    places
}

#[test]
fn order_random_is_as_drawn_and_address_is_sorted() {
    assert_eq!(arranged(Order::Random), DRAWN);
    assert_eq!(arranged(Order::Address), [0, 128, 130, 512, 890, 900]);
}

#[test]
fn order_by_bins_is_stable_within_a_bin() {
    assert_eq!(arranged(Order::Bins(1)), [130, 0, 128, 900, 890, 512]);
    assert_eq!(arranged(Order::Bins(3)), [0, 130, 128, 512, 890, 900]);
}

#[test]
fn order_names_are_unique() {
    let names = [Order::Random, Order::Bins(10), Order::Address].map(Order::name);
    assert_eq!(names, ["random", "bins_1024", "address"]);
}
