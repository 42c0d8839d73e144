//! Call stacks of events written on coroutine stacks, with memory next to them that is mapped and
//! unmapped.
//!
//! ```text
//!   │ B: in use │ A: unmapped later │ control block of the thread │   one merged mapping
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
use traceweir_transport::message::{EnableParams, SessionConfig};

const SIZE: usize = 64 << 10;
const CHILD: &str = "TRACEWEIR_TEST_COROUTINES";
const STACK_TRACE: u32 = 4;
const GUID: Guid = Guid::from_u128(0x5d1c_31f4_0e1b_4c5e_9a6b_7f2b_68c1_d0e4);

static PROVIDER: OnceLock<Provider> = OnceLock::new();
/// The coroutine stacks, which are mapped before anything else.
static FIRST: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Runs on the first thread before `main`, so that its mapping lies directly below the thread's
/// control block.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        for stack in &FIRST {
            stack.store(map(), Ordering::Relaxed);
        }
        if std::env::var_os(CHILD).is_some_and(|which| which == "first") {
            let [upper, lower] = FIRST.each_ref().map(|stack| stack.load(Ordering::Relaxed));
            write_around_unmapping(upper, lower);
            std::process::exit(0);
        }
    }
    before_main
};

fn map() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.expose_provenance()
}

extern "C" fn write() {
    let descriptor = EventDescriptor { id: 1, level: 4, ..Default::default() };
    PROVIDER.get().unwrap().write(&descriptor, &[b"x"]).unwrap();
}

fn write_on(stack: usize) {
    // SAFETY: the end of the memory is aligned, and the memory is large enough; the function
    // returns, and the stack pointer is restored.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp", "mov rsp, {top}", "call {write}", "mov rsp, r12",
            top = in(reg) stack + SIZE, write = sym write, out("r12") _, clobber_abi("C"),
        );
    }
}

/// Returns the mapping that contains an address.
fn mapping(address: usize) -> std::ops::Range<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |text| usize::from_str_radix(text, 16).unwrap();
    let mut ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    ranges
        .find_map(|(start, end)| Some(parse(start)..parse(end)).filter(|range| range.contains(&address)))
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
    assert_eq!(lower + SIZE, upper);
    let merged = mapping(thread_pointer());
    assert!(merged.contains(&lower) && merged.contains(&upper), "{merged:x?} {lower:x} {upper:x}");
    let directory = std::env::temp_dir().join(format!("traceweir-coroutines-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let config = SessionConfig {
        name: "coroutines".into(),
        log_file_mode: 1,
        log_file: Some(directory.join("trace.etl").to_str().unwrap().into()),
        ..Default::default()
    };
    let session = PrivateSession::start(&config).unwrap();
    PROVIDER.set(Provider::register(GUID, None).unwrap()).unwrap();
    session.enable(GUID, &EnableParams { property: STACK_TRACE, ..Default::default() }).unwrap();
    write_on(lower);
    // SAFETY: mapped by `map`, and no code runs on this stack.
    assert_eq!(unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(upper), SIZE) }, 0);
    write_on(lower);
    write();
    drop(session);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Runs a thread whose stack has no guard page and lies directly above two coroutine stacks.
fn write_around_unmapping_on_another_thread() {
    extern "C" fn start(lower: *mut libc::c_void) -> *mut libc::c_void {
        let lower = lower.expose_provenance();
        write_around_unmapping(lower + SIZE, lower);
        std::ptr::null_mut()
    }
    const OWN: usize = 16 * SIZE;
    // One mapping, like three that the kernel has merged.
    let length = 2 * SIZE + OWN;
    // SAFETY: the mapping outlives the thread, because the test joins it.
    unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
        assert_eq!(libc::pthread_attr_setstack(&raw mut attributes, memory.byte_add(2 * SIZE), OWN), 0);
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&raw mut thread, &raw const attributes, start, memory), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

/// Runs a test of this program in a separate process.
fn survives(which: &str, test: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, which).output().unwrap();
    assert!(output.status.success(), "signal {:?}: {output:?}", output.status.signal());
}

#[test]
fn first_thread_survives_gap_between_coroutine_and_control_block() {
    survives("first", "first_thread_survives_gap_between_coroutine_and_control_block");
}

#[test]
fn other_thread_survives_gap_between_coroutine_and_its_own_stack() {
    if std::env::var_os(CHILD).is_some() {
        return write_around_unmapping_on_another_thread();
    }
    survives("another", "other_thread_survives_gap_between_coroutine_and_its_own_stack");
}
