//! Processes and threads with known behaviour. These tests need access to tracepoints.
//!
//! Other processes start and end meanwhile, so each test selects its processes by their ids.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, Timespec};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook::{
    PROCESS_COUNTERS_RUNDOWN, PROCESS_DC_END, PROCESS_DC_START, PROCESS_DEFUNCT, PROCESS_END, PROCESS_START,
    THREAD_DC_END, THREAD_DC_START, THREAD_END, THREAD_SET_NAME, THREAD_START,
};
use traceweir_format::spec::event::class;
use traceweir_kernel::{Capture, CaptureControl, CaptureSettings, Group, Groups};

use crate::retry::retry_alternately_with_busy_processors;
use crate::support;
use crate::support::{Fields, NanosecondClock, skip};

/// The exit status of a running process.
const STILL_ACTIVE: i32 = 259;

/// A captured record with its decoded payload.
#[derive(Clone, Debug)]
struct CapturedEvent {
    stamp: u64,
    hook: u16,
    is_stack: bool,
    /// Process and thread id of the header; 0 if it has none.
    header_ids: (u32, u32),
    fields: Fields,
}

impl CapturedEvent {
    fn number(&self, name: &str) -> i64 {
        self.fields.number(name) as i64
    }

    fn text(&self, name: &str) -> &str {
        self.fields.text(name)
    }

    fn pid(&self) -> u32 {
        self.number("ProcessId") as u32
    }

    fn tid(&self) -> u32 {
        self.number("TThreadId") as u32
    }

    fn status(&self) -> i32 {
        self.number("ExitStatus") as i32
    }

    fn is_event_of(&self, hook: u16, pid: u32) -> bool {
        self.hook == hook && self.pid() == pid
    }
}

/// Decodes events of processes and threads; returns no fields for other events.
fn decode(record: &Record<'_>) -> Fields {
    let is_task_event = [class::PROCESS, class::THREAD].contains(&record.provider());
    if is_task_event { Fields::parse(record) } else { Fields::default() }
}

fn settings() -> CaptureSettings {
    // Other processes may cause many events too.
    CaptureSettings {
        groups: Groups::new(&[Group::PROCESS, Group::THREAD]),
        ring_bytes: 8 << 20,
        ..CaptureSettings::default()
    }
}

fn take_events(capture: &mut Capture, events: &mut Vec<CapturedEvent>) {
    while let Some((next, bytes)) = support::pop_record(capture, 0) {
        let record = Record::parse(&bytes, 0).expect("invalid record");
        let hook = record.hook().unwrap_or(0);
        let has_ids =
            matches!(hook, PROCESS_START | PROCESS_END | THREAD_START..=THREAD_DC_END | THREAD_SET_NAME);
        let header_ids = if has_ids { (record.process_id(), record.thread_id()) } else { (0, 0) };
        let fields = if next.is_stack { Fields::default() } else { decode(&record) };
        events.push(CapturedEvent { stamp: next.raw, hook, is_stack: next.is_stack, header_ids, fields });
    }
}

/// Returns the events of a capture during `work`, and the result of `work`. Polls like a session:
/// on each wake, and now and then. Skips the test and returns `None` if the capture does not start.
fn capture<T: Send>(
    settings: &CaptureSettings,
    work: impl FnOnce(&CaptureControl) -> T + Send,
) -> Option<(Vec<CapturedEvent>, T)> {
    /// Captures run one at a time, because each covers the whole machine.
    static CAPTURE_LOCK: Mutex<()> = Mutex::new(());
    let _lock = CAPTURE_LOCK.lock();
    let (mut capture, control) = support::start_or_skip(settings, 1)?;
    let mut events = Vec::new();
    capture.poll(&NanosecondClock, false);
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&control));
        while !worker.is_finished() {
            let wake = capture.wake_fd();
            let mut fds = [PollFd::new(&wake, PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
            capture.poll(&NanosecondClock, false);
            take_events(&mut capture, &mut events);
        }
        worker.join().expect("the work panicked")
    });
    capture.end(&NanosecondClock);
    take_events(&mut capture, &mut events);
    assert_eq!(capture.lost(), 0);
    Some((events, result))
}

/// Runs a shell script. Returns its process id and exit status.
fn run_shell(script: &str) -> (u32, std::process::ExitStatus) {
    let mut child =
        Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().expect("the start fails");
    (child.id(), child.wait().expect("the shell does not end"))
}

/// Returns the process and thread events of a process.
fn select_process_events(events: &[CapturedEvent], pid: u32) -> Vec<&CapturedEvent> {
    let hooks = [
        PROCESS_START,
        PROCESS_END,
        PROCESS_DC_START,
        PROCESS_DC_END,
        THREAD_START,
        THREAD_END,
        THREAD_DC_START,
        THREAD_DC_END,
        THREAD_SET_NAME,
    ];
    events.iter().filter(|event| hooks.contains(&event.hook) && event.pid() == pid).collect()
}

#[test]
fn fork_exec_and_kill_are_recorded_in_order() {
    retry_alternately_with_busy_processors(5, || {
        let Some((events, (pid, status))) =
            capture(&settings(), |_| run_shell("(exit 3); (exit 4); sleep 0.5; : 'a b' \"\"; kill -9 $$"))
        else {
            return;
        };
        assert_eq!(status.signal(), Some(9));
        let task_events = select_process_events(&events, pid);
        let hooks: Vec<u16> = task_events.iter().map(|event| event.hook).collect();
        // The fork; the exec, as end and start at the same time; the kill.
        assert_eq!(
            hooks,
            [
                PROCESS_START,
                THREAD_START,
                THREAD_END,
                PROCESS_END,
                PROCESS_START,
                THREAD_START,
                THREAD_END,
                PROCESS_END
            ]
        );
        let times: BTreeSet<u64> = task_events[2..6].iter().map(|event| event.stamp).collect();
        assert_eq!(times.len(), 1, "the events of an exec have different times");
        let own_pid = std::process::id();
        let exe = std::env::current_exe().unwrap();
        let (first, second) = (task_events[0], task_events[4]);
        assert_eq!(first.text("ImageFileName"), exe.file_name().unwrap().to_str().unwrap());
        assert!(first.text("CommandLine").contains(exe.file_name().unwrap().to_str().unwrap()));
        assert_eq!((first.header_ids.0, task_events[1].header_ids.0), (own_pid, own_pid), "wrong creator");
        assert_eq!(task_events[0].header_ids, task_events[1].header_ids);
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(second.text("ImageFileName"), shell.file_name().unwrap().to_str().unwrap());
        let script = r#"sh -c "(exit 3); (exit 4); sleep 0.5; : 'a b' \"\"; kill -9 $$""#;
        assert_eq!(second.text("CommandLine"), script);
        let user = format!("S-1-22-1-{}", rustix::process::geteuid().as_raw());
        for start in [first, second] {
            assert_eq!((start.number("ParentId"), start.status()), (own_pid.into(), STILL_ACTIVE));
            assert_eq!(start.text("UserSID"), user);
            assert_eq!(start.number("UniqueProcessKey"), first.number("UniqueProcessKey"));
        }
        // An exec ends a program with status 0, a signal with its negative number.
        assert_eq!((task_events[3].status(), task_events[7].status()), (0, -9));
        assert_eq!(task_events[7].text("CommandLine"), script);
        assert_eq!((task_events[6].tid(), task_events[5].text("ThreadName")), (pid, "sh"));

        // The children of the shell: two that were only forked, and one that has executed a
        // program.
        let started: Vec<&CapturedEvent> = events
            .iter()
            .filter(|event| event.hook == PROCESS_START && event.number("ParentId") == i64::from(pid))
            .collect();
        let children: Vec<u32> = started.iter().map(|event| event.pid()).collect();
        let end_statuses = |child: u32| -> Vec<i32> {
            events
                .iter()
                .filter(|event| event.is_event_of(PROCESS_END, child))
                .map(CapturedEvent::status)
                .collect()
        };
        // The child with an exec has two starts, so it is in the list twice.
        let children_with_statuses =
            |status: &[i32]| children.iter().filter(|child| end_statuses(**child) == status).count();
        assert_eq!(
            (children_with_statuses(&[3]), children_with_statuses(&[4]), children_with_statuses(&[0, 0])),
            (1, 1, 2),
            "wrong numbers of children with exit status 3, with 4, and with an exec"
        );
        let sleeps: Vec<&&CapturedEvent> =
            started.iter().filter(|event| event.text("CommandLine") == "sleep 0.5").collect();
        assert_eq!(sleeps.len(), 1, "{started:?}");
        for start in started.iter().filter(|event| event.text("CommandLine") != "sleep 0.5") {
            let inherited = (start.text("CommandLine"), start.header_ids.0);
            assert_eq!(inherited, (script, pid), "not inherited from the parent");
        }
    });
}

#[test]
fn threads_are_recorded_with_their_names_and_ends() {
    retry_alternately_with_busy_processors(5, || {
        const THREADS: u32 = 5;
        let work = |_: &CaptureControl| {
            let exe = std::env::current_exe().unwrap();
            let mut child = Command::new(exe)
                .args(["--exact", "process::makes_threads_with_names", "--ignored", "--nocapture"])
                .env("THREADS", THREADS.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            (child.id(), child.wait().unwrap())
        };
        let Some((events, (pid, status))) = capture(&settings(), work) else { return };
        assert!(status.success());
        let task_events = select_process_events(&events, pid);
        let mut workers = BTreeSet::new();
        for index in 0..THREADS {
            let name = format!("worker-{index}");
            let named: Vec<&&CapturedEvent> = task_events
                .iter()
                .filter(|event| event.hook == THREAD_SET_NAME && event.text("ThreadName") == name)
                .collect();
            assert_eq!(named.len(), 1, "{name}");
            let tid = named[0].number("ThreadId") as u32;
            assert_eq!(named[0].header_ids, (pid, tid));
            workers.insert(tid);
            let lifetime: Vec<&&CapturedEvent> = task_events
                .iter()
                .filter(|event| event.hook != THREAD_SET_NAME && event.is_thread(tid))
                .collect();
            assert_eq!(
                lifetime.iter().map(|event| event.hook).collect::<Vec<_>>(),
                [THREAD_START, THREAD_END]
            );
            assert_ne!(lifetime[0].text("ThreadName"), name, "a new thread has its own name");
            assert_eq!(lifetime[1].text("ThreadName"), name);
            assert_eq!((lifetime[0].header_ids.0, lifetime[1].header_ids), (pid, (pid, tid)));
            assert!(lifetime[0].number("Affinity") != 0);
        }
        assert_eq!(workers.len(), THREADS as usize);
        // The process ends once, after all of its threads.
        let last = task_events.last().unwrap();
        assert!(last.is_event_of(PROCESS_END, pid) && last.status() == 0);
    });
}

impl CapturedEvent {
    fn is_thread(&self, tid: u32) -> bool {
        self.fields.find("TThreadId").is_some() && self.tid() == tid
    }
}

#[test]
#[ignore = "runs as a child process of another test"]
fn makes_threads_with_names() {
    let Ok(count) = std::env::var("THREADS") else { return };
    let count: u32 = count.parse().unwrap();
    let threads: Vec<_> = (0..count)
        .map(|index| {
            let sleep = || std::thread::sleep(std::time::Duration::from_millis(5));
            std::thread::Builder::new().name(format!("worker-{index}")).spawn(sleep).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Returns the processes and threads that are alive now.
fn list_live_tasks() -> (BTreeSet<u32>, BTreeSet<u32>) {
    let numbers = |folder: String| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    let is_alive = |path: String| {
        std::fs::read_to_string(path).is_ok_and(|stat| !stat[stat.rfind(')').unwrap()..].starts_with(") Z"))
    };
    let (mut processes, mut threads) = (BTreeSet::new(), BTreeSet::new());
    for pid in numbers("/proc".into()) {
        for tid in numbers(format!("/proc/{pid}/task")) {
            if is_alive(format!("/proc/{pid}/task/{tid}/stat")) {
                processes.insert(pid);
                threads.insert(tid);
            }
        }
    }
    (processes, threads)
}

#[test]
fn rundowns_contain_all_processes_and_threads() {
    retry_alternately_with_busy_processors(5, || {
        let mut settings = settings();
        settings.groups = Groups::new(&[Group::PROCESS, Group::THREAD, Group::PROCESS_COUNTERS]);
        let (processes, threads) = list_live_tasks();
        let Some((events, (mut processes_end, mut threads_end))) = capture(&settings, |_| {
            std::thread::sleep(std::time::Duration::from_millis(60));
            list_live_tasks()
        }) else {
            return;
        };
        let later = list_live_tasks();
        processes_end.retain(|pid| later.0.contains(pid));
        threads_end.retain(|tid| later.1.contains(tid));
        // The high byte of the hooks of threads is 5.
        let recorded = |hook: u16| -> BTreeSet<u32> {
            let matching = events.iter().filter(|event| event.hook == hook);
            matching.map(|event| if hook >> 8 == 5 { event.tid() } else { event.pid() }).collect()
        };
        let intersect =
            |a: &BTreeSet<u32>, b: &BTreeSet<u32>| a.intersection(b).copied().collect::<BTreeSet<u32>>();
        let missing = |expected: &BTreeSet<u32>, recorded: BTreeSet<u32>| {
            expected.difference(&recorded).copied().collect::<Vec<u32>>()
        };
        assert_eq!(missing(&intersect(&processes, &processes_end), recorded(PROCESS_DC_START)), []);
        assert_eq!(missing(&intersect(&threads, &threads_end), recorded(THREAD_DC_START)), []);
        assert_eq!(missing(&processes_end, recorded(PROCESS_DC_END)), []);
        assert_eq!(missing(&threads_end, recorded(THREAD_DC_END)), []);
        // `/proc` does not list the idle threads.
        assert!(recorded(PROCESS_DC_START).contains(&0) && recorded(THREAD_DC_START).contains(&0));
        let own_pid = std::process::id();
        let own = events.iter().find(|event| event.is_event_of(PROCESS_DC_START, own_pid)).unwrap();
        assert_eq!(own.number("ParentId") as u32, std::os::unix::process::parent_id());
        assert_eq!(own.status(), STILL_ACTIVE);
        let ticks = std::fs::read_to_string("/proc/self/stat").unwrap();
        let ticks = traceweir_format::linux::start_ticks_in(ticks.as_bytes()).unwrap();
        // Bits 16 to 47 of the key are the low bits of the start time.
        assert_eq!(own.number("UniqueProcessKey") >> 16 & 0xFFFF_FFFF, (ticks & 0xFFFF_FFFF) as i64);
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            let kthreadd = events.iter().find(|event| event.is_event_of(PROCESS_DC_START, 2)).unwrap();
            assert_eq!((kthreadd.text("ImageFileName"), kthreadd.text("CommandLine")), ("kthreadd", ""));
            assert_eq!(kthreadd.text("UserSID"), "S-1-22-1-0");
            assert!(
                !events.iter().any(|event| event.is_event_of(PROCESS_COUNTERS_RUNDOWN, 2)),
                "a kernel thread has memory counters"
            );
        }
        let counters =
            events.iter().find(|event| event.is_event_of(PROCESS_COUNTERS_RUNDOWN, own_pid)).unwrap();
        assert!(counters.number("PageFaultCount") > 0 && counters.number("HandleCount") > 2);
        let [peak, now] = ["PeakWorkingSetSize", "WorkingSetSize"].map(|name| counters.number(name));
        assert!(peak >= now && now > 1 << 20 && counters.number("PrivatePageCount") > 0);
    });
}

#[test]
fn many_forks_lose_no_events_and_leave_no_processes() {
    retry_alternately_with_busy_processors(5, || {
        const FORKS: usize = 2_000;
        let script = format!("i=0; while [ $i -lt {FORKS} ]; do (exit 5); i=$((i+1)); done");
        let Some((events, (pid, status))) = capture(&settings(), |_| run_shell(&script)) else { return };
        assert!(status.success());
        let started: Vec<u32> = events
            .iter()
            .filter(|event| event.hook == PROCESS_START && event.number("ParentId") == i64::from(pid))
            .map(CapturedEvent::pid)
            .collect();
        assert_eq!(started.len(), FORKS);
        let children: BTreeSet<u32> = started.iter().copied().collect();
        let mut ends: BTreeMap<i32, usize> = BTreeMap::new();
        for end in events
            .iter()
            .filter(|event| event.hook == PROCESS_END && event.number("ParentId") == i64::from(pid))
        {
            *ends.entry(end.status()).or_default() += 1;
        }
        assert_eq!(ends, BTreeMap::from([(5, FORKS)]));
        let remaining = events
            .iter()
            .filter(|event| matches!(event.hook, PROCESS_DC_END | THREAD_DC_END | PROCESS_DEFUNCT));
        assert_eq!(
            remaining.filter(|event| children.contains(&event.pid()) || event.pid() == pid).count(),
            0
        );
    });
}

#[test]
fn process_that_starts_while_a_capture_begins_is_recorded_once() {
    retry_alternately_with_busy_processors(5, || {
        for _ in 0..3 {
            let script = "i=0; while [ $i -lt 300 ]; do (sleep 0.02) & i=$((i+1)); done; wait";
            let mut storm = Command::new("sh").args(["-c", script]).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let result = capture(&settings(), |_| storm.wait().unwrap());
            let Some((events, _)) = result else {
                let _ = storm.wait();
                return;
            };
            let mut alive: BTreeSet<u32> = BTreeSet::new();
            for event in events.iter().filter(|event| matches!(event.hook, PROCESS_START..=PROCESS_DC_START))
            {
                let pid = event.pid();
                match event.hook {
                    PROCESS_END => assert!(alive.remove(&pid), "an end without a start: {event:?}"),
                    _ => assert!(alive.insert(pid), "{pid} starts twice: {event:?}"),
                }
            }
            let remaining: BTreeSet<u32> =
                events.iter().filter(|event| event.hook == PROCESS_DC_END).map(CapturedEvent::pid).collect();
            assert!(alive.is_subset(&remaining), "{:?}", alive.difference(&remaining).collect::<Vec<_>>());
        }
    });
}

#[test]
fn rundown_on_request_repeats_all_processes() {
    retry_alternately_with_busy_processors(5, || {
        // The capture must see that this process is older than its rings, although the times of
        // records and of `/proc` may disagree by some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let work = |control: &CaptureControl| {
            control.run_down();
            std::thread::sleep(std::time::Duration::from_millis(60));
        };
        let Some((events, ())) = capture(&settings(), work) else { return };
        let own_pid = std::process::id();
        assert_eq!(events.iter().filter(|event| event.is_event_of(PROCESS_DC_START, own_pid)).count(), 2);
        assert_eq!(events.iter().filter(|event| event.is_event_of(PROCESS_DC_END, own_pid)).count(), 1);
    });
}

#[test]
fn stacks_follow_starts_and_ends() {
    retry_alternately_with_busy_processors(5, || {
        const FORKS: usize = 50;
        let mut settings = settings();
        settings.stacks = vec![PROCESS_START, THREAD_START, PROCESS_END, THREAD_END];
        let script = format!("i=0; while [ $i -lt {FORKS} ]; do (exit 5); i=$((i+1)); done");
        let Some((events, (pid, _))) = capture(&settings, |_| run_shell(&script)) else { return };
        let is_child = |event: &CapturedEvent| {
            matches!(event.hook, PROCESS_START | PROCESS_END)
                && !event.is_stack
                && event.number("ParentId") == i64::from(pid)
        };
        let children: BTreeSet<u32> =
            events.iter().filter(|event| is_child(event)).map(CapturedEvent::pid).collect();
        assert_eq!(children.len(), FORKS);
        for hook in [PROCESS_START, PROCESS_END, THREAD_START, THREAD_END] {
            let pairs = events.windows(2).filter(|pair| {
                pair[0].hook == hook && !pair[0].is_stack && children.contains(&pair[0].pid())
            });
            let (count, with_stack) = pairs.fold((0, 0), |(count, with_stack), pair| {
                let has_stack = pair[1].is_stack && pair[1].stamp == pair[0].stamp;
                (count + 1, with_stack + usize::from(has_stack))
            });
            assert_eq!((count, with_stack), (FORKS, FORKS), "{hook:x}");
        }
        let ends = events.iter().filter(|event| event.hook == PROCESS_END && children.contains(&event.pid()));
        assert!(ends.map(CapturedEvent::status).all(|status| status == 5));
    });
}

/// A program for what a shell cannot do: a thread that outlives the first, one that executes
/// another program, and one that crashes.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *run(void *mode) {
    usleep(30000);
    if (!strcmp(mode, "outlive")) exit(6);
    if (!strcmp(mode, "exec")) execl("/bin/sh", "sh", "-c", "exit 8", (char *)0);
    if (!strcmp(mode, "crash")) *(volatile int *)8 = 1;
    return 0;
}
int main(int argc, char **argv) {
    pthread_t thread;
    if (argc < 2 || pthread_create(&thread, 0, run, argv[1])) return 1;
    if (!strcmp(argv[1], "outlive")) pthread_exit(0);
    pthread_join(thread, 0);
    return 0;
}
"#;

/// Runs the program. Returns the events of its process after its exec: the hook, and the exit
/// status of a process or whether a thread is the first.
fn capture_task_events(mode: &str) -> Option<Vec<(u16, i32)>> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("tasks.c"), folder.path().join("tasks"));
    std::fs::write(&source, PROGRAM).unwrap();
    let status = Command::new("cc").arg("-pthread").arg(&source).arg("-o").arg(&program).status();
    if !skip::holds_or_skip(status.is_ok_and(|exit| exit.success()), "cc", "no C compiler") {
        return None;
    }
    let work = |_: &CaptureControl| {
        let mut child = Command::new(&program).arg(mode).spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let (events, pid) = capture(&settings(), work)?;
    let task_events = select_process_events(&events, pid);
    let summaries = task_events.iter().map(|event| match event.hook {
        PROCESS_START | PROCESS_END => (event.hook, event.status()),
        _ => (event.hook, i32::from(event.tid() == pid)),
    });
    // The first six events are the fork (process and thread start) and the exec (two ends and two
    // starts).
    Some(summaries.skip(6).collect())
}

#[test]
fn process_ends_with_its_last_thread() {
    retry_alternately_with_busy_processors(5, || {
        let Some(recorded) = capture_task_events("outlive") else { return };
        assert_eq!(recorded, [(THREAD_START, 0), (THREAD_END, 1), (THREAD_END, 0), (PROCESS_END, 6)]);
    });
}

#[test]
fn thread_that_executes_a_program_becomes_the_first() {
    retry_alternately_with_busy_processors(5, || {
        let Some(recorded) = capture_task_events("exec") else { return };
        // The first thread ends; then the program, and with it the other thread. The new program
        // has one thread, the first.
        let exec = [(THREAD_END, 0), (PROCESS_END, 0), (PROCESS_START, STILL_ACTIVE), (THREAD_START, 1)];
        let expected =
            [&[(THREAD_START, 0), (THREAD_END, 1)][..], &exec, &[(THREAD_END, 1), (PROCESS_END, 8)]].concat();
        assert_eq!(recorded, expected);
    });
}

#[test]
fn crash_is_recorded_with_its_signal() {
    retry_alternately_with_busy_processors(5, || {
        let Some(recorded) = capture_task_events("crash") else { return };
        let (first, last) = (recorded.first(), recorded.last());
        assert_eq!((recorded.len(), first, last), (4, Some(&(THREAD_START, 0)), Some(&(PROCESS_END, -11))));
    });
}

#[test]
fn process_in_another_namespace_is_recorded_with_its_id_there() {
    retry_alternately_with_busy_processors(5, || {
        let status = Command::new("unshare").args(["--pid", "--fork", "true"]).stderr(Stdio::null()).status();
        if !skip::holds_or_skip(
            status.is_ok_and(|exit| exit.success()),
            "root",
            "namespaces are not allowed here",
        ) {
            return;
        }
        let work = |_: &CaptureControl| {
            let mut child = Command::new("unshare")
                .args(["--pid", "--fork", "sh", "-c", "readlink /proc/self/ns/pid; (sleep 0.6); sleep 0.5"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut link = String::new();
            std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut link).unwrap();
            child.wait().unwrap();
            link
        };
        let Some((events, link)) = capture(&settings(), work) else { return };
        let ids = |command: &str| -> Vec<String> {
            let starts = events.iter().filter(|event| {
                event.hook == PROCESS_START && event.text("CommandLine").starts_with(command)
            });
            starts.map(|event| event.text("ApplicationId").to_owned()).collect()
        };
        let first = format!("{}:1", link.trim());
        let shells = ids("sh -c \"readlink");
        // The shell is the first process in the namespace. Its forks have ids of their own before
        // they execute anything.
        assert_eq!(shells[0], first);
        assert!(shells[1..].iter().all(|id| id.starts_with(link.trim()) && *id != first), "{shells:?}");
        for sleep in [ids("sleep 0.6"), ids("sleep 0.5")] {
            assert!(sleep.len() == 1 && sleep[0].starts_with(link.trim()) && sleep[0] != first, "{sleep:?}");
        }
    });
}

#[test]
fn programs_that_execute_others_at_once_are_distinguished() {
    retry_alternately_with_busy_processors(5, || {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/usr/bin/env sh\nsleep 0.5\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let work = |_: &CaptureControl| {
            let mut child = Command::new(&script).arg("a b").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let Some((events, pid)) = capture(&settings(), work) else { return };
        let starts: Vec<&CapturedEvent> =
            events.iter().filter(|event| event.is_event_of(PROCESS_START, pid)).collect();
        let path = script.to_str().unwrap();
        let lines: Vec<&str> = starts.iter().map(|event| event.text("CommandLine")).collect();
        assert_eq!(lines.len(), 3, "not a fork and two programs: {lines:?}");
        // The first program ends within a millisecond: if its arguments were not read in time, its
        // file name is recorded.
        let first = [format!("/usr/bin/env sh {path} \"a b\""), format!("{path} …")];
        assert!(first.iter().any(|line| line == lines[1]), "{lines:?}");
        assert_eq!(lines[2], format!("sh {path} \"a b\""));
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(starts[2].text("ImageFileName"), shell.file_name().unwrap().to_str().unwrap());
    });
}

#[test]
fn at_least_a_third_of_short_programs_have_complete_command_lines() {
    retry_alternately_with_busy_processors(5, || {
        const RUNS: usize = 200;
        let script = format!("i=0; while [ $i -lt {RUNS} ]; do /bin/true $i; i=$((i+1)); done");
        let Some((events, (pid, _))) = capture(&settings(), |_| run_shell(&script)) else { return };
        let is_child = |event: &&CapturedEvent| event.number("ParentId") == i64::from(pid);
        let starts: Vec<&CapturedEvent> =
            events.iter().filter(|event| event.hook == PROCESS_START).filter(is_child).collect();
        assert_eq!(starts.len(), 2 * RUNS, "not a fork and an exec each");
        let lines: Vec<&str> = starts
            .iter()
            .map(|event| event.text("CommandLine"))
            .filter(|line| line.starts_with("/bin/true "))
            .collect();
        // On a busy machine some polls are late. If a process has ended before the poll, and a gap
        // in its copied stack hides its arguments, its command line ends with an ellipsis.
        let complete: BTreeSet<&&str> = lines.iter().filter(|line| !line.ends_with('…')).collect();
        println!("{} of {RUNS} command lines are complete", complete.len());
        assert!(complete.len() >= RUNS / 3, "{}", complete.len());
    });
}
