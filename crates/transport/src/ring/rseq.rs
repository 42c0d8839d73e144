//! The fast writer: the whole record is copied inside one restartable sequence on this processor's ring and published by one store.
//!
//! ```text
//!   2: still on this processor? ── generation still ours? ── room (with the pad)? ── copy staged ── stamp ── copy rest ── head := end 5:
//!      no: 4                        no: closed                no: full                                                    commit
//!   4: the kernel comes here when the thread was preempted, moved or signalled between 2 and 5: begin again
//! ```
//!
//! The kernel promises (rseq(2)) that a thread which leaves the processor between 2 and 5 goes on at 4. So what was done up to there was
//! done alone on this processor, and the store of the head is the only thing anybody sees: there is nothing to clean up, not
//! even after SIGKILL. Everything between 2 and 5 is here in assembly, because a call would leave the range and its protection.
//!
//! Orders: x86-64 performs loads in order and stores in order, so the plain load of the tail is an acquire and the plain
//! store of the head a release; they pair with `Words::taken` and `Words::published`.
//!
//! A thread that shares the thread pointer of another one (a child of `vfork` before `exec`) must not write events.

use core::arch::asm;
use core::mem::offset_of;
use core::ptr;
use std::io::IoSlice;

use super::gather::Gather;
use super::outlet::{Outlet, Ticket};
use super::view::View;
use super::{Outcome, points};
use crate::abi;

/// How often a sequence is begun again before the lock is used: a debugger that steps through it would never let it end.
const ATTEMPTS: u32 = 64;

/// `struct rseq` (rseq(2)): the processor this thread runs on, negative while it is not registered.
const AREA_CPU_ID: usize = 4;
/// `struct rseq`: the descriptor of the sequence this thread is in.
const AREA_SEQUENCE: usize = 8;

/// What the sequence works on, in memory so that registers suffice. Found by `offset_of`, so the order of the fields does not matter.
#[repr(C)]
struct Frame {
    generation: *const u64,
    ticket: u64,
    control: *mut u8,
    data: *mut u8,
    ring_bytes: u64,
    size: u64,
    prefix: u64,
    /// The staged part of the record, behind the room for the prefix.
    body: *const u64,
    /// Bytes to copy of it: a multiple of eight, so up to seven more than the staged part has.
    body_size: u64,
    rest: *const IoSlice<'static>,
    rest_end: *const IoSlice<'static>,
    /// Where the rest goes, from the beginning of the prefix: right behind the staged part, over what was copied too much of it.
    rest_at: u64,
}

// The sequence reads the parts of the rest as pairs of an address and a length. The documentation of `IoSlice` promises that it has the ABI
// of `iovec` on Unix, and this is that of the platform.
const _: () = {
    assert!(size_of::<IoSlice<'_>>() == 16 && size_of::<libc::iovec>() == 16);
    assert!(offset_of!(libc::iovec, iov_base) == 0 && offset_of!(libc::iovec, iov_len) == 8);
};

/// Where the sequence's area is, relative to the thread pointer; 0: the C library registered none.
///
/// The symbols are weak, so that a program links and runs with a C library that does not have them.
pub(super) fn area_offset() -> isize {
    let offset: *const isize;
    let size: *const u32;
    // SAFETY: reads two entries of the global offset table, which hold the addresses of the symbols, or null.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(nostack, readonly, preserves_flags),
        );
    }
    if offset.is_null() || size.is_null() {
        return 0;
    }
    // SAFETY: both are variables of the C library, written before the program's own code runs.
    unsafe { if size.read() == 0 { 0 } else { offset.read() } }
}

/// This thread's area.
///
/// # Safety
/// `offset` is what [`area_offset`] gave, not 0.
#[inline]
unsafe fn area(offset: isize) -> *mut u8 {
    let thread: *mut u8;
    // SAFETY: the first word of a thread's block is its own address (System V ABI for x86-64, thread-local storage).
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, pure, readonly, preserves_flags))
    };
    thread.wrapping_offset(offset)
}

/// Writes a sound record of `length` bytes.
///
/// # Safety
/// The view was read while the outlet was open for this ticket and has an area, and the record is sound for `length` (see [`Gather`]).
#[inline]
pub(super) unsafe fn write(
    outlet: &Outlet,
    ticket: Ticket,
    view: &View,
    record: &mut Gather<'_>,
    length: usize,
) -> Outcome {
    // SAFETY: the view has an area.
    let area = unsafe { area(view.rseq_offset) };
    let rest = record.rest.as_ptr_range();
    let mut frame = Frame {
        generation: outlet.generation.as_ptr(),
        ticket: ticket.0,
        control: ptr::null_mut(),
        data: ptr::null_mut(),
        ring_bytes: u64::from(view.ring_bytes),
        size: abi::size_in_ring(length) as u64,
        prefix: 0,
        body: record.staged.as_ptr().wrapping_add(abi::PREFIX_BYTES / 8),
        body_size: (record.staged_size() - abi::PREFIX_BYTES) as u64,
        rest: rest.start.cast(),
        rest_end: rest.end.cast(),
        rest_at: (abi::PREFIX_BYTES + record.staged_bytes) as u64,
    };
    for _ in 0..ATTEMPTS {
        // SAFETY: the area is this thread's; the kernel may change the word at any time.
        let cpu = unsafe { area.add(AREA_CPU_ID).cast::<u32>().read_volatile() };
        // A negative number is a large one here: not registered.
        if cpu >= view.cpus {
            return Outcome::Unfit;
        }
        let ring = cpu as usize;
        frame.control = view.control(ring);
        frame.data = view.data(ring);
        // The sequence stores the counter itself.
        frame.prefix = record.prefix(length, cpu as u16);
        // SAFETY: control and data are those of ring `cpu` in a range that stays mapped for ever; the record is sound.
        match unsafe { sequence(area, cpu, &frame) } {
            (PUBLISHED, end) => {
                points::pass("published");
                return Outcome::Published { ring, end };
            }
            (FULL, _) => return Outcome::Full { ring },
            (CLOSED, _) => return Outcome::Closed,
            _ => {}
        }
    }
    Outcome::Unfit
}

const PUBLISHED: u32 = 0;
const ABORTED: u32 = 1;
const FULL: u32 = 2;
const CLOSED: u32 = 3;

/// The sequence. How it ended, and the position behind the record if it was published. It is longer than functions should be: what must
/// not leave the sequence cannot be parted.
///
/// # Safety
/// `area` is this thread's registered area. The frame's control block and data are those of processor `cpu`'s ring and mapped;
/// `body` is readable for `body_size` bytes, a multiple of eight; from `rest` to `rest_end` stand slices that are readable for what they
/// say. Prefix and body together, and `rest_at` and the rest together, are at most `size`, which is a multiple of eight; `ring_bytes` is a
/// power of two.
#[inline]
unsafe fn sequence(area: *mut u8, cpu: u32, frame: &Frame) -> (u32, u64) {
    let status: u32;
    let end: u64;
    // SAFETY: as promised by the caller. Stores go to the area, to bytes of the ring that the reader does not read (the room was
    // checked), and to the head. `nostack`: nothing is pushed. The abort handler finds all registers but those declared untouched.
    unsafe {
        asm!(
            // struct rseq_cs: version, flags, start, length, where to go on when interrupted.
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "3:",
            ".long 0, 0",
            ".quad 2f, 5f - 2f, 4f",
            ".popsection",
            "lea rax, [rip + 3b]",
            "mov qword ptr [{area} + {area_sequence}], rax",
            "2:",
            "cmp dword ptr [{area} + {area_cpu_id}], {cpu:e}",
            "jne 4f",
            "mov rax, qword ptr [{frame} + {f_generation}]",
            "mov rax, qword ptr [rax]",
            "cmp rax, qword ptr [{frame} + {f_ticket}]",
            "jne 7f",
            // r8 control, r9 head then end, r10 ring_bytes, rcx size, rdx offset, rdi destination.
            "mov r8, qword ptr [{frame} + {f_control}]",
            "mov rcx, qword ptr [{frame} + {f_size}]",
            "mov r10, qword ptr [{frame} + {f_ring_bytes}]",
            "mov r9, qword ptr [r8 + {c_head}]",
            "mov rdi, qword ptr [{frame} + {f_data}]",
            "lea rdx, [r10 - 1]",
            "and rdx, r9",
            "lea rax, [rdx + rcx]",
            "cmp rax, r10",
            "ja 23f",
            "add rdi, rdx",
            "22:",
            // The reader has had these lines: fetching those of the next records back now hides the way to the other processor's cache. As many
            // as a self-described event of the usual size fills.
            "prefetchw byte ptr [rdi + 512]",
            "prefetchw byte ptr [rdi + 576]",
            "prefetchw byte ptr [rdi + 640]",
            "prefetchw byte ptr [rdi + 704]",
            "add r9, rcx",
            "mov rax, r9",
            "sub rax, qword ptr [r8 + {c_tail}]",
            "cmp rax, r10",
            "ja 6f",
            // The staged bytes behind the prefix, in words: they were just written in words, and a wider load would have to wait
            // until those stores have left the processor.
            "mov rsi, qword ptr [{frame} + {f_body}]",
            "mov rcx, qword ptr [{frame} + {f_body_size}]",
            "mov rax, qword ptr [{frame} + {f_prefix}]",
            "mov qword ptr [rdi], rax",
            "lea rdx, [rdi + rcx - 24]",
            "mov r11, rdi",
            "cmp r11, rdx",
            "jae 30f",
            "24:",
            "mov rax, qword ptr [rsi]",
            "mov qword ptr [r11 + 16], rax",
            "mov rax, qword ptr [rsi + 8]",
            "mov qword ptr [r11 + 24], rax",
            "mov rax, qword ptr [rsi + 16]",
            "mov qword ptr [r11 + 32], rax",
            "mov rax, qword ptr [rsi + 24]",
            "mov qword ptr [r11 + 40], rax",
            "add rsi, 32",
            "add r11, 32",
            "cmp r11, rdx",
            "jb 24b",
            "30:",
            "test cl, 16",
            "jz 32f",
            "mov rax, qword ptr [rsi]",
            "mov qword ptr [r11 + 16], rax",
            "mov rax, qword ptr [rsi + 8]",
            "mov qword ptr [r11 + 24], rax",
            "add rsi, 16",
            "add r11, 16",
            "32:",
            "test cl, 8",
            "jz 25f",
            "mov rax, qword ptr [rsi]",
            "mov qword ptr [r11 + 16], rax",
            "25:",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov qword ptr [rdi + 8], rax",
            "mov rdx, qword ptr [{frame} + {f_rest}]",
            "cmp rdx, qword ptr [{frame} + {f_rest_end}]",
            "je 29f",
            // The parts that stay where they are, by moves that may overlap: starting a `rep movsb` costs more than a short copy.
            "add rdi, qword ptr [{frame} + {f_rest_at}]",
            "26:",
            "mov rsi, qword ptr [rdx]",
            "mov rcx, qword ptr [rdx + 8]",
            "cmp rcx, 8",
            "jb 27f",
            "cmp rcx, 16",
            "ja 33f",
            // 8 to 16: two words that may overlap.
            "mov rax, qword ptr [rsi]",
            "mov r11, qword ptr [rsi + rcx - 8]",
            "mov qword ptr [rdi], rax",
            "mov qword ptr [rdi + rcx - 8], r11",
            "36:",
            "add rdi, rcx",
            "37:",
            "add rdx, 16",
            "cmp rdx, qword ptr [{frame} + {f_rest_end}]",
            "jne 26b",
            "jmp 29f",
            // 4 to 7, then 1 to 3.
            "27:",
            "cmp rcx, 4",
            "jb 35f",
            "mov eax, dword ptr [rsi]",
            "mov r11d, dword ptr [rsi + rcx - 4]",
            "mov dword ptr [rdi], eax",
            "mov dword ptr [rdi + rcx - 4], r11d",
            "jmp 36b",
            "35:",
            "test rcx, rcx",
            "jz 37b",
            "movzx eax, byte ptr [rsi]",
            "mov byte ptr [rdi], al",
            "movzx eax, byte ptr [rsi + rcx - 1]",
            "mov byte ptr [rdi + rcx - 1], al",
            "mov r11, rcx",
            "shr r11, 1",
            "movzx eax, byte ptr [rsi + r11]",
            "mov byte ptr [rdi + r11], al",
            "jmp 36b",
            // 17 and more: the last sixteen, then from the front up to them.
            "33:",
            "cmp rcx, 512",
            "ja 28f",
            "movups xmm0, xmmword ptr [rsi + rcx - 16]",
            "movups xmmword ptr [rdi + rcx - 16], xmm0",
            "lea r11, [rcx - 16]",
            "xor eax, eax",
            "34:",
            "movups xmm0, xmmword ptr [rsi + rax]",
            "movups xmmword ptr [rdi + rax], xmm0",
            "add rax, 16",
            "cmp rax, r11",
            "jb 34b",
            "jmp 36b",
            "28:",
            "rep movsb",
            "jmp 37b",
            // The record does not fit before the ring's end: a marker there, the record at the start, if there is room for both.
            "23:",
            "mov r11, r10",
            "sub r11, rdx",
            "lea rax, [r9 + r11]",
            "add rax, rcx",
            "sub rax, qword ptr [r8 + {c_tail}]",
            "cmp rax, r10",
            "ja 6f",
            "mov dword ptr [rdi + rdx], {skip}",
            "add r9, r11",
            "jmp 22b",
            "29:",
            "mov qword ptr [r8 + {c_head}], r9",
            "5:",
            "xor eax, eax",
            "9:",
            ".pushsection .text.traceweir_rseq, \"ax\", @progbits",
            // The kernel asks for this signature in front of the handler, so that nothing else can be made one.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "4:",
            "mov eax, {aborted}",
            "jmp 9b",
            "6:",
            "mov eax, {full}",
            "jmp 9b",
            "7:",
            "mov eax, {closed}",
            "jmp 9b",
            ".popsection",
            area = in(reg) area,
            cpu = in(reg) cpu,
            frame = in(reg) frame,
            area_cpu_id = const AREA_CPU_ID,
            area_sequence = const AREA_SEQUENCE,
            f_generation = const offset_of!(Frame, generation),
            f_ticket = const offset_of!(Frame, ticket),
            f_control = const offset_of!(Frame, control),
            f_data = const offset_of!(Frame, data),
            f_ring_bytes = const offset_of!(Frame, ring_bytes),
            f_size = const offset_of!(Frame, size),
            f_body = const offset_of!(Frame, body),
            f_prefix = const offset_of!(Frame, prefix),
            f_body_size = const offset_of!(Frame, body_size),
            f_rest = const offset_of!(Frame, rest),
            f_rest_end = const offset_of!(Frame, rest_end),
            f_rest_at = const offset_of!(Frame, rest_at),
            c_head = const abi::control::HEAD,
            c_tail = const abi::control::TAIL,
            skip = const abi::SKIP.cast_signed(),
            aborted = const ABORTED,
            full = const FULL,
            closed = const CLOSED,
            out("rax") status,
            out("r9") end,
            out("rcx") _,
            out("rdx") _,
            out("rsi") _,
            out("rdi") _,
            out("r8") _,
            out("r10") _,
            out("r11") _,
            out("xmm0") _,
            options(nostack),
        );
    }
    (status, end)
}
