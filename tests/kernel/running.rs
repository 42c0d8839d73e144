//! A session that starts while a program runs records the threads, processes and images that exist
//! already.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::again::again;
use crate::dumped::{Event, Trace};
use crate::stage::Stage;
use crate::util::Process;

/// The first address of the kernel half of the address space.
const KERNEL: u64 = 1 << 63;

const TERMINATED: u64 = 4;

#[test]
fn running_programs_are_resolved() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let program = stage.workload(["wait"]);
        let mut command = Command::new(&program[0]);
        let mut child =
            Process::start(command.args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut first = String::new();
        BufReader::new(child.stdout()).read_line(&mut first).unwrap();
        assert_eq!(first.trim(), format!("pid {}", child.id()));
        let sleep = ["sleep".into(), "1".into()];
        let options =
            ["--kernel", "cpu,cswitch,dispatcher", "--stacks", "SampledProfile,CSwitch", "--interval", "1ms"];
        let recording = stage.record_complete(&options, &sleep);
        child.signal(Signal::KILL);
        let trace = recording.trace();
        let inventory = Inventory::from_trace(&trace);
        inventory.check_threads(&trace);
        inventory.check_addresses(&trace, u64::from(child.id()));
        let of_child = |event: &&Event| {
            event.name == "PerfInfo/SampleProf" && event.number("ThreadId") == u64::from(child.id())
        };
        assert!(trace.0.iter().any(|event| of_child(&event)), "the program was not seen at work");
    });
}

#[test]
fn first_events_have_distinct_times() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        // Sleeps and wakes continuously, from before the session to its end.
        let program = stage.workload(["naps", "100000000", "0"]);
        let child = Process::start(Command::new(&program[0]).args(&program[1..]).stdout(Stdio::null()));
        let recording = stage.record_complete(&["--kernel", "cswitch,cpu"], &["sleep".into(), "0.3".into()]);
        child.signal(Signal::KILL);
        let trace = recording.trace();
        let is_of_child = |event: &&Event| event.number("NewThreadId") == u64::from(child.id());
        let switches: Vec<&Event> = trace.named("Thread/CSwitch").filter(is_of_child).collect();
        assert!(switches.len() > 100, "{} switches", switches.len());
        let same: Vec<f64> =
            switches.windows(2).filter(|pair| pair[0].ms >= pair[1].ms).map(|pair| pair[0].ms).collect();
        assert!(same.is_empty(), "{} of {} at {same:?}", same.len(), switches.len());
    });
}

/// The threads, processes and images that the file describes.
struct Inventory {
    /// Process of each thread.
    threads: BTreeMap<u64, u64>,
    processes: BTreeSet<u64>,
    /// End address by start address of each image, by process.
    images: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Inventory {
    fn from_trace(trace: &Trace) -> Self {
        let mut inventory =
            Self { threads: BTreeMap::new(), processes: BTreeSet::new(), images: BTreeMap::new() };
        for event in &trace.0 {
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

    /// Fails unless every thread that was sampled or switched to has a thread event, and its
    /// process has a process event.
    #[track_caller]
    fn check_threads(&self, trace: &Trace) {
        let mut seen = BTreeSet::new();
        for event in &trace.0 {
            match event.name.as_str() {
                "PerfInfo/SampleProf" => _ = seen.insert(event.number("ThreadId")),
                // The switch away from a thread that ended before is its last event.
                "Thread/CSwitch" if event.number("OldThreadState") == TERMINATED => {
                    _ = seen.insert(event.number("NewThreadId"))
                }
                "Thread/CSwitch" => seen.extend([event.number("NewThreadId"), event.number("OldThreadId")]),
                _ => {}
            }
        }
        // A thread that has exited but still runs has no id: its last samples have −1.
        seen.remove(&u64::from(u32::MAX));
        let unknown: Vec<_> = seen.iter().filter(|thread| !self.threads.contains_key(thread)).collect();
        assert!(unknown.is_empty(), "threads without an event: {unknown:?} of {}", seen.len());
        let orphans: Vec<_> =
            self.threads.iter().filter(|(_, process)| !self.processes.contains(process)).collect();
        assert!(orphans.is_empty(), "threads without a process: {orphans:?}");
    }

    /// Fails if more than one in a thousand addresses lies outside of every known image. Checked
    /// are the innermost user frame and the kernel frames of all processes, and all frames of
    /// `own`, which has frame pointers. Without frame pointers the outer frames are arbitrary stack
    /// contents, for perf too.
    #[track_caller]
    fn check_addresses(&self, trace: &Trace, own: u64) {
        let (mut all, mut strange) = (0_usize, Vec::new());
        for event in &trace.0 {
            let thread = match event.name.as_str() {
                "PerfInfo/SampleProf" => event.number("ThreadId"),
                "Thread/CSwitch" => event.number("OldThreadId"),
                _ => continue,
            };
            // The idle thread began in the kernel's init code, which is freed after boot and lies
            // in no image.
            if thread == 0 {
                continue;
            }
            let process = self.threads.get(&thread).copied().unwrap_or(0);
            let kernel = event.stack.iter().take_while(|frame| **frame >= KERNEL).count();
            let trusted = if process == own { event.stack.len() } else { kernel + 1 };
            for frame in event.stack.iter().take(trusted) {
                all += 1;
                if !self.contains(process, *frame) && !self.contains(0, *frame) {
                    strange.push((process, *frame));
                }
            }
        }
        assert!(all >= 1000, "{all} addresses");
        assert!(
            strange.len() * 1000 <= all,
            "{} of {all}: {:x?}",
            strange.len(),
            &strange[..strange.len().min(20)]
        );
    }

    fn contains(&self, process: u64, address: u64) -> bool {
        let before = self.images.get(&process).and_then(|images| images.range(..=address).next_back());
        before.is_some_and(|(_, end)| address < *end)
    }
}
