//! Capture of the writing thread's call stack in the middle of a write.
//!
//! ```text
//!   capture ◀── write ◀── the caller ◀── … ◀── main      innermost first, from the caller on
//!      │ step by step:  pc ──▶ rule (from a small cache, else from .eh_frame: tables.rs)
//!      │                rule: CFA = sp or fp + n, return address and fp at CFA − m
//!      └ no rule (code generated at run time, no glibc 2.35): frame pointer, if its frame is valid
//! ```
//!
//! The CFA (canonical frame address, a term of DWARF) of a frame is the stack pointer that its
//! caller had before the call.
//!
//! Why tables first: most programs are built without frame pointers, and a chain of frame pointers
//! skips the frames of such code without any sign. With cached rules, tables are cheap: about 10 ns
//! a frame (a frame pointer: 5 ns, an uncached rule: 150 ns), 230 ns for 20 frames and 1.1 µs for
//! 110, where the runtime library takes 3 µs and 12 µs (`cost_of_a_stack` in the tests prints the
//! figures of a machine). The walk uses the pool memory of its record (scratch.rs), so it needs
//! little stack. On threads other than the first, it makes two system calls for each KiB of stack
//! beyond the page in use (bounds.rs gives the reason).
//!
//! Why not the runtime library's `_Unwind_Backtrace`: it trusts the stack, and a corrupted stack
//! makes it read anywhere. Here each word comes from a stack of the thread (bounds.rs) or is not
//! read.
//!
//! Invariants
//!
//! 1. The walk reads memory only in the thread's own stack, in another stack while the thread runs
//!    there (a signal stack, or the used pages of one that the program allocated), and in the
//!    unwind tables of loaded objects. Parts of a stack that are not certain to be mapped are read
//!    by the kernel, which finds holes and guard pages without a fault.
//! 2. The walk allocates nothing and takes no lock: it may run in a signal handler.
//!    `_dl_find_object` of glibc 2.35 is made for that; without it (other C libraries, static
//!    programs) only frame pointers are used.
//! 3. Each step raises the stack pointer, except a step over a signal frame and, on aarch64, the
//!    step out of a leaf function with an empty frame. A walk has at most [`MAX_STEPS`] steps.
//!
//! Rules are cached by address: if a library was unloaded and another loaded at the same address,
//! the old rule may be used. Then the stack ends early or has a wrong frame; invariant 1 still
//! holds.
#![allow(unsafe_code)]

mod bounds;
mod tables;

use std::mem::MaybeUninit;

use bounds::Readable;
pub(super) use bounds::WorkBuffer;
use tables::{CfaBase, UnwindRows, UnwindRule};

/// Maximum number of frames of a stack.
pub(super) const MAX_FRAMES: usize = 192;
/// Maximum number of steps of one walk: recorded frames, frames of this library, signal frames.
const MAX_STEPS: usize = MAX_FRAMES + 32;
/// The lowest address of code.
const LOWEST_CODE_ADDRESS: usize = 4096;
/// Number of address bits in a return address; the other bits may be a signature (aarch64).
const ADDRESS_BITS: u32 = 48;

/// A stack in the layout of extended data item 6: a match id of 0, then the addresses.
pub(super) struct Frames {
    words: [u64; 1 + MAX_FRAMES],
    count: usize,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { words: [0; 1 + MAX_FRAMES], count: 0 }
    }

    /// Returns the captured addresses.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> &[u64] {
        &self.words[1..=self.count]
    }

    fn push(&mut self, address: usize) -> bool {
        let Some(word) = self.words.get_mut(1 + self.count) else { return false };
        *word = (address as u64).to_le();
        self.count += 1;
        true
    }

    /// Returns the data of the extended data item.
    pub(super) fn data(&self) -> &[u8] {
        let bytes = 8 * (1 + self.count.min(MAX_FRAMES));
        // SAFETY: the first words of the array, as bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), bytes) }
    }
}

/// The registers of a thread that the walk follows.
#[derive(Clone, Copy, Debug)]
struct Registers {
    pc: usize,
    sp: usize,
    fp: usize,
    /// The return address, if it is in a register.
    link: usize,
    /// `pc` is the instruction that runs next, and not the one after a call.
    is_exact: bool,
}

/// The frame at which a captured stack starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackStart {
    /// An address in the frame of the function that was called to write: this frame and its callees
    /// are left out.
    pub(super) inside: usize,
    /// An address that should lie in the frame of the caller. It is only a hint: the compiler may
    /// have moved the value out of the stack (bounds.rs).
    pub(super) caller: usize,
    /// Number of further frames to leave out.
    pub(super) skip: usize,
}

/// The memory for a walk.
pub(super) struct Unwinding {
    /// A buffer for `/proc` files and for the parts of a stack that the kernel copies (bounds.rs).
    pub(super) work: WorkBuffer,
    rows: MaybeUninit<UnwindRows>,
}

impl Unwinding {
    pub(super) const fn new() -> Self {
        Self { work: WorkBuffer::new(), rows: MaybeUninit::zeroed() }
    }
}

/// Captures the stack of the calling thread.
#[inline(never)]
pub(super) fn capture(frames: &mut Frames, memory: &mut Unwinding, from: StackStart) {
    frames.count = 0;
    let registers = current_registers();
    let Unwinding { work, rows } = memory;
    // Copied from a static, and not built on the stack first.
    static EMPTY: UnwindRows = UnwindRows::new();
    let rows = rows.write(EMPTY);
    let readable = Readable::for_current_stack(registers.sp, from.inside, from.caller, work);
    walk(frames, registers, from, &readable, |pc| tables::find_rule(pc, rows));
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn current_registers() -> Registers {
    let (pc, sp, fp): (usize, usize, usize);
    // SAFETY: copies registers.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp,
            options(nomem, nostack, preserves_flags));
    }
    Registers { pc, sp, fp, link: 0, is_exact: true }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn current_registers() -> Registers {
    let (pc, sp, fp, link): (usize, usize, usize, usize);
    // SAFETY: copies registers.
    unsafe {
        std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30",
            out(reg) pc, out(reg) sp, out(reg) fp, out(reg) link, options(nomem, nostack, preserves_flags));
    }
    Registers { pc, sp, fp, link, is_exact: true }
}

/// Steps outward and records the return address of each frame.
#[inline(always)]
fn walk(
    frames: &mut Frames,
    mut at: Registers,
    from: StackStart,
    readable: &Readable<'_>,
    mut find_rule: impl FnMut(usize) -> Option<UnwindRule>,
) {
    let mut skip = from.skip;
    let mut is_inside = true;
    for _ in 0..MAX_STEPS {
        // A return address may belong to the next function already. The byte before it belongs to
        // the call.
        let next = match find_rule(if at.is_exact { at.pc } else { at.pc.wrapping_sub(1) }) {
            Some(rule) => step_by_rule(&at, rule, readable),
            None => step_by_frame_pointer(&at, readable),
        };
        let Some(next) = next else { return };
        at = next;
        is_inside &= at.sp <= from.inside;
        if is_inside {
            continue;
        }
        if skip > 0 {
            skip -= 1;
        } else if !frames.push(at.pc) {
            return;
        }
    }
}

/// Steps one frame out by a rule of the unwind tables.
#[inline(always)]
fn step_by_rule(at: &Registers, rule: UnwindRule, readable: &Readable<'_>) -> Option<Registers> {
    if rule.is_outermost {
        return None;
    }
    let cfa = match rule.base {
        CfaBase::Signal => return step_over_signal_frame(at, readable),
        CfaBase::Stack => at.sp.checked_add_signed(rule.offset)?,
        CfaBase::Frame => at.fp.checked_add_signed(rule.offset)?,
        CfaBase::FrameSlot => readable.word(at.fp.checked_add_signed(rule.offset)?)?,
    };
    let pc = match rule.return_at {
        Some(offset) => readable.word(cfa.checked_add_signed(offset)?)?,
        None => at.link,
    };
    let fp = match rule.frame_at {
        Some(offset) => readable.word(cfa.checked_add_signed(offset)?)?,
        None => at.fp,
    };
    // The innermost frame of a leaf function on aarch64 may be empty.
    let is_higher = cfa > at.sp || (cfa == at.sp && at.is_exact && rule.return_at.is_none());
    check_registers(Registers { pc, sp: cfa, fp, link: 0, is_exact: false }).filter(|_| is_higher)
}

/// Steps one frame out by the frame pointer, which points to the saved frame pointer and the return
/// address.
#[inline(always)]
fn step_by_frame_pointer(at: &Registers, readable: &Readable<'_>) -> Option<Registers> {
    if at.fp < at.sp {
        return None;
    }
    let (fp, pc) = (readable.word(at.fp)?, readable.word(at.fp.checked_add(8)?)?);
    let sp = at.fp.checked_add(16)?;
    // The chain goes upward or ends, and no address of code lies in a stack.
    let is_chain = (fp == 0 || fp >= sp) && !readable.contains(pc);
    check_registers(Registers { pc, sp, fp, link: 0, is_exact: false }).filter(|_| is_chain)
}

/// Steps over the frame that the kernel made for a signal handler, which holds all registers.
#[inline(always)]
fn step_over_signal_frame(at: &Registers, readable: &Readable<'_>) -> Option<Registers> {
    // When the handler has returned, the stack pointer points to struct rt_sigframe; on x86-64, to
    // the field after the return address. The offsets are relative to it.
    #[cfg(target_arch = "x86_64")]
    let (fp, sp, pc, link) = (120, 160, 168, None);
    #[cfg(target_arch = "aarch64")]
    let (fp, sp, pc, link) = (544, 560, 568, Some(552));
    let read = |offset: usize| readable.word(at.sp.checked_add(offset)?);
    let link = link.map_or(Some(0), read)?;
    check_registers(Registers { pc: read(pc)?, sp: read(sp)?, fp: read(fp)?, link, is_exact: true })
}

/// Removes the signature from the program counter; `None` if it cannot be an address of code.
fn check_registers(registers: Registers) -> Option<Registers> {
    let pc = registers.pc & ((1 << ADDRESS_BITS) - 1);
    (pc >= LOWEST_CODE_ADDRESS).then_some(Registers { pc, ..registers })
}

#[cfg(test)]
mod tests;
