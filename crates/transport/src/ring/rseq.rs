//! The fast writer: copies a complete record inside one restartable sequence on this CPU's ring and
//! publishes it with one store.
//!
//! The kernel guarantees (rseq(2)) that a thread which is preempted, migrated or interrupted by a
//! signal between the labels 2 and 5 continues at label 4. So a sequence that reaches label 5 ran
//! alone on its CPU, and the store of `head`, its last instruction, is the only effect that another
//! thread can see. An aborted sequence leaves nothing to clean up; neither does SIGKILL. Everything
//! between 2 and 5 is assembly, because a call would leave the protected range.
//!
//! # The sequence in pseudo-code
//!
//! ```text
//! 70: area.rseq_cs = descriptor of (2, 5, 4)                           descriptor!, arm!
//! 2: cpu = area.cpu_id
//!    if words.generation != ticket                 return CLOSED      check_open!
//!    if cpu >= words.cpus                          return UNFIT
//!    control = base + HEADER_BYTES + cpu * CONTROL_BYTES              locate_ring!
//!    data    = base + data_offset + cpu * ring_bytes
//!    offset  = control.head % ring_bytes                              locate_record!
//!    if offset + size > ring_bytes
//!        pad = ring_bytes - offset                                    wrap!
//!        if head + pad + size - control.tail > ring_bytes  return FULL
//!        data[offset] = SKIP;  head += pad;  offset = 0
//!    end = head + size                                                check_room!
//!    if end - control.tail > ring_bytes            return FULL
//!    data[offset] = prefix, counter                                   write_prefix!
//!    if frame has a separate event header
//!        append header                                                copy_header!
//!        append items                                                 copy_items!
//!    else
//!        append staged words                                          copy_staged!
//!    if frame has a schema
//!        append schema, zeros up to a multiple of eight               copy_schema!
//!    for block in frame.blocks                                        copy_blocks!
//!        if block does not fit into the record     return UNFIT
//!        append block
//!    control.head = end                                               publish!
//! 5: return PUBLISHED, control, end                                   exits!
//! 4: frame.attempts -= 1;  if frame.attempts != 0  goto 70
//!    return UNFIT
//! ```
//!
//! # Labels
//!
//! Labels are local numbers, because the assembly is inlined more than once. Labels above 9 are
//! grouped by their tens digit. They begin at 20, because the assembler would read a number of only
//! zeros and ones, such as `10b`, as a binary literal. The *run* of a record is explained in
//! straight.rs.
//!
//! | Label | Place | Reached from |
//! |---|---|---|
//! | 2 | first instruction of the sequence | `arm!` |
//! | 3 | descriptor of the sequence, in a separate section | – |
//! | 4 | abort handler | the kernel, from anywhere between 2 and 5 |
//! | 5 | end of the sequence: first instruction after the store of `head` | `publish!` |
//! | 6, 7, 8 | exits: full, closed, unfit | the checks |
//! | 9 | end of the block | all exits |
//! | 20 | the record's place is known | `locate_record!`, `wrap!` |
//! | 21 | the record does not fit before the ring's end | `locate_record!` |
//! | 30 | loop: sixteen bytes of items | `copy_items!` |
//! | 31 | the frame has no separate header: its run is staged words | `copy_header!` |
//! | 32, 33, 34 | loop: four words; fewer than four are left; loop: one word | `copy_staged!` |
//! | 40 | the run is copied | `copy_items!`, `copy_staged!` |
//! | 41, 42, 43 | loop: sixteen bytes; the last thirty-two; the last sixteen | `copy_schema!` |
//! | 50 | the schema is copied | `copy_schema!` |
//! | 51 | loop: one block | `copy_blocks!` |
//! | 52, 53 | the block is copied: advance `rdi`; advance to the next block | `copy_blocks!` |
//! | 54, 55 | blocks below eight bytes, below four | `copy_blocks!` |
//! | 56, 57, 58 | blocks above sixteen bytes; loop: sixteen bytes; above 512 | `copy_blocks!` |
//! | 60 | the record is complete | `copy_blocks!`, `copy_schema!` |
//! | 70 | registration of the sequence | `arm!`, the abort handler |
//!
//! # Registers
//!
//! | Register | Value |
//! |---|---|
//! | `r8` | control block of the ring |
//! | `r9` | head; from label 20 on the position after the record |
//! | `r10` | `ring_bytes`; from `write_prefix!` on the address after the record's bytes |
//! | `rdi` | data of the ring; from label 20 on the next byte to write |
//! | `rcx`, `rdx` | size of the record and its offset in the ring; then scratch |
//! | `rax` | CPU; then the first word of the prefix; then scratch |
//! | `rsi`, `r11`, `xmm0` – `xmm2` | scratch |
//!
//! The operands `area`, `ticket`, `words` and `frame` are in registers that the sequence does not
//! change, so it can begin again.
//!
//! # Invariants
//!
//! R1 to R8 are the invariants of the [ring protocol](super); each fragment names those that it
//! upholds. The caller upholds R6 and R8: the exits return the control block, with which the caller
//! wakes the owner or counts the loss. The reader upholds R7.
//!
//! x86-64 performs loads in order and stores in order. So the plain load of `tail` is an acquire
//! and the plain store of `head` a release; they pair with `ControlWords::publish_taken` and
//! `ControlWords::load_head`.
//!
//! The sequence reads the other words of the outlet after the generation. Closing an outlet changes
//! the generation, then aborts all sequences, and only then changes those words. So a sequence that
//! publishes has read words of one opening.
//!
//! A thread that shares the thread pointer of another one (a child of `vfork` before `exec`) must
//! not write events.

use core::arch::asm;
use core::mem::offset_of;
use core::ptr;

use super::gate::Ticket;
use super::points;
use super::straight::WriteFrame;
use super::view::HotWords;
use crate::abi;

/// Offset in `struct rseq` (rseq(2)) of the CPU that runs this thread; negative while the thread is
/// not registered.
const AREA_CPU_ID: usize = 4;
/// Offset in `struct rseq` of the address of the descriptor of the current sequence.
const AREA_SEQUENCE: usize = 8;

/// Returns the offset of a thread's `struct rseq` from its thread pointer; 0 if the C library has
/// registered none.
///
/// The symbols are weak, so that a program links and runs with a C library that does not have them.
pub(super) fn area_offset() -> isize {
    let offset: *const isize;
    let size: *const u32;
    // SAFETY: reads two entries of the global offset table, which the linker creates for these
    // symbols: each entry holds the address of its symbol, or null.
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
    // SAFETY: the two pointers are not null, so they are the addresses of variables of the C
    // library with these types, which are not written after the start of the program.
    unsafe { if size.read() == 0 { 0 } else { offset.read() } }
}

/// Returns this thread's `struct rseq`.
///
/// # Safety
/// `offset` was returned by [`area_offset`] and is not 0.
#[inline]
unsafe fn area(offset: isize) -> *mut u8 {
    let thread: *mut u8;
    // SAFETY: the thread pointer is the address of a word that holds this address (System V ABI for
    // x86-64, thread-local storage).
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, pure, readonly, preserves_flags))
    };
    thread.wrapping_offset(offset)
}

/// Result of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The record is in the ring with this control block, up to this position.
    Published(*mut u8, u64),
    /// The ring with this control block is full.
    Full(*mut u8),
    /// The outlet is closed or serves another session by now.
    Closed,
    /// No sequence can write the record: the thread is not registered for sequences, its CPU has no
    /// ring, a block grew meanwhile, or every attempt was aborted.
    Unavailable,
}

/// Writes a record.
///
/// # Safety
/// `offset` was returned by [`area_offset`] and is not 0. The ticket is odd (see [`sequence`]). The
/// frame keeps its invariant (straight.rs).
#[inline(always)]
pub(super) unsafe fn write(
    words: &HotWords,
    ticket: Ticket,
    offset: isize,
    frame: &mut WriteFrame,
) -> Attempt {
    // SAFETY: the caller got `offset` from `area_offset`, and it is not 0.
    let area = unsafe { area(offset) };
    // SAFETY: `area` is the `struct rseq` that the C library registered for this thread. The caller
    // passes an odd ticket and a frame that keeps its invariant.
    match unsafe { sequence(area, words, ticket.0, frame) } {
        (PUBLISHED, control, end) => {
            points::pass("published");
            Attempt::Published(control, end)
        }
        (FULL, control, _) => Attempt::Full(control),
        (CLOSED, ..) => Attempt::Closed,
        _ => Attempt::Unavailable,
    }
}

const PUBLISHED: u32 = 0;
const FULL: u32 = 1;
const CLOSED: u32 = 2;
const UNFIT: u32 = 3;

/// Defines a fragment of the sequence: a macro of this name that expands to its instructions as one
/// string.
macro_rules! fragment {
    ($(#[$doc:meta])* $name:ident: $($line:literal,)*) => {
        $(#[$doc])*
        macro_rules! $name {
            () => { concat!($($line, "\n",)*) };
        }
    };
}

fragment! {
    /// The `struct rseq_cs` of the sequence: version, flags, start, length, abort handler. With it
    /// the kernel aborts every sequence that loses its CPU. So one thread at a time writes to a
    /// CPU's ring (R2), and `close` can abort all sequences (R5).
    descriptor:
    ".pushsection __rseq_cs, \"aw\", @progbits",
    ".balign 32",
    "3:",
    ".long 0, 0",
    ".quad 2f, 5f - 2f, 4f",
    ".popsection",
}

fragment! {
    /// Registers the descriptor: from label 2 on, the sequence is restartable (R2).
    arm:
    "70:",
    "lea rax, [rip + 3b]",
    "mov qword ptr [{area} + {area_sequence}], rax",
    "2:",
}

fragment! {
    /// Goes on only if the outlet is open for the ticket (R5) and this CPU has a ring (R2). The CPU
    /// number of an unregistered thread is negative, which as an unsigned number exceeds every
    /// count.
    check_open:
    "mov eax, dword ptr [{area} + {area_cpu_id}]",
    "cmp {ticket}, qword ptr [{words} + {w_generation}]",
    "jne 7f",
    "cmp eax, dword ptr [{words} + {w_cpus}]",
    "jae 8f",
}

fragment! {
    /// Finds the control block and the data of this CPU's ring, the only ring that the sequence may
    /// write to (R2), and adds the CPU to the first word of the prefix.
    locate_ring:
    "mov r10d, dword ptr [{words} + {w_ring_bytes}]",
    "mov rdi, qword ptr [{words} + {w_base}]",
    "mov r8, rax",
    "shl r8, {control_shift}",
    "lea r8, [rdi + r8 + {header_bytes}]",
    "mov rdx, rax",
    "imul rdx, r10",
    "add rdi, qword ptr [{words} + {w_data_offset}]",
    "add rdi, rdx",
    "shl rax, 32",
    "or rax, qword ptr [{frame} + {f_prefix}]",
}

fragment! {
    /// Finds the offset of the record in the ring. A record is contiguous, so one that does not fit
    /// before the ring's end goes through `wrap!` (R4).
    locate_record:
    "mov rcx, qword ptr [{frame} + {f_size}]",
    "mov r9, qword ptr [r8 + {c_head}]",
    "lea rdx, [r10 - 1]",
    "and rdx, r9",
    "lea r11, [rdx + rcx]",
    "cmp r11, r10",
    "ja 21f",
    "add rdi, rdx",
}

fragment! {
    /// Computes the position after the record and checks that the reader has freed all bytes up to
    /// it (R3).
    ///
    /// The cache lines of the next records may be in the cache of the reader's CPU. Prefetching
    /// hides the time to fetch them from there. Four lines are as many as a self-describing event
    /// of the usual size fills.
    check_room:
    "20:",
    "prefetchw byte ptr [rdi + 512]",
    "prefetchw byte ptr [rdi + 576]",
    "prefetchw byte ptr [rdi + 640]",
    "prefetchw byte ptr [rdi + 704]",
    "add r9, rcx",
    "mov r11, r9",
    "sub r11, qword ptr [r8 + {c_tail}]",
    "cmp r11, r10",
    "ja 6f",
}

fragment! {
    /// Writes the prefix with the counter, and keeps the end of the record's bytes: nothing is
    /// written after it (R3). No fragment from here to `publish!` stores to the control block (R1).
    write_prefix:
    "lea r10, [rdi + rcx]",
    "mov qword ptr [rdi], rax",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov qword ptr [rdi + 8], rax",
}

fragment! {
    /// Copies the header of an event, if the frame has one, to the 80 bytes that follow the prefix.
    /// Its size is part of the frame's size (R3).
    copy_header:
    "mov rsi, qword ptr [{frame} + {f_provider}]",
    "test rsi, rsi",
    "jz 31f",
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
}

fragment! {
    /// Copies the items of an event, which have at least sixteen bytes if there are any: first the
    /// last sixteen bytes, then the bytes from the front up to those. The items were stored long
    /// ago, so wide loads do not stall. Their size is part of the frame's size (R3).
    copy_items:
    "mov rsi, qword ptr [{frame} + {f_run}]",
    "mov rdx, qword ptr [{frame} + {f_run_end}]",
    "sub rdx, rsi",
    "je 40f",
    "movups xmm0, xmmword ptr [rsi + rdx - 16]",
    "movups xmmword ptr [rdi + rdx + 80], xmm0",
    "sub rdx, 16",
    "je 40f",
    "xor eax, eax",
    "30:",
    "movups xmm1, xmmword ptr [rsi + rax]",
    "movups xmmword ptr [rdi + rax + 96], xmm1",
    "add rax, 16",
    "cmp rax, rdx",
    "jb 30b",
    "jmp 40f",
}

fragment! {
    /// Copies the staged words of a record whose frame has no separate header, word by word: the
    /// caller has just stored them as words, and a wider load would wait until those stores have
    /// left the store buffer. Their size is part of the frame's size (R3).
    copy_staged:
    "31:",
    "lea r11, [rdi + {prefix_bytes}]",
    "mov rsi, qword ptr [{frame} + {f_run}]",
    "mov rdx, qword ptr [{frame} + {f_run_end}]",
    "cmp rsi, rdx",
    "je 40f",
    "sub rdx, 24",
    "cmp rsi, rdx",
    "jae 33f",
    "32:",
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
    "jb 32b",
    "33:",
    "add rdx, 24",
    "cmp rsi, rdx",
    "je 40f",
    "34:",
    "mov rax, qword ptr [rsi]",
    "mov qword ptr [r11], rax",
    "add rsi, 8",
    "add r11, 8",
    "cmp rsi, rdx",
    "jne 34b",
}

fragment! {
    /// Copies the schema, if the frame has one: its header, zeros in the last word, the bytes from
    /// the front, then the last sixteen or thirty-two bytes, which may overlap those before. A
    /// schema has at least sixteen bytes (`MIN_SCHEMA_BYTES`), and its size is part of the frame's
    /// size (R3).
    copy_schema:
    "40:",
    "add rdi, qword ptr [{frame} + {f_after_run}]",
    "mov rax, qword ptr [{frame} + {f_schema_header}]",
    "test rax, rax",
    "jz 50f",
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
    "jbe 43f",
    "movups xmm0, xmmword ptr [rsi + 16]",
    "movups xmm2, xmmword ptr [rsi + rcx - 32]",
    "movups xmmword ptr [rdi + 24], xmm0",
    "cmp rcx, 64",
    "jbe 42f",
    "mov eax, 32",
    "lea r11, [rcx - 32]",
    "41:",
    "movups xmm0, xmmword ptr [rsi + rax]",
    "movups xmmword ptr [rdi + rax + 8], xmm0",
    "add rax, 16",
    "cmp rax, r11",
    "jb 41b",
    "42:",
    "movups xmmword ptr [rdi + rcx - 24], xmm2",
    "43:",
    "movups xmmword ptr [rdi + rcx - 8], xmm1",
    "lea rdi, [rdi + rdx + 8]",
}

fragment! {
    /// Copies the blocks of the payload by moves that may overlap: starting `rep movsb` costs more
    /// than a short copy, so only blocks above 512 bytes use it. The sizes are in memory of a
    /// program that may change them meanwhile, so each is read once and checked against the end of
    /// the record's bytes (R3).
    copy_blocks:
    "50:",
    "mov rdx, qword ptr [{frame} + {f_blocks}]",
    "cmp rdx, qword ptr [{frame} + {f_blocks_end}]",
    "je 60f",
    "51:",
    "mov rsi, qword ptr [rdx]",
    "mov ecx, dword ptr [rdx + 8]",
    "lea r11, [rdi + rcx]",
    "cmp r11, r10",
    "ja 8f",
    "cmp rcx, 8",
    "jb 54f",
    "cmp rcx, 16",
    "ja 56f",
    // 8 to 16 bytes: the first and the last word.
    "mov rax, qword ptr [rsi]",
    "mov r11, qword ptr [rsi + rcx - 8]",
    "mov qword ptr [rdi], rax",
    "mov qword ptr [rdi + rcx - 8], r11",
    "52:",
    "add rdi, rcx",
    "53:",
    "add rdx, 16",
    "cmp rdx, qword ptr [{frame} + {f_blocks_end}]",
    "jne 51b",
    "jmp 60f",
    // 4 to 7 bytes: the first and the last half word.
    "54:",
    "cmp rcx, 4",
    "jb 55f",
    "mov eax, dword ptr [rsi]",
    "mov r11d, dword ptr [rsi + rcx - 4]",
    "mov dword ptr [rdi], eax",
    "mov dword ptr [rdi + rcx - 4], r11d",
    "jmp 52b",
    // 1 to 3 bytes: the first, the last and the middle byte.
    "55:",
    "test rcx, rcx",
    "jz 53b",
    "movzx eax, byte ptr [rsi]",
    "mov byte ptr [rdi], al",
    "movzx eax, byte ptr [rsi + rcx - 1]",
    "mov byte ptr [rdi + rcx - 1], al",
    "mov r11, rcx",
    "shr r11, 1",
    "movzx eax, byte ptr [rsi + r11]",
    "mov byte ptr [rdi + r11], al",
    "jmp 52b",
    // 17 to 512 bytes: the first and the last sixteen bytes, then the bytes between them.
    "56:",
    "cmp rcx, 512",
    "ja 58f",
    "movups xmm0, xmmword ptr [rsi]",
    "movups xmm1, xmmword ptr [rsi + rcx - 16]",
    "movups xmmword ptr [rdi], xmm0",
    "movups xmmword ptr [rdi + rcx - 16], xmm1",
    "cmp rcx, 32",
    "jbe 52b",
    "lea r11, [rcx - 16]",
    "mov eax, 16",
    "57:",
    "movups xmm0, xmmword ptr [rsi + rax]",
    "movups xmmword ptr [rdi + rax], xmm0",
    "add rax, 16",
    "cmp rax, r11",
    "jb 57b",
    "jmp 52b",
    // More than 512 bytes: `rep movsb` advances the destination itself.
    "58:",
    "rep movsb",
    "jmp 53b",
}

fragment! {
    /// Writes a marker to the ring's end and moves the record to the ring's start (R4), if the
    /// marker and the record fit (R3). One store publishes the marker and the record (R1).
    wrap:
    "21:",
    "mov rsi, r10",
    "sub rsi, rdx",
    "lea r11, [r9 + rsi]",
    "add r11, rcx",
    "sub r11, qword ptr [r8 + {c_tail}]",
    "cmp r11, r10",
    "ja 6f",
    "mov dword ptr [rdi + rdx], {skip}",
    "add r9, rsi",
    "jmp 20b",
}

fragment! {
    /// Publishes the record: the only store that another thread sees, and the last instruction of
    /// the sequence (R1). After it, the sequence cannot be aborted any more. Before it, the
    /// sequence has written no record.
    publish:
    "60:",
    "mov qword ptr [r8 + {c_head}], r9",
    "5:",
}

fragment! {
    /// Returns how the sequence ended. The exits of unpublished records are in a separate section,
    /// away from the usual path. They undo nothing: without the store of `head` there is no record
    /// (R1). The kernel requires the signature `0x53053053` before the abort handler, so that no
    /// other code can be used as an abort handler. The three bytes before the signature make it the
    /// operand of an invalid instruction (`ud1`). The abort handler starts the sequence again: the
    /// kernel has disarmed it.
    exits:
    "xor eax, eax",
    "9:",
    ".pushsection .text.traceweir_rseq, \"ax\", @progbits",
    ".byte 0x0f, 0xb9, 0x3d",
    ".long 0x53053053",
    "4:",
    "dec dword ptr [{frame} + {f_attempts}]",
    "jnz 70b",
    "jmp 8f",
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
}

/// Runs the sequence, again after each abort until the attempts of the frame are used up. Returns
/// how it ended; the control block of its ring, valid after `PUBLISHED` and `FULL`; and the position
/// after the record, valid after `PUBLISHED`.
///
/// # Safety
/// `area` is this thread's registered `struct rseq`. The ticket is odd: an outlet whose generation
/// equals an odd ticket is open, and its other words describe a mapped region. The frame keeps its
/// invariant.
#[inline(always)]
unsafe fn sequence(
    area: *mut u8,
    words: &HotWords,
    ticket: u64,
    frame: &mut WriteFrame,
) -> (u32, *mut u8, u64) {
    let status: u32;
    let control: *mut u8;
    let end: u64;
    // SAFETY: the stores go to the thread's own area, to bytes of the ring that `check_room!` and
    // `wrap!` found free, and to `head`. An outlet that is open for the ticket has a mapped region;
    // a closed outlet keeps its addresses mapped forever. The loads from the frame's addresses stay
    // within the sizes that its invariant guarantees. The abort handler stores to the frame, which
    // is borrowed mutably. `nostack`: nothing is pushed. No instruction changes a register of an
    // input, and the others are declared as outputs.
    unsafe {
        asm!(
            descriptor!(),
            arm!(),
            check_open!(),
            locate_ring!(),
            locate_record!(),
            check_room!(),
            write_prefix!(),
            copy_header!(),
            copy_items!(),
            copy_staged!(),
            copy_schema!(),
            copy_blocks!(),
            wrap!(),
            publish!(),
            exits!(),
            area = in(reg) area,
            ticket = in(reg) ticket,
            words = in(reg) ptr::from_ref(words),
            frame = in(reg) ptr::from_mut(frame),
            area_cpu_id = const AREA_CPU_ID,
            area_sequence = const AREA_SEQUENCE,
            w_generation = const offset_of!(HotWords, generation),
            w_base = const offset_of!(HotWords, base),
            w_data_offset = const offset_of!(HotWords, data_offset),
            w_cpus = const offset_of!(HotWords, cpus),
            w_ring_bytes = const offset_of!(HotWords, ring_bytes),
            prefix_bytes = const abi::PREFIX_BYTES,
            header_bytes = const abi::HEADER_BYTES,
            control_shift = const abi::CONTROL_BYTES.trailing_zeros(),
            f_attempts = const offset_of!(WriteFrame, attempts),
            f_size = const offset_of!(WriteFrame, size),
            f_prefix = const offset_of!(WriteFrame, prefix),
            f_provider = const offset_of!(WriteFrame, provider),
            f_first = const offset_of!(WriteFrame, first),
            f_thread = const offset_of!(WriteFrame, thread),
            f_descriptor = const offset_of!(WriteFrame, descriptor),
            f_activity = const offset_of!(WriteFrame, activity),
            f_run = const offset_of!(WriteFrame, run),
            f_run_end = const offset_of!(WriteFrame, run_end),
            f_after_run = const offset_of!(WriteFrame, after_run),
            f_schema_header = const offset_of!(WriteFrame, schema_header),
            f_schema = const offset_of!(WriteFrame, schema),
            f_schema_bytes = const offset_of!(WriteFrame, schema_bytes),
            f_blocks = const offset_of!(WriteFrame, blocks),
            f_blocks_end = const offset_of!(WriteFrame, blocks_end),
            c_head = const abi::control::HEAD,
            c_tail = const abi::control::TAIL,
            skip = const abi::SKIP.cast_signed(),
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
