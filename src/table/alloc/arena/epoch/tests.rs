use super::*;

#[test]
fn pin_holds_the_epoch_back_after_one_step() {
    let epochs = Epochs::default();
    let pin = epochs.pin(0);
    assert_eq!(epochs.try_advance(), 2);
    assert_eq!(epochs.try_advance(), 2);
    drop(pin);
    assert_eq!(epochs.try_advance(), 3);
}

#[test]
fn pin_takes_another_slot_when_its_own_is_taken() {
    let epochs = Epochs::default();
    let pins: Vec<_> = (0..MAX_PINS).map(|_| epochs.pin(7)).collect();
    drop(pins);
    let _ = epochs.pin(7);
}
