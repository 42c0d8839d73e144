//! Stacks and registers that follow kernel events.
//!
//! ```text
//!   call chain   kernel marker │ frames … │ user marker │ frames …   the kernel follows the frame
//!                                                                    pointers of user code
//!   or           user registers, copy of the user stack              `unwind` uses DWARF tables
//!
//!   ──▶  0x1820  time of the event │ process │ thread │ frames, innermost first
//!                (one record for each part: kernel, user)
//!   ──▶  0x1830  time of the event │ process │ thread │ kinds │ count │ registers
//! ```
//!
//! - S1 A part without frames is not written.
//! - S2 A stack has at most 192 frames, the published limit, or fewer if the kernel's limit is
//!   lower.
//! - S3 If the sample contains a copy of the user stack, the copy is unwound with DWARF tables. The
//!   frames from frame pointers are then ignored, because they are wrong for programs built without
//!   frame pointers. They are used only if unwinding yields nothing.
//! - S4 The user part ends before the first address in the kernel's half of the address space. Where
//!   a program has no frame pointers, the kernel reads arbitrary values as return addresses. Readers
//!   distinguish kernel frames from user frames by their addresses.

mod program;
mod reader;
pub(crate) mod registers;
pub(crate) mod unwind;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::stack_walk::is_kernel_address;
use traceweir_format::wire::{Put, u64_at};

/// The layout of a stack-walk event, whose last field is the list of frames.
pub(crate) const STACK_LAYOUT: PayloadLayout = PayloadLayout::new(hook::STACK_WALK, 2);
/// Values from here on are markers between the parts of a call chain.
const FIRST_MARKER: u64 = -4095_i64 as u64;
/// The marker before kernel frames.
pub(crate) const KERNEL_MARKER: u64 = -128_i64 as u64;
/// The marker before user frames.
pub(crate) const USER_MARKER: u64 = -512_i64 as u64;

/// Appends the frames of a call chain that follow a marker, up to the next marker. The user frames
/// are the last part of a call chain.
pub(crate) fn put_frames_after(marker: u64, callchain: &[u8], out: &mut Vec<u8>) {
    let mut current_marker = 0;
    for frame in callchain.chunks_exact(8).map(|frame| u64_at(frame, 0)) {
        if current_marker == USER_MARKER && is_kernel_address(frame, 8) {
            break;
        }
        if frame >= FIRST_MARKER {
            current_marker = frame;
        } else if current_marker == marker && frame != 0 {
            out.put_u64(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_after(marker: u64, chain: &[u64]) -> Vec<u64> {
        let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut out = Vec::new();
        put_frames_after(marker, &bytes, &mut out);
        out.chunks_exact(8).map(|word| u64_at(word, 0)).collect()
    }

    #[test]
    fn parts_of_a_call_chain_are_separated() {
        let chain =
            [KERNEL_MARKER, 0xFFFF_FFFF_8100_0000, 0xFFFF_FFFF_8100_0001, USER_MARKER, 0x5000, 0, 0x6000];
        assert_eq!(frames_after(KERNEL_MARKER, &chain), [0xFFFF_FFFF_8100_0000, 0xFFFF_FFFF_8100_0001]);
        assert_eq!(frames_after(USER_MARKER, &chain), [0x5000, 0x6000]);
    }

    #[test]
    fn user_frames_end_before_an_address_of_the_kernel() {
        for wrong_frame in [0xFFFF_FF11_361C_FF35, 0x8000_0000_0000_0000, KERNEL_MARKER] {
            let chain = [KERNEL_MARKER, 0xFFFF_FFFF_8100_0000, USER_MARKER, 0x5000, wrong_frame, 0x6000];
            assert_eq!(frames_after(KERNEL_MARKER, &chain), [0xFFFF_FFFF_8100_0000]);
            assert_eq!(frames_after(USER_MARKER, &chain), [0x5000]);
        }
    }
}
