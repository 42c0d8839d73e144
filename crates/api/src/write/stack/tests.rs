use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;

use super::*;

/// Captures the caller's stack as a write does: with a frame of this library in between.
#[inline(never)]
fn capture_here() -> Box<Frames> {
    let mut frames = Box::new(Frames::new());
    let inside = 0_u64;
    let inside = (&raw const inside).addr();
    capture(&mut frames, &mut Unwinding::new(), StackStart { inside, caller: inside, skip: 0 });
    black_box(frames)
}

mod oracle {
    //! The unwinder of the runtime library.

    use super::*;

    type Callback = extern "C" fn(*mut c_void, *mut c_void) -> i32;
    unsafe extern "C" {
        fn _Unwind_Backtrace(callback: Callback, data: *mut c_void) -> i32;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }

    extern "C" fn push_address(context: *mut c_void, data: *mut c_void) -> i32 {
        // SAFETY: `data` is the vector of `capture_frames`, which no other code uses meanwhile;
        // `context` is valid during this call.
        unsafe { (*data.cast::<Vec<u64>>()).push(_Unwind_GetIP(context) as u64) };
        0
    }

    #[inline(never)]
    pub(super) fn capture_frames() -> Vec<u64> {
        let mut frames = Vec::<u64>::new();
        // SAFETY: the callback gets the vector, which lives until the call returns.
        unsafe { _Unwind_Backtrace(push_address, (&raw mut frames).cast()) };
        frames
    }
}

/// Returns whether an address is in a function, assumed to have at most 600 bytes.
fn is_in(address: u64, function: usize) -> bool {
    (function as u64..function as u64 + 600).contains(&address)
}

#[inline(never)]
fn inner(depth: u32) -> Box<Frames> {
    if depth == 0 { black_box(capture_here()) } else { black_box(inner(depth - 1)) }
}

#[inline(never)]
fn outer(depth: u32) -> Box<Frames> {
    black_box(inner(depth))
}

#[test]
fn frames_begin_at_the_caller_and_name_each_function() {
    let frames = outer(0);
    let addresses = frames.addresses();
    assert!(is_in(addresses[0], inner as fn(u32) -> Box<Frames> as usize), "{addresses:x?}");
    assert!(is_in(addresses[1], outer as fn(u32) -> Box<Frames> as usize), "{addresses:x?}");
    assert!(
        is_in(addresses[2], frames_begin_at_the_caller_and_name_each_function as fn() as usize),
        "{addresses:x?}"
    );
    assert_eq!(frames.data().len(), 8 + 8 * addresses.len());
    assert_eq!(frames.data()[..8], [0; 8], "the match id must be 0");
}

#[test]
fn runtime_library_finds_the_same_frames() {
    #[inline(never)]
    fn capture_both_ways() -> (Box<Frames>, Vec<u64>) {
        (black_box(capture_here()), black_box(oracle::capture_frames()))
    }
    for run in 0..2 {
        let (ours, theirs) = black_box(capture_both_ways());
        let ours = ours.addresses();
        // Both begin in `capture_both_ways`, at different calls; from its caller on they agree.
        let start = theirs
            .iter()
            .position(|address| *address == ours[1])
            .expect("both unwinders should find the caller's frame");
        // Some versions of the runtime library report the address 0 at the end.
        let theirs: Vec<_> = theirs[start..].iter().copied().filter(|address| *address != 0).collect();
        assert_eq!(ours[1..], theirs, "run {run}: rules from the tables, then from the cache");
        assert!(ours.len() > 5);
    }
}

#[test]
fn deep_recursion_gives_192_innermost_frames() {
    let frames = outer(500);
    assert_eq!(frames.addresses().len(), MAX_FRAMES);
    assert!(frames.addresses().iter().all(|f| is_in(*f, inner as fn(u32) -> Box<Frames> as usize)));
    // The match id and 192 frames, eight bytes each.
    assert_eq!(frames.data().len(), 8 * 193);
    assert!(outer(100).addresses().len() > 102);
}

#[test]
fn requested_frames_are_skipped() {
    #[inline(never)]
    fn capture_after_first() -> Frames {
        let mut frames = Frames::new();
        let inside = 0_u64;
        let inside = (&raw const inside).addr();
        capture(&mut frames, &mut Unwinding::new(), StackStart { inside, caller: inside, skip: 1 });
        black_box(frames)
    }
    #[inline(never)]
    fn call_capture_after_first() -> Frames {
        black_box(capture_after_first())
    }
    let frames = black_box(call_capture_after_first());
    let test = requested_frames_are_skipped as fn() as usize;
    assert!(is_in(frames.addresses()[0], test));
}

/// Walks by frame pointers alone over words on this stack; `fill` gets their address and returns
/// where to begin.
fn walk_frame_pointers(words: &mut [usize; 16], fill: impl Fn(usize, &mut [usize; 16]) -> usize) -> Vec<u64> {
    let at = words.as_ptr().expose_provenance();
    let fp = fill(at, words);
    black_box(&mut *words);
    let mut frames = Frames::new();
    let registers = Registers { pc: 0x5000, sp: at, fp, link: 0, is_exact: true };
    let mut work = WorkBuffer::new();
    let readable = Readable::for_current_stack(at, at, at, &mut work);
    walk(&mut frames, registers, StackStart { inside: 0, caller: at, skip: 0 }, &readable, |_| None);
    frames.addresses().to_vec()
}

#[test]
fn valid_frame_pointer_chain_is_followed_to_its_end() {
    let addresses = walk_frame_pointers(&mut [0; 16], |at, words| {
        (words[0], words[1]) = (at + 8 * 4, 0x1_0001);
        (words[4], words[5]) = (at + 8 * 10, 0x1_0002);
        (words[10], words[11]) = (0, 0x1_0003);
        at
    });
    assert_eq!(addresses, [0x1_0001, 0x1_0002, 0x1_0003]);
}

#[test]
fn smashed_frame_pointer_chain_ends_at_the_damage() {
    let heap = Box::leak(Box::new([0x4141_4141_usize; 4])).as_ptr().expose_provenance();
    for smashed in [1, 8, 0x4141_4141_4141_4141, usize::MAX, usize::MAX - 7, usize::MAX & !15, heap] {
        let addresses = walk_frame_pointers(&mut [0; 16], |at, words| {
            (words[0], words[1]) = (smashed, 0x1_0001);
            at
        });
        assert!(addresses.len() <= 1, "{smashed:#x}: {addresses:x?}");
        assert!(walk_frame_pointers(&mut [0; 16], |_, _| smashed).is_empty(), "{smashed:#x}");
    }
    // The word that the saved frame pointer refers to, and the return address: a frame pointer to
    // its own frame, two return addresses outside of code, and an unaligned frame pointer.
    for (next, code) in [(0, 0x1_0001), (4, 0), (4, 1), (1, 0x1_0001)] {
        let addresses = walk_frame_pointers(&mut [0; 16], |at, words| {
            (words[0], words[1]) = (at + 8 * next + usize::from(next == 1), code);
            at
        });
        assert!(addresses.len() <= 1, "{next} {code}: {addresses:x?}");
    }
    let into_the_stack = walk_frame_pointers(&mut [0; 16], |at, words| {
        (words[0], words[1]) = (at + 32, at + 64);
        at
    });
    assert!(into_the_stack.is_empty(), "an address inside the stack must not count as code");
}

#[test]
fn walk_by_tables_ends_despite_a_wrong_frame_pointer() {
    for smashed in [0, 7, 0x4141_4141_4141_4141, usize::MAX] {
        let registers = Registers { fp: smashed, ..current_registers() };
        let mut frames = Frames::new();
        let inside = 0_u64;
        let inside = (&raw const inside).addr();
        let mut work = WorkBuffer::new();
        let readable = Readable::for_current_stack(registers.sp, inside, inside, &mut work);
        walk(&mut frames, registers, StackStart { inside, caller: inside, skip: 0 }, &readable, |pc| {
            tables::find_rule(pc, &mut UnwindRows::new())
        });
        // How far the walk gets depends on which functions keep frame pointers; the walk must only
        // end.
        black_box(frames.addresses().len());
    }
}

thread_local! {
    static CAPTURED: Cell<Option<Box<Frames>>> = const { Cell::new(None) };
}

extern "C" fn handler(_signal: i32) {
    CAPTURED.set(Some(capture_here()));
}

#[inline(never)]
fn raise_signal() {
    // SAFETY: sends a signal whose handler the caller has installed.
    unsafe { libc::raise(libc::SIGUSR2) };
    black_box(());
}

fn capture_in_signal_handler(flags: i32) -> Box<Frames> {
    // SAFETY: a handler of the right type; the signal is used by these tests alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
    }
    raise_signal();
    CAPTURED.take().expect("the handler should have captured a stack")
}

#[test]
fn signal_handler_captures_the_interrupted_stack() {
    let mut memory = vec![0_u8; 64 << 10];
    // Each case has a new thread, in which the handler captures the first or the second stack.
    for (flags, is_handler_first) in
        [(0, true), (0, false), (libc::SA_ONSTACK, true), (libc::SA_ONSTACK, false)]
    {
        let memory = &mut memory;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let stack =
                    libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
                let mut before = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
                // SAFETY: the memory outlives its use as a stack, which ends below.
                assert_eq!(unsafe { libc::sigaltstack(&raw const stack, &raw mut before) }, 0);
                if !is_handler_first {
                    black_box(capture_here());
                }
                let frames = capture_in_signal_handler(flags);
                let addresses = frames.addresses();
                let position_of = |function| addresses.iter().position(|address| is_in(*address, function));
                let inside = position_of(handler as extern "C" fn(i32) as usize);
                let outside = position_of(raise_signal as fn() as usize);
                assert_eq!(inside, Some(0), "{flags} {is_handler_first}: {addresses:x?}");
                assert!(outside > inside, "{flags} {is_handler_first}: {addresses:x?}");
                // SAFETY: restores the signal stack that the first call returned.
                unsafe { libc::sigaltstack(&raw const before, std::ptr::null_mut()) };
            });
        });
    }
}

/// Calls a function on another stack.
#[cfg(target_arch = "x86_64")]
fn call_on_stack(top: *mut u8, function: extern "C" fn()) {
    // SAFETY: `top` is the aligned end of memory that is large enough; the function returns, and
    // the stack pointer is put back.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp", "mov rsp, {top}", "call {function}", "mov rsp, r12",
            top = in(reg) top, function = in(reg) function, out("r12") _, clobber_abi("C"),
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn only_the_used_part_of_a_coroutine_stack_is_read() {
    extern "C" fn routine() {
        CAPTURED.set(Some(black_box(capture_here())));
    }
    let length = 256 << 10;
    // SAFETY: a new mapping; the last page of it may not be read.
    let (memory, end) = unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        let end = memory.cast::<u8>().add(length - 4096);
        assert_eq!(libc::mprotect(end.cast(), 4096, libc::PROT_NONE), 0);
        (memory, end)
    };
    for _ in 0..2 {
        call_on_stack(end, routine);
        let frames = CAPTURED.take().unwrap();
        assert!(is_in(frames.addresses()[0], routine as extern "C" fn() as usize));
    }
    // SAFETY: mapped above; no code runs there any more.
    unsafe { libc::munmap(memory, length) };
    assert!(black_box(capture_here()).addresses().len() > 3, "the thread's own stack must still be known");
}

#[test]
#[ignore = "prints figures, judges nothing"]
fn cost_of_a_stack() {
    fn measure(label: &str, depth: u32, mut once: impl FnMut() -> usize) {
        let frames = once();
        // The best of many runs, because other programs run too.
        let runs_ns = (0..500).map(|_| {
            let start = std::time::Instant::now();
            for _ in 0..20 {
                black_box(once());
            }
            start.elapsed().as_nanos() / 20
        });
        let best_ns = runs_ns.min().unwrap_or(0);
        println!("{label}, depth {depth}: {frames} frames, {best_ns} ns");
    }
    #[inline(never)]
    fn call_at_depth(depth: u32, then: &mut dyn FnMut()) {
        if depth == 0 {
            then()
        } else {
            call_at_depth(depth - 1, then)
        }
        black_box(());
    }
    let this_function = cost_of_a_stack as fn() as usize;
    measure("a rule that is new", 0, || {
        tables::find_uncached_rule(black_box(this_function), &mut UnwindRows::new()).map_or(0, |_| 1)
    });
    let mut chain = [0; 200];
    let start = chain.as_mut_ptr().expose_provenance();
    for (index, pair) in chain.chunks_exact_mut(2).enumerate() {
        (pair[0], pair[1]) = (if index < 99 { start + 16 * (index + 1) } else { 0 }, 0x1_0000);
    }
    black_box(&mut chain);
    measure("frame pointers", 100, || {
        let mut frames = Frames::new();
        let registers = Registers { pc: 0x5000, sp: start, fp: start, link: 0, is_exact: true };
        walk(
            &mut frames,
            registers,
            StackStart { inside: 0, caller: start, skip: 0 },
            &Readable::for_current_stack(start, start, start, &mut WorkBuffer::new()),
            |_| None,
        );
        frames.addresses().len()
    });
    for depth in [0, 10, 100] {
        call_at_depth(depth, &mut || {
            measure("tables", depth, || {
                let mut frames = Frames::new();
                capture(&mut frames, &mut Unwinding::new(), StackStart { inside: 0, caller: 0, skip: 0 });
                frames.addresses().len()
            });
            measure("runtime library", depth, || oracle::capture_frames().len());
        });
    }
}
