//! Tests that a session which starts while programs run records the existing threads, processes and
//! images.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::dumped::{Event, Trace};
use crate::recordings::Measurement;
use crate::retry::retry_alternately_with_busy_processors;
use crate::util::Process;

/// The lowest address of the kernel.
const KERNEL_START: u64 = 1 << 63;

/// The process of the kernel's images.
const KERNEL_PROCESS: u64 = 0;

const THREAD_TERMINATED: u64 = 4;

#[test]
fn threads_and_addresses_of_running_programs_are_known() {
    // Every second attempt keeps all processors busy (`support/retry.rs`).
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let program = measurement.workload(["wait"]);
        let mut command = Command::new(&program[0]);
        let mut child =
            Process::start(command.args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut first_line = String::new();
        BufReader::new(child.stdout()).read_line(&mut first_line).unwrap();
        assert_eq!(first_line.trim(), format!("pid {}", child.id()));
        let sleep = ["sleep".into(), "1".into()];
        let options =
            ["--kernel", "cpu,cswitch,dispatcher", "--stacks", "SampledProfile,CSwitch", "--interval", "1ms"];
        let recording = measurement.record_complete(&options, &sleep);
        child.signal(Signal::KILL);
        let trace = recording.trace();
        let inventory = Inventory::from_trace(&trace);
        inventory.check_threads(&trace);
        inventory.check_addresses(&trace, u64::from(child.id()));
        let is_sample_of_child = |event: &&Event| {
            event.name == "PerfInfo/SampleProf" && event.number("ThreadId") == u64::from(child.id())
        };
        assert!(trace.events.iter().any(|event| is_sample_of_child(&event)), "the program was not sampled");
    });
}

#[test]
fn switches_to_a_thread_have_distinct_times() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        // The program sleeps and wakes continuously, from before the session starts until it ends.
        let program = measurement.workload(["naps", "100000000", "0"]);
        let child = Process::start(Command::new(&program[0]).args(&program[1..]).stdout(Stdio::null()));
        let recording =
            measurement.record_complete(&["--kernel", "cswitch,cpu"], &["sleep".into(), "0.3".into()]);
        child.signal(Signal::KILL);
        let trace = recording.trace();
        let is_of_child = |event: &&Event| event.number("NewThreadId") == u64::from(child.id());
        let switches: Vec<&Event> = trace.events_named("Thread/CSwitch").filter(is_of_child).collect();
        assert!(switches.len() > 100, "only {} switches were recorded", switches.len());
        let unordered_times: Vec<f64> = switches
            .windows(2)
            .filter(|pair| pair[0].time_ms >= pair[1].time_ms)
            .map(|pair| pair[0].time_ms)
            .collect();
        assert!(
            unordered_times.is_empty(),
            "{} of {} switches have the time of the next switch or a later one: {unordered_times:?}",
            unordered_times.len(),
            switches.len()
        );
    });
}

/// The threads, processes and images that the file describes.
struct Inventory {
    /// Process of each thread.
    threads: BTreeMap<u64, u64>,
    processes: BTreeSet<u64>,
    /// For each process, the images: start address → end address.
    images: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Inventory {
    fn from_trace(trace: &Trace) -> Self {
        let mut inventory =
            Self { threads: BTreeMap::new(), processes: BTreeSet::new(), images: BTreeMap::new() };
        for event in &trace.events {
            let process = || event.number("ProcessId");
            match event.name.as_str() {
                // A process or thread that ends during the rundown may have an end event only.
                "Process/Start" | "Process/DCStart" | "Process/End" => {
                    _ = inventory.processes.insert(process())
                }
                "Thread/Start" | "Thread/DCStart" | "Thread/End" => {
                    _ = inventory.threads.insert(event.number("TThreadId"), process())
                }
                "Image/Load" | "Image/DCStart" => {
                    let (start, size) = (event.number("ImageBase"), event.number("ImageSize"));
                    let end = inventory.images.entry(process()).or_default().entry(start).or_default();
                    *end = start.saturating_add(size).max(*end);
                }
                _ => {}
            }
        }
        inventory
    }

    /// Fails unless every thread that was sampled or switched has a thread event, and the process
    /// of every thread has a process event.
    #[track_caller]
    fn check_threads(&self, trace: &Trace) {
        let mut seen = BTreeSet::new();
        for event in &trace.events {
            match event.name.as_str() {
                "PerfInfo/SampleProf" => _ = seen.insert(event.number("ThreadId")),
                // The old thread may have ended just before the session, and have no thread event.
                "Thread/CSwitch" if event.number("OldThreadState") == THREAD_TERMINATED => {
                    _ = seen.insert(event.number("NewThreadId"))
                }
                "Thread/CSwitch" => seen.extend([event.number("NewThreadId"), event.number("OldThreadId")]),
                _ => {}
            }
        }
        // A thread in the last part of its exit has no id any more: its samples have the id −1.
        seen.remove(&u64::from(u32::MAX));
        let threads_without_event: Vec<_> =
            seen.iter().filter(|thread| !self.threads.contains_key(thread)).collect();
        assert!(
            threads_without_event.is_empty(),
            "threads without an event: {threads_without_event:?} of {}",
            seen.len()
        );
        let orphans: Vec<_> =
            self.threads.iter().filter(|(_, process)| !self.processes.contains(process)).collect();
        assert!(orphans.is_empty(), "threads without a process: {orphans:?}");
    }

    /// Fails if more than one in a thousand addresses lies outside every known image. Checks the
    /// innermost user frame and the kernel frames of all processes, and all frames of the process
    /// `workload_pid`, which has frame pointers. In programs without frame pointers, the outer
    /// frames are arbitrary stack contents; perf shows such frames, too.
    #[track_caller]
    fn check_addresses(&self, trace: &Trace, workload_pid: u64) {
        let (mut address_count, mut unknown_addresses) = (0_usize, Vec::new());
        for event in &trace.events {
            let thread = match event.name.as_str() {
                "PerfInfo/SampleProf" => event.number("ThreadId"),
                // The stack of a switch is that with which the new thread was switched out before.
                "Thread/CSwitch" => event.number("NewThreadId"),
                _ => continue,
            };
            // The idle thread began in the kernel's init code, which is freed after boot and lies
            // in no image.
            if thread == 0 {
                continue;
            }
            let process = self.threads.get(&thread).copied().unwrap_or(0);
            let kernel_frames = event.stack.iter().take_while(|frame| **frame >= KERNEL_START).count();
            let checked_frames = if process == workload_pid { event.stack.len() } else { kernel_frames + 1 };
            for frame in event.stack.iter().take(checked_frames) {
                address_count += 1;
                if !self.contains(process, *frame) && !self.contains(KERNEL_PROCESS, *frame) {
                    unknown_addresses.push((process, *frame));
                }
            }
        }
        assert!(address_count >= 1000, "only {address_count} addresses were recorded");
        assert!(
            unknown_addresses.len() * 1000 <= address_count,
            "{} of {address_count} addresses are in no image: {:x?}",
            unknown_addresses.len(),
            &unknown_addresses[..unknown_addresses.len().min(20)]
        );
    }

    fn contains(&self, process: u64, address: u64) -> bool {
        let nearest = self.images.get(&process).and_then(|images| images.range(..=address).next_back());
        nearest.is_some_and(|(_, end)| address < *end)
    }
}
