//! Tests that a program survives if it writes events with call stacks on a coroutine stack, before
//! and after it unmaps the stack above.
//!
//! ```text
//!   │ lower stack: in use │ upper stack: unmapped later │ control block of the thread │
//!   └───────────────────────── one merged mapping at first ───────────────────────────┘
//! ```
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use traceweir::private::PrivateSession;
use traceweir::{EventDescriptor, Provider};
use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_STACK_TRACE;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use traceweir_transport::message::{EnableParams, SessionConfig};

const STACK_BYTES: usize = 64 << 10;
/// Environment variable that makes this process the child of a test.
const CHILD_VARIABLE: &str = "TRACEWEIR_TEST_COROUTINES";
const GUID: Guid = Guid::from_u128(0x5d1c_31f4_0e1b_4c5e_9a6b_7f2b_68c1_d0e4);

static PROVIDER: OnceLock<Provider> = OnceLock::new();
/// Coroutine stacks of the first thread, the upper one first.
static FIRST_THREAD_STACKS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Runs on the first thread before `main`, so that the stacks it maps lie directly below the
/// thread's control block.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        for stack in &FIRST_THREAD_STACKS {
            stack.store(map_stack(), Ordering::Relaxed);
        }
        if std::env::var_os(CHILD_VARIABLE).is_some_and(|role| role == "first") {
            let [upper, lower] = FIRST_THREAD_STACKS.each_ref().map(|stack| stack.load(Ordering::Relaxed));
            write_around_unmapping(upper, lower);
            std::process::exit(0);
        }
    }
    before_main
};

fn map_stack() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses the address, so the new mapping replaces no memory.
    let memory = unsafe {
        libc::mmap(std::ptr::null_mut(), STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.expose_provenance()
}

extern "C" fn write_event() {
    let descriptor = EventDescriptor { id: 1, level: 4, ..Default::default() };
    PROVIDER.get().unwrap().write(&descriptor, &[b"x"]).unwrap();
}

fn write_on_stack(stack: usize) {
    // SAFETY: the end of the memory is aligned, and the memory is large enough; the function
    // returns, and the stack pointer is restored.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp", "mov rsp, {top}", "call {write}", "mov rsp, r12",
            top = in(reg) stack + STACK_BYTES, write = sym write_event, out("r12") _, clobber_abi("C"),
        );
    }
}

/// Returns the mapping that contains an address.
fn find_mapping(address: usize) -> std::ops::Range<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse_address = |text| usize::from_str_radix(text, 16).unwrap();
    let mut ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    ranges
        .find_map(|(start, end)| {
            Some(parse_address(start)..parse_address(end)).filter(|range| range.contains(&address))
        })
        .unwrap()
}

fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of the thread control block is its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, readonly, nostack)) };
    pointer
}

/// Writes on the lower stack, unmaps the stack between it and the control block, and writes again.
fn write_around_unmapping(upper: usize, lower: usize) {
    assert_eq!(lower + STACK_BYTES, upper);
    let merged = find_mapping(thread_pointer());
    assert!(merged.contains(&lower) && merged.contains(&upper), "{merged:x?} {lower:x} {upper:x}");
    let directory = std::env::temp_dir().join(format!("traceweir-coroutines-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let config = SessionConfig {
        name: "coroutines".into(),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(directory.join("trace.etl").to_str().unwrap().into()),
        ..Default::default()
    };
    let session = PrivateSession::start(&config).unwrap();
    PROVIDER.set(Provider::register(GUID, None).unwrap()).unwrap();
    session
        .enable(GUID, &EnableParams { property: EVENT_ENABLE_PROPERTY_STACK_TRACE, ..Default::default() })
        .unwrap();
    write_on_stack(lower);
    // SAFETY: `map_stack` created the mapping, and no code runs on this stack.
    assert_eq!(unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(upper), STACK_BYTES) }, 0);
    write_on_stack(lower);
    write_event();
    drop(session);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Runs a thread whose stack has no guard page and lies directly above two coroutine stacks.
fn write_around_unmapping_on_another_thread() {
    extern "C" fn start(lower: *mut libc::c_void) -> *mut libc::c_void {
        let lower = lower.expose_provenance();
        write_around_unmapping(lower + STACK_BYTES, lower);
        std::ptr::null_mut()
    }
    const THREAD_STACK_BYTES: usize = 16 * STACK_BYTES;
    // One mapping, like three that the kernel has merged.
    let length = 2 * STACK_BYTES + THREAD_STACK_BYTES;
    // SAFETY: the mapping outlives the thread, because the test joins it.
    unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
        assert_eq!(
            libc::pthread_attr_setstack(
                &raw mut attributes,
                memory.byte_add(2 * STACK_BYTES),
                THREAD_STACK_BYTES
            ),
            0
        );
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&raw mut thread, &raw const attributes, start, memory), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

/// Runs a test of this program in a separate process, and asserts that the process survives.
fn assert_child_survives(role: &str, test: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--nocapture"]).env(CHILD_VARIABLE, role).output().unwrap();
    assert!(output.status.success(), "signal {:?}: {output:?}", output.status.signal());
}

#[test]
fn first_thread_survives_gap_between_coroutine_and_control_block() {
    assert_child_survives("first", "first_thread_survives_gap_between_coroutine_and_control_block");
}

#[test]
fn other_thread_survives_gap_between_coroutine_and_its_own_stack() {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        return write_around_unmapping_on_another_thread();
    }
    assert_child_survives("another", "other_thread_survives_gap_between_coroutine_and_its_own_stack");
}
