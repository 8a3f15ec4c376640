use super::*;

#[test]
fn write_back_by_every_instruction_keeps_the_bytes() {
    let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let mut instructions = vec![WriteBack::Clflush, WriteBack::detect()];
    if WriteBack::detect() == WriteBack::Clwb {
        // Every CPU with clwb has clflushopt.
        instructions.push(WriteBack::ClflushOpt);
    }
    for instruction in instructions {
        for (at, len) in [(0, 0), (0, 1), (63, 2), (1, 999), (64, 64)] {
            // SAFETY: the range lies in `bytes`.
            unsafe { instruction.range(bytes[at..].as_ptr(), len) };
        }
        instruction.fence();
    }
    assert!(bytes.into_iter().eq((0..=255).cycle().take(1000)));
}
