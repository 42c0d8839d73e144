//! Stacks and registers that follow kernel events.
//!
//! ```text
//!   call chain   KERNEL marker │ frames … │ USER marker │ frames …   by the kernel's unwinder and
//!                                                                    by frame pointers
//!   or           user registers, copy of the user stack              by DWARF tables (unwind)
//!
//!   ──▶  0x1820  time of the event │ process │ thread │ frames, innermost first
//!                (one record for each part: kernel, user)
//!   ──▶  0x1830  time of the event │ process │ thread │ kinds │ count │ registers
//! ```
//!
//! - S1 A part without frames is not written.
//! - S2 A stack has at most 192 frames, as published, or fewer if the kernel's limit is lower.
//! - S3 If the sample contains a copy of the user stack, it is unwound with DWARF tables, and the
//!   frames from frame pointers, which are wrong for programs built without them, are ignored. They
//!   are used if unwinding yields nothing.

mod program;
mod reader;
pub(crate) mod unwind;

use traceweir_format::wire::{Put, u64_at};

/// Hook id and version of a stack-walk event.
pub(crate) const STACK_WALK: (u16, u8) = (0x1820, 2);
/// Hook id and version of the event with registers.
pub(crate) const REGISTERS: (u16, u8) = (0x1830, 2);
/// The value of RegisterTypes in that event: control and integer.
const CONTROL_AND_INTEGER: u32 = 3;

/// Values from here on are markers between the parts of a call chain.
const FIRST_MARKER: u64 = -4095_i64 as u64;
/// The marker before kernel frames.
pub(crate) const KERNEL: u64 = -128_i64 as u64;
/// The marker before user frames.
pub(crate) const USER: u64 = -512_i64 as u64;

/// Appends the frames of one part of a call chain.
pub(crate) fn put_part(callchain: &[u8], part: u64, out: &mut Vec<u8>) {
    let mut current = 0;
    for frame in callchain.chunks_exact(8).map(|frame| u64_at(frame, 0)) {
        if frame >= FIRST_MARKER {
            current = frame;
        } else if current == part && frame != 0 {
            out.put_u64(frame);
        }
    }
}

/// The perf numbers of registers, in the order in which they are written.
#[cfg(target_arch = "x86_64")]
mod machine {
    /// RIP, CS, SS, RSP, EFLAGS; RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15.
    pub(crate) const ORDER: [u8; 20] = [8, 10, 11, 7, 9, 0, 1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 20, 21, 22, 23];
}

/// The perf numbers of registers, in the order in which they are written.
#[cfg(target_arch = "aarch64")]
mod machine {
    /// PC, SP; X0 to X30.
    pub(crate) const ORDER: [u8; 33] = [
        32, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
        26, 27, 28, 29, 30,
    ];
}

/// No registers are defined for this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    pub(crate) const ORDER: [u8; 0] = [];
}

/// Returns the mask of registers to request.
pub(crate) fn register_mask() -> u64 {
    machine::ORDER.iter().fold(0, |mask, number| mask | 1 << number)
}

/// Returns the number of registers in the mask.
pub(crate) fn register_count() -> u32 {
    u32::try_from(machine::ORDER.len()).unwrap_or(0)
}

/// Returns a register of a sample, by its perf number.
pub(crate) fn register(regs: &[u8], number: u8) -> Option<u64> {
    // A sample contains the requested registers in the order of their numbers.
    let index = machine::ORDER.iter().filter(|other| **other < number).count();
    machine::ORDER.contains(&number).then_some(())?;
    let word = regs.get(index.checked_mul(8)?..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

/// Appends the payload of the event with registers.
pub(crate) fn put_registers(process: u32, thread: u32, regs: &[u8], out: &mut Vec<u8>) {
    out.put_i64(0).put_u32(process).put_u32(thread).put_u32(CONTROL_AND_INTEGER).put_u32(register_count());
    for number in machine::ORDER {
        out.put_u64(register(regs, number).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_call_chain_are_separated() {
        let chain = [KERNEL, 0xFFFF_FFFF_8100_0000, 0xFFFF_FFFF_8100_0001, USER, 0x5000, 0, 0x6000];
        let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_le_bytes()).collect();
        let part = |part| {
            let mut out = Vec::new();
            put_part(&bytes, part, &mut out);
            out.chunks_exact(8).map(|word| u64_at(word, 0)).collect::<Vec<_>>()
        };
        assert_eq!(part(KERNEL), [0xFFFF_FFFF_8100_0000, 0xFFFF_FFFF_8100_0001]);
        assert_eq!(part(USER), [0x5000, 0x6000]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn registers_are_found_by_number() {
        let mut numbers = machine::ORDER;
        numbers.sort_unstable();
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| u64::from(*n).to_le_bytes()).collect();
        assert!(numbers.iter().all(|n| register(&bytes, *n) == Some(u64::from(*n))));
        assert_eq!(register(&bytes, 12), None);
        let mut out = Vec::new();
        put_registers(1, 2, &bytes, &mut out);
        assert_eq!(out.len(), 24 + 20 * 8);
        assert_eq!(u64_at(&out, 24), 8, "RIP first");
    }
}
