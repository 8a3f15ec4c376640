use super::*;

#[test]
fn engine_without_its_gpu_is_an_error() {
    assert!(matches!(version_sorter(Engine::Cpu), Ok(None)));
    assert!(version_sorter(Engine::Auto).is_ok());
    // No machine has so many.
    let refused = version_sorter(Engine::Cuda { device: u32::MAX });
    assert!(matches!(
        refused,
        Err(Error::Gpu {
            what: "opening the device",
            ..
        })
    ));
}
