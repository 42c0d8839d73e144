//! The call stack of the writing thread, taken in the middle of a write.
//!
//! ```text
//!   capture ◀── write ◀── the caller ◀── … ◀── main                 frames, innermost first: from the caller on
//!      │ step by step:  pc ──▶ rule (a small table of rules found before, else .eh_frame: tables.rs)
//!      │                rule: CFA = sp or fp + n, return address and fp at CFA − m
//!      └ no rule (code that was made at run time, no glibc 2.35): frame pointer, if what it points to is sound
//! ```
//!
//! Why tables first: programs are mostly built without frame pointers, and a chain of frame pointers through such code is not broken but silently short.
//! With the rules remembered, tables are cheap: about 10 ns a frame (a frame pointer: 5 ns, a rule that is new: 150 ns), 230 ns for 20 frames and 1.1 µs for 110, where the runtime library takes 3 µs and 12 µs
//! (`cost_of_a_stack` in the tests prints the figures of a machine). Its memory comes with the record (scratch.rs): the walk itself needs little stack.
//! On threads other than the first, two system calls for each KiB of stack beyond the page in use come on top (bounds.rs says why).
//!
//! Why not the runtime library's `_Unwind_Backtrace`: it believes the stack, and a smashed one makes it read anywhere. Here each word comes from the
//! thread's own stack (bounds.rs) or is not read.
//!
//! Invariants
//!
//! 1. Memory is read in the thread's own stack, in its signal stack while it runs there, and in the unwind tables of loaded objects, nowhere else; and
//!    what of a stack is not certain to be there is read by the kernel, which finds holes and guard pages without a fault.
//! 2. Nothing is allocated, no lock is taken: a signal handler may be here. `_dl_find_object` of glibc 2.35 is made for that; where it is missing
//!    (other C libraries, static programs) there are frame pointers only.
//! 3. Each step leaves the stack pointer higher, but for the one over a signal frame, and there are [`MAX_STEPS`] at most.
//!
//! A rule is remembered by its address: of a library that was unloaded and replaced by another at the same place, the old rule may be used. Then the
//! stack ends early or has a wrong frame; invariant 1 holds all the same.
#![allow(unsafe_code)]

mod bounds;
mod tables;

use std::mem::MaybeUninit;

use bounds::Readable;
pub(super) use bounds::Work;
use tables::{Base, Rows, Rule};

/// The most frames of a stack.
pub(super) const MAX_FRAMES: usize = 192;
/// Steps of one walk: the frames, those of this library, and signal frames.
const MAX_STEPS: usize = MAX_FRAMES + 32;
/// No code lies below.
const LOWEST_CODE: usize = 4096;
/// Return addresses have this many bits; the rest may be a signature (aarch64).
const ADDRESS_BITS: u32 = 48;

/// A stack as item 6 has it: a match id of 0, then the addresses.
pub(super) struct Frames {
    words: [u64; 1 + MAX_FRAMES],
    count: usize,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { words: [0; 1 + MAX_FRAMES], count: 0 }
    }

    /// The addresses.
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

    /// The data of the item.
    pub(super) fn data(&self) -> &[u8] {
        let bytes = 8 * (1 + self.count.min(MAX_FRAMES));
        // SAFETY: the first words of the array, as bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), bytes) }
    }
}

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
struct Place {
    pc: usize,
    sp: usize,
    fp: usize,
    /// The return address, where it is in a register.
    link: usize,
    /// `pc` is the instruction that runs next, and not the one behind a call.
    exact: bool,
}

/// Which frames are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    /// An address in the frame of the function that was called to write: it and what it called are left out.
    pub(super) inside: usize,
    /// An address in the frame of the caller, as far as the compiler left it there.
    pub(super) caller: usize,
    /// Frames to leave out behind it.
    pub(super) skip: usize,
}

/// Memory for a walk.
pub(super) struct Unwinding {
    /// For files and for what the kernel reads.
    pub(super) work: Work,
    rows: MaybeUninit<Rows>,
}

impl Unwinding {
    pub(super) const fn new() -> Self {
        Self { work: Work::new(), rows: MaybeUninit::zeroed() }
    }
}

/// Takes the stack of the calling thread.
#[inline(never)]
pub(super) fn capture(frames: &mut Frames, memory: &mut Unwinding, from: From) {
    frames.count = 0;
    let here = here();
    let Unwinding { work, rows } = memory;
    // Copied from there, and not made on the stack first.
    static EMPTY: Rows = Rows::new();
    let rows = rows.write(EMPTY);
    let readable = Readable::here(here.sp, from.inside, from.caller, work);
    walk(frames, here, from, &readable, |pc| tables::rule(pc, rows));
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn here() -> Place {
    let (pc, sp, fp): (usize, usize, usize);
    // SAFETY: copies registers.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp,
            options(nomem, nostack, preserves_flags));
    }
    Place { pc, sp, fp, link: 0, exact: true }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn here() -> Place {
    let (pc, sp, fp, link): (usize, usize, usize, usize);
    // SAFETY: copies registers.
    unsafe {
        std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30",
            out(reg) pc, out(reg) sp, out(reg) fp, out(reg) link, options(nomem, nostack, preserves_flags));
    }
    Place { pc, sp, fp, link, exact: true }
}

/// Steps outward and notes where each frame goes on.
#[inline(always)]
fn walk(
    frames: &mut Frames,
    mut at: Place,
    from: From,
    readable: &Readable<'_>,
    mut rule_at: impl FnMut(usize) -> Option<Rule>,
) {
    let mut skip = from.skip;
    let mut is_inside = true;
    for _ in 0..MAX_STEPS {
        let next = match rule_at(if at.exact { at.pc } else { at.pc.wrapping_sub(1) }) {
            Some(rule) => by_rule(&at, rule, readable),
            None => by_frame_pointer(&at, readable),
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

/// One frame out, by what the tables say.
#[inline(always)]
fn by_rule(at: &Place, rule: Rule, readable: &Readable<'_>) -> Option<Place> {
    if rule.is_outermost {
        return None;
    }
    let cfa = match rule.base {
        Base::Signal => return over_signal(at, readable),
        Base::Stack => at.sp.checked_add_signed(rule.offset)?,
        Base::Frame => at.fp.checked_add_signed(rule.offset)?,
        Base::FrameSlot => readable.word(at.fp.checked_add_signed(rule.offset)?)?,
    };
    let pc = match rule.return_at {
        Some(offset) => readable.word(cfa.checked_add_signed(offset)?)?,
        None => at.link,
    };
    let fp = match rule.frame_at {
        Some(offset) => readable.word(cfa.checked_add_signed(offset)?)?,
        None => at.fp,
    };
    // The innermost frame of a leaf on aarch64 may have none.
    let moved = cfa > at.sp || (cfa == at.sp && at.exact && rule.return_at.is_none());
    sound(Place { pc, sp: cfa, fp, link: 0, exact: false }).filter(|_| moved)
}

/// One frame out, by the frame pointer: saved frame pointer and return address lie where it points to.
#[inline(always)]
fn by_frame_pointer(at: &Place, readable: &Readable<'_>) -> Option<Place> {
    if at.fp < at.sp {
        return None;
    }
    let (fp, pc) = (readable.word(at.fp)?, readable.word(at.fp.checked_add(8)?)?);
    let sp = at.fp.checked_add(16)?;
    // Upward, or the end; and no address of code lies in a stack.
    let is_chain = (fp == 0 || fp >= sp) && !readable.contains(pc);
    sound(Place { pc, sp, fp, link: 0, exact: false }).filter(|_| is_chain)
}

/// Over the frame that the kernel made for a signal handler: all registers lie there.
#[inline(always)]
fn over_signal(at: &Place, readable: &Readable<'_>) -> Option<Place> {
    // Offsets from the stack pointer in the code that the handler returns to: struct rt_sigframe behind its return address.
    #[cfg(target_arch = "x86_64")]
    let (fp, sp, pc, link) = (120, 160, 168, None);
    #[cfg(target_arch = "aarch64")]
    let (fp, sp, pc, link) = (544, 560, 568, Some(552));
    let read = |offset: usize| readable.word(at.sp.checked_add(offset)?);
    let link = link.map_or(Some(0), read)?;
    sound(Place { pc: read(pc)?, sp: read(sp)?, fp: read(fp)?, link, exact: true })
}

fn sound(place: Place) -> Option<Place> {
    let pc = place.pc & ((1 << ADDRESS_BITS) - 1);
    (pc >= LOWEST_CODE).then_some(Place { pc, ..place })
}

#[cfg(test)]
mod tests;
