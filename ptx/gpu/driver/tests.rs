use super::*;

#[test]
fn driver_that_is_absent_returns_no_device() {
    // On a machine with a driver this says nothing, and must not fail.
    if !is_there() {
        // SAFETY: there is nothing that could be called.
        assert_eq!(unsafe { cuInit(0) }, Status::NO_DEVICE);
        assert_eq!(Status::NO_DEVICE.to_string(), "CUDA error 100");
    }
}

#[test]
fn driver_function_that_is_absent_returns_its_status() {
    let functions = Functions::found::<7>(|_| ptr::null_mut());
    // SAFETY: as above.
    assert_eq!(unsafe { (functions.cuMemFree_v2)(1) }, Status(7));
}
