use super::*;

#[test]
fn lock_released_in_time_is_taken() {
    let holder = tempfile::NamedTempFile::new().unwrap();
    let path = holder.path();
    for mut pauses_left in [1, TRIES] {
        holder.as_file().try_lock().unwrap();
        let let_go = || {
            pauses_left -= 1;
            if pauses_left == 0 {
                holder.as_file().unlock().unwrap();
            }
        };
        let file = File::open(path).unwrap();
        take(|| file.try_lock(), let_go, path).unwrap();
    }
}

#[test]
fn lock_that_is_held_is_an_error() {
    let holder = tempfile::NamedTempFile::new().unwrap();
    let path = holder.path();
    holder.as_file().try_lock().unwrap();
    let mut pauses = 0;
    let file = File::open(path).unwrap();
    for shared in [false, true] {
        let try_lock = || match shared {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        let taken = take(try_lock, || pauses += 1, path);
        assert!(matches!(taken, Err(Error::InUse { .. })), "{taken:?}");
    }
    assert_eq!(pauses, 2 * TRIES);
    assert_eq!(TRIES * PAUSE, Duration::from_millis(500));
}
