//! The fast writer: the whole record is copied inside one restartable sequence on this processor's ring and published by one store.
//!
//! ```text
//!   2: this processor's ring ── generation still ours? ── room (with the pad)? ── stamp ── copy the pieces ── head := end 5:
//!      none: unfit             no: closed                 no: full                                            commit
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

//! What the sequence reads of the outlet it reads behind the generation: an outlet that is closed changes the generation, aborts all sequences, and
//! only then its other words. So they belong together.

use core::arch::asm;
use core::mem::offset_of;
use core::ptr;

use super::outlet::{Outlet, Ticket};
use super::points;
use super::straight::Frame;
use crate::abi;

/// How often a sequence is begun again before the lock is used: a debugger that steps through it would never let it end.
const ATTEMPTS: u32 = 64;

/// `struct rseq` (rseq(2)): the processor this thread runs on, negative while it is not registered.
const AREA_CPU_ID: usize = 4;
/// `struct rseq`: the descriptor of the sequence this thread is in.
const AREA_SEQUENCE: usize = 8;

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

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It is in the ring with this control block, up to this position.
    Published(*mut u8, u64),
    /// The ring with this control block has no room.
    Full(*mut u8),
    /// The outlet serves somebody else by now.
    Closed,
    /// The thread has no sequence, or its processor no ring.
    Unfit,
}

/// Writes a record.
///
/// # Safety
/// `offset` is what [`area_offset`] gave, not 0. The ticket is odd. The frame keeps its invariant.
#[inline(always)]
pub(super) unsafe fn write(outlet: &Outlet, ticket: Ticket, offset: isize, frame: &Frame) -> Attempt {
    // SAFETY: by the contract.
    let area = unsafe { area(offset) };
    for _ in 0..ATTEMPTS {
        // SAFETY: by the contract.
        match unsafe { sequence(area, outlet, ticket.0, frame) } {
            (PUBLISHED, control, end) => {
                points::pass("published");
                return Attempt::Published(control, end);
            }
            (FULL, control, _) => return Attempt::Full(control),
            (CLOSED, ..) => return Attempt::Closed,
            (ABORTED, ..) => {}
            _ => return Attempt::Unfit,
        }
    }
    Attempt::Unfit
}

const PUBLISHED: u32 = 0;
const ABORTED: u32 = 1;
const FULL: u32 = 2;
const CLOSED: u32 = 3;
const UNFIT: u32 = 4;

/// The sequence. How it ended, the control block of its ring if it got that far, and the position behind the record if it was published. It is longer than
/// functions should be: what must not leave the sequence cannot be parted.
///
/// # Safety
/// `area` is this thread's registered area. The ticket is odd: an outlet that has it as its generation is open, and its words are those of a region that is mapped. The
/// frame keeps its invariant.
#[inline(always)]
unsafe fn sequence(area: *mut u8, outlet: &Outlet, ticket: u64, frame: &Frame) -> (u32, *mut u8, u64) {
    let status: u32;
    let control: *mut u8;
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
            // Open for us? A processor number that is negative, because the thread is not registered, is a large one.
            "mov eax, dword ptr [{area} + {area_cpu_id}]",
            "cmp {ticket}, qword ptr [{outlet} + {o_generation}]",
            "jne 7f",
            "cmp eax, dword ptr [{outlet} + {o_cpus}]",
            "jae 8f",
            // r8 control, r9 head then end, r10 ring_bytes first, rcx size, rdx offset, rdi destination, rax prefix.
            "mov r10d, dword ptr [{outlet} + {o_ring_bytes}]",
            "mov rdi, qword ptr [{outlet} + {o_base}]",
            "mov r8, rax",
            "shl r8, {control_shift}",
            "lea r8, [rdi + r8 + {header_bytes}]",
            "mov rdx, rax",
            "imul rdx, r10",
            "add rdi, qword ptr [{outlet} + {o_data_offset}]",
            "add rdi, rdx",
            "shl rax, 32",
            "or rax, qword ptr [{frame} + {f_prefix}]",
            "mov rcx, qword ptr [{frame} + {f_size}]",
            "mov r9, qword ptr [r8 + {c_head}]",
            "lea rdx, [r10 - 1]",
            "and rdx, r9",
            "lea r11, [rdx + rcx]",
            "cmp r11, r10",
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
            "mov r11, r9",
            "sub r11, qword ptr [r8 + {c_tail}]",
            "cmp r11, r10",
            "ja 6f",
            // From now on r10 is where the record's room ends.
            "lea r10, [rdi + rcx]",
            "mov qword ptr [rdi], rax",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov qword ptr [rdi + 8], rax",
            // The header of an event.
            "mov rsi, qword ptr [{frame} + {f_provider}]",
            "test rsi, rsi",
            "jz 40f",
            "mov rax, qword ptr [{frame} + {f_first}]",
            "mov rcx, qword ptr [{frame} + {f_thread}]",
            "mov qword ptr [rdi + 16], rax",
            "mov qword ptr [rdi + 24], rcx",
            "mov qword ptr [rdi + 32], 0",
            "movups xmm0, xmmword ptr [rsi]",
            "mov rax, qword ptr [{frame} + {f_descriptor}]",
            "movups xmm1, xmmword ptr [rax]",
            "mov rcx, qword ptr [{frame} + {f_activity}]",
            "movups xmm2, xmmword ptr [rcx]",
            "movups xmmword ptr [rdi + 40], xmm0",
            "movups xmmword ptr [rdi + 56], xmm1",
            "mov qword ptr [rdi + 72], 0",
            "movups xmmword ptr [rdi + 80], xmm2",
            // Its run has been in memory for long: the last sixteen bytes, then from the front up to them.
            "mov rsi, qword ptr [{frame} + {f_run}]",
            "mov rdx, qword ptr [{frame} + {f_run_end}]",
            "sub rdx, rsi",
            "je 44f",
            "movups xmm0, xmmword ptr [rsi + rdx - 16]",
            "movups xmmword ptr [rdi + rdx + 80], xmm0",
            "sub rdx, 16",
            "je 44f",
            "xor eax, eax",
            "47:",
            "movups xmm1, xmmword ptr [rsi + rax]",
            "movups xmmword ptr [rdi + rax + 96], xmm1",
            "add rax, 16",
            "cmp rax, rdx",
            "jb 47b",
            "jmp 44f",
            // A staged part, in words: what was just written in words cannot be loaded by anything wider until those stores have left the processor.
            "40:",
            "lea r11, [rdi + {prefix_bytes}]",
            "mov rsi, qword ptr [{frame} + {f_run}]",
            "mov rdx, qword ptr [{frame} + {f_run_end}]",
            "cmp rsi, rdx",
            "je 44f",
            "sub rdx, 24",
            "cmp rsi, rdx",
            "jae 42f",
            "41:",
            "mov rax, qword ptr [rsi]",
            "mov rcx, qword ptr [rsi + 8]",
            "mov qword ptr [r11], rax",
            "mov qword ptr [r11 + 8], rcx",
            "mov rax, qword ptr [rsi + 16]",
            "mov rcx, qword ptr [rsi + 24]",
            "mov qword ptr [r11 + 16], rax",
            "mov qword ptr [r11 + 24], rcx",
            "add rsi, 32",
            "add r11, 32",
            "cmp rsi, rdx",
            "jb 41b",
            "42:",
            "add rdx, 24",
            "cmp rsi, rdx",
            "je 44f",
            "43:",
            "mov rax, qword ptr [rsi]",
            "mov qword ptr [r11], rax",
            "add rsi, 8",
            "add r11, 8",
            "cmp rsi, rdx",
            "jne 43b",
            "44:",
            "add rdi, qword ptr [{frame} + {f_behind_run}]",
            // The schema: zeros in its last word, then the bytes from the front, then the last sixteen or thirty-two, which may overlap.
            "mov rax, qword ptr [{frame} + {f_schema_head}]",
            "test rax, rax",
            "jz 46f",
            "mov rcx, qword ptr [{frame} + {f_schema_bytes}]",
            "mov rsi, qword ptr [{frame} + {f_schema}]",
            "lea rdx, [rcx + 7]",
            "and rdx, -8",
            "mov qword ptr [rdi], rax",
            "mov qword ptr [rdi + rdx], 0",
            "movups xmm0, xmmword ptr [rsi]",
            "movups xmm1, xmmword ptr [rsi + rcx - 16]",
            "movups xmmword ptr [rdi + 8], xmm0",
            "cmp rcx, 32",
            "jbe 49f",
            "movups xmm0, xmmword ptr [rsi + 16]",
            "movups xmm2, xmmword ptr [rsi + rcx - 32]",
            "movups xmmword ptr [rdi + 24], xmm0",
            "cmp rcx, 64",
            "jbe 48f",
            "mov eax, 32",
            "lea r11, [rcx - 32]",
            "45:",
            "movups xmm0, xmmword ptr [rsi + rax]",
            "movups xmmword ptr [rdi + rax + 8], xmm0",
            "add rax, 16",
            "cmp rax, r11",
            "jb 45b",
            "48:",
            "movups xmmword ptr [rdi + rcx - 24], xmm2",
            "49:",
            "movups xmmword ptr [rdi + rcx - 8], xmm1",
            "lea rdi, [rdi + rdx + 8]",
            "46:",
            "mov rdx, qword ptr [{frame} + {f_blocks}]",
            "cmp rdx, qword ptr [{frame} + {f_blocks_end}]",
            "je 29f",
            // The blocks, by moves that may overlap: starting a `rep movsb` costs more than a short copy.
            "26:",
            "mov rsi, qword ptr [rdx]",
            "mov ecx, dword ptr [rdx + 8]",
            // Sizes lie in the memory of a program that may change them under us.
            "lea r11, [rdi + rcx]",
            "cmp r11, r10",
            "ja 8f",
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
            "cmp rdx, qword ptr [{frame} + {f_blocks_end}]",
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
            "movups xmm0, xmmword ptr [rsi]",
            "movups xmm1, xmmword ptr [rsi + rcx - 16]",
            "movups xmmword ptr [rdi], xmm0",
            "movups xmmword ptr [rdi + rcx - 16], xmm1",
            "cmp rcx, 32",
            "jbe 36b",
            "lea r11, [rcx - 16]",
            "mov eax, 16",
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
            "mov rsi, r10",
            "sub rsi, rdx",
            "lea r11, [r9 + rsi]",
            "add r11, rcx",
            "sub r11, qword ptr [r8 + {c_tail}]",
            "cmp r11, r10",
            "ja 6f",
            "mov dword ptr [rdi + rdx], {skip}",
            "add r9, rsi",
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
            "8:",
            "mov eax, {unfit}",
            "jmp 9b",
            ".popsection",
            area = in(reg) area,
            ticket = in(reg) ticket,
            outlet = in(reg) ptr::from_ref(outlet),
            frame = in(reg) frame,
            area_cpu_id = const AREA_CPU_ID,
            area_sequence = const AREA_SEQUENCE,
            o_generation = const offset_of!(Outlet, generation),
            o_base = const offset_of!(Outlet, base),
            o_data_offset = const offset_of!(Outlet, data_offset),
            o_cpus = const offset_of!(Outlet, cpus),
            o_ring_bytes = const offset_of!(Outlet, ring_bytes),
            prefix_bytes = const abi::PREFIX_BYTES,
            header_bytes = const abi::HEADER_BYTES,
            control_shift = const abi::CONTROL_BYTES.trailing_zeros(),
            f_size = const offset_of!(Frame, size),
            f_prefix = const offset_of!(Frame, prefix),
            f_provider = const offset_of!(Frame, provider),
            f_first = const offset_of!(Frame, first),
            f_thread = const offset_of!(Frame, thread),
            f_descriptor = const offset_of!(Frame, descriptor),
            f_activity = const offset_of!(Frame, activity),
            f_run = const offset_of!(Frame, run),
            f_run_end = const offset_of!(Frame, run_end),
            f_behind_run = const offset_of!(Frame, behind_run),
            f_schema_head = const offset_of!(Frame, schema_head),
            f_schema = const offset_of!(Frame, schema),
            f_schema_bytes = const offset_of!(Frame, schema_bytes),
            f_blocks = const offset_of!(Frame, blocks),
            f_blocks_end = const offset_of!(Frame, blocks_end),
            c_head = const abi::control::HEAD,
            c_tail = const abi::control::TAIL,
            skip = const abi::SKIP.cast_signed(),
            aborted = const ABORTED,
            full = const FULL,
            closed = const CLOSED,
            unfit = const UNFIT,
            out("rax") status,
            out("r8") control,
            out("r9") end,
            out("rcx") _,
            out("rdx") _,
            out("rsi") _,
            out("rdi") _,
            out("r10") _,
            out("r11") _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            options(nostack),
        );
    }
    (status, control, end)
}

const _: () = assert!(abi::CONTROL_BYTES.is_power_of_two());
