use super::*;

#[test]
fn engine_without_its_gpu_is_an_error() {
    let budget = DeviceBudget::new(None);
    assert!(matches!(version_sorter(Engine::Cpu, &budget), Ok(None)));
    assert!(version_sorter(Engine::Auto, &budget).is_ok());
    // No machine has so many.
    let refused = version_sorter(Engine::Cuda { device: u32::MAX }, &budget);
    assert!(matches!(
        refused,
        Err(Error::Gpu {
            what: "opening the device",
            ..
        })
    ));
}
