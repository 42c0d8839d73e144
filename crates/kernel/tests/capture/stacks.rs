//! Stacks of a program without frame pointers, unwound with DWARF tables, and of a program with
//! frame pointers.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use traceweir_format::header::Record;
use traceweir_format::kernel::hook::{CONTEXT_SWITCH, STACK_WALK};
use traceweir_kernel::{CaptureSettings, Group, Groups};

use crate::retry::retry_alternately_with_busy_processors;
use crate::support;
use crate::support::NanosecondClock;

const SOURCE: &str = r#"
#include <stdio.h>
#include <time.h>
#define DEEP __attribute__((noinline, noclone))
static volatile int sink;
DEEP static void innermost(void) { struct timespec a = {0, 1000000}; nanosleep(&a, 0); sink++; }
DEEP static void middle(void) { char room[512]; for (int i = 0; i < 512; i++) ((volatile char *)room)[i] = 1; innermost(); sink += room[7]; }
DEEP static void outermost(void) { middle(); sink++; }
int main(void) {
    printf("%p %p %p %p\n", (void *)innermost, (void *)middle, (void *)outermost, (void *)main);
    fflush(stdout);
    while (getchar() == 'x') { outermost(); putchar('.'); fflush(stdout); }
    return 0;
}
"#;

/// Starts a program that sleeps, four functions deep, for each byte of input. Returns it with the
/// addresses of its functions.
fn start_sleeping_program(folder: &Path, flags: &[&str]) -> (Child, Vec<u64>) {
    let (source, program) = (folder.join("deep.c"), folder.join("deep"));
    std::fs::write(&source, SOURCE).expect("the bytes are not written");
    let status = Command::new("cc")
        .args(["-O2", "-fno-optimize-sibling-calls"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    assert!(status.expect("the C compiler does not run").success());
    // Unwind tables of files that other users may write are not trusted.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("the mode is not set");
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the start fails");
    let mut line = String::new();
    // The program prints nothing after this line before it gets input.
    BufReader::new(child.stdout.as_mut().expect("the program has no output"))
        .read_line(&mut line)
        .expect("the program prints no addresses");
    let address = |text: &str| {
        u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("the program prints no addresses")
    };
    let addresses = line.split_whitespace().map(address).collect();
    (child, addresses)
}

/// Returns the user frames of the switches away from the program while it sleeps twenty times.
/// Skips the test and returns `None` if the capture does not start.
fn capture_stacks(settings: &CaptureSettings, child: &mut Child) -> Option<Vec<Vec<u64>>> {
    const ROUNDS: usize = 20;
    let cpus = support::cpu_count();
    let (mut capture, _) = support::start_or_skip(settings, cpus)?;
    let mut input = child.stdin.take().expect("the program has no input");
    let output = child.stdout.as_mut().expect("the program has no output");
    // The capture copies 16 KiB for each switch of the machine, so rings that are not emptied in
    // each round overflow beside other busy programs.
    for _ in 0..ROUNDS {
        capture.poll(&NanosecondClock, false);
        input.write_all(b"x").expect("the byte is not written");
        // The program answers after its sleep.
        output.read_exact(&mut [0]).expect("the program does not answer");
    }
    capture.end(&NanosecondClock);
    drop(input);
    child.wait().expect("the program does not end");
    let mut user_stacks = Vec::new();
    for cpu in 0..cpus {
        while let Some((_, bytes)) = support::pop_record(&mut capture, cpu) {
            let record = Record::parse(&bytes, cpu).expect("invalid record");
            // A stack walk: time, process and thread, frames. User addresses have bit 63 clear.
            let words: Vec<u64> = record
                .payload()
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect();
            let is_ours =
                words.get(1).is_some_and(|ids| *ids == u64::from(child.id()) << 32 | u64::from(child.id()));
            if record.hook() == Some(STACK_WALK)
                && is_ours
                && words.get(2).is_some_and(|frame| frame >> 63 == 0)
            {
                user_stacks.push(words[2..].to_vec());
            }
        }
    }
    Some(user_stacks)
}

/// Asserts that the stacks of almost all sleeps contain these functions, innermost first.
fn assert_stacks_contain(stacks: &[Vec<u64>], functions: &[u64]) {
    // Each function is shorter than this, in bytes.
    const MAX_FUNCTION_BYTES: u64 = 256;
    let contains_functions = |stack: &&Vec<u64>| {
        let mut frames = stack.iter();
        functions
            .iter()
            .all(|start| frames.any(|frame| (*start..*start + MAX_FUNCTION_BYTES).contains(frame)))
    };
    let matching = stacks.iter().filter(contains_functions).count();
    assert!(
        matching >= 18,
        "{matching} of {} stacks go through {functions:x?}: {:x?}",
        stacks.len(),
        stacks.first()
    );
}

fn settings(stack_bytes: u32) -> CaptureSettings {
    CaptureSettings {
        groups: Groups::new(&[Group::CSWITCH]),
        stacks: vec![CONTEXT_SWITCH],
        stack_bytes,
        ring_bytes: 8 << 20,
        ..CaptureSettings::default()
    }
}

#[test]
fn program_without_frame_pointers_is_unwound_with_tables() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        for flags in [&["-fomit-frame-pointer"][..], &["-fomit-frame-pointer", "-no-pie"]] {
            let (mut child, functions) = start_sleeping_program(folder.path(), flags);
            let Some(stacks) = capture_stacks(&settings(16 << 10), &mut child) else { return };
            assert_stacks_contain(&stacks, &functions);
        }
    });
}

#[test]
fn program_with_frame_pointers_needs_no_tables() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        let (mut child, functions) = start_sleeping_program(folder.path(), &["-fno-omit-frame-pointer"]);
        let Some(stacks) = capture_stacks(&settings(0), &mut child) else { return };
        // The C library's `nanosleep` has no frame of its own, so the stack lacks its caller, the
        // first of these functions.
        assert_stacks_contain(&stacks, &functions[1..]);
    });
}
