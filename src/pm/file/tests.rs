use crate::pm::Dir;

#[test]
fn file_system_that_says_nothing_of_its_room_has_some() {
    // It has no blocks.
    let dir = Dir::at("/proc/self".into(), None);
    let file = dir.open_file("comm", false).unwrap();
    assert_eq!(rustix::fs::fstatvfs(&file.file).unwrap().f_blocks, 0);
    file.check_free_space(u64::MAX).unwrap();
}
