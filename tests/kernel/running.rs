//! A session that starts while a program runs knows it: each thread, each process, and where each address lies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::again::again;
use crate::dumped::{Event, Trace};
use crate::stage::Stage;
use crate::util::Process;

/// The first address of the kernel's half.
const KERNEL: u64 = 1 << 63;

const TERMINATED: u64 = 4;

#[test]
fn what_runs_already_is_resolved() {
    again(5, || {
        let Some(stage) = Stage::set() else { return };
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
        let recording = stage.record_whole(&options, &sleep);
        child.signal(Signal::KILL);
        let trace = recording.trace();
        let known = Known::of(&trace);
        known.has_threads(&trace);
        known.has_addresses(&trace, u64::from(child.id()));
        let of_child = |event: &&Event| {
            event.name == "PerfInfo/SampleProf" && event.number("ThreadId") == u64::from(child.id())
        };
        assert!(trace.0.iter().any(|event| of_child(&event)), "the program was not seen at work");
    });
}

#[test]
fn events_of_the_first_moment_have_times_of_their_own() {
    again(5, || {
        let Some(stage) = Stage::set() else { return };
        // Sleeps and wakes all the time, from before the session to its end.
        let program = stage.workload(["naps", "100000000", "0"]);
        let child = Process::start(Command::new(&program[0]).args(&program[1..]).stdout(Stdio::null()));
        let recording = stage.record_whole(&["--kernel", "cswitch,cpu"], &["sleep".into(), "0.3".into()]);
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

/// What the file says there is.
struct Known {
    /// Process of each thread.
    threads: BTreeMap<u64, u64>,
    processes: BTreeSet<u64>,
    /// By process: where an image begins, and its end.
    images: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Known {
    fn of(trace: &Trace) -> Self {
        let mut known =
            Self { threads: BTreeMap::new(), processes: BTreeSet::new(), images: BTreeMap::new() };
        for event in &trace.0 {
            let of = || event.number("ProcessId");
            match event.name.as_str() {
                // One that ends while the session takes stock is told of by its end alone.
                "Process/Start" | "Process/DCStart" | "Process/End" => _ = known.processes.insert(of()),
                "Thread/Start" | "Thread/DCStart" | "Thread/End" => {
                    _ = known.threads.insert(event.number("TThreadId"), of())
                }
                "Image/Load" | "Image/DCStart" => {
                    let (start, size) = (event.number("ImageBase"), event.number("ImageSize"));
                    let end = known.images.entry(of()).or_default().entry(start).or_default();
                    *end = start.saturating_add(size).max(*end);
                }
                _ => {}
            }
        }
        known
    }

    /// Everybody who was sampled or switched to has a thread event, and its process one.
    #[track_caller]
    fn has_threads(&self, trace: &Trace) {
        let mut seen = BTreeSet::new();
        for event in &trace.0 {
            match event.name.as_str() {
                "PerfInfo/SampleProf" => _ = seen.insert(event.number("ThreadId")),
                // The last that is seen of a thread which ended before: the switch away from it.
                "Thread/CSwitch" if event.number("OldThreadState") == TERMINATED => {
                    _ = seen.insert(event.number("NewThreadId"))
                }
                "Thread/CSwitch" => seen.extend([event.number("NewThreadId"), event.number("OldThreadId")]),
                _ => {}
            }
        }
        // A thread that has ended and still runs has no number: samples of its last moment say so.
        seen.remove(&u64::from(u32::MAX));
        let unknown: Vec<_> = seen.iter().filter(|it| !self.threads.contains_key(it)).collect();
        assert!(unknown.is_empty(), "threads without an event: {unknown:?} of {}", seen.len());
        let orphans: Vec<_> =
            self.threads.iter().filter(|(_, process)| !self.processes.contains(process)).collect();
        assert!(orphans.is_empty(), "threads without a process: {orphans:?}");
    }

    /// Of a thousand addresses at most one lies in nothing that the file knows: the places where everybody was, frames in the kernel, and all frames of `own`, which has
    /// frame pointers. Without those the frames above are whatever stands on the stack, for perf as for everybody.
    #[track_caller]
    fn has_addresses(&self, trace: &Trace, own: u64) {
        let (mut all, mut strange) = (0_usize, Vec::new());
        for event in &trace.0 {
            let thread = match event.name.as_str() {
                "PerfInfo/SampleProf" => event.number("ThreadId"),
                "Thread/CSwitch" => event.number("OldThreadId"),
                _ => continue,
            };
            // Idle began in the kernel's first steps, whose code is given back when they are done and lies in no image.
            if thread == 0 {
                continue;
            }
            let process = self.threads.get(&thread).copied().unwrap_or(0);
            let kernel = event.stack.iter().take_while(|frame| **frame >= KERNEL).count();
            let trusted = if process == own { event.stack.len() } else { kernel + 1 };
            for frame in event.stack.iter().take(trusted) {
                all += 1;
                if !self.has(process, *frame) && !self.has(0, *frame) {
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

    fn has(&self, process: u64, address: u64) -> bool {
        let before = self.images.get(&process).and_then(|images| images.range(..=address).next_back());
        before.is_some_and(|(_, end)| address < *end)
    }
}
