//! Roles of child processes. A child runs this binary again, with its role in an environment
//! variable.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use traceweir::{EventDescriptor, Guid, Provider};

/// The provider that all writers register.
pub(crate) const PROVIDER: Guid = Guid::from_u128(0x7ace_0000_1111_4222_8333_0123_4567_89ab);

const ROLE_VARIABLE: &str = "ACCOUNTS_ROLE";

const LEVEL_INFORMATION: u8 = 4;
pub(crate) const LEVEL_VERBOSE: u8 = 5;

/// The event that writers write.
pub(crate) const EVENT: EventDescriptor = EventDescriptor {
    id: 7,
    version: 1,
    channel: 0,
    level: LEVEL_INFORMATION,
    opcode: 0,
    task: 0,
    keyword: 1,
};

/// The processors that the threads of a writer run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Threads run where the scheduler puts them.
    Any,
    /// Each thread is pinned to its own processor, as far as there are enough.
    Pinned,
    /// Threads move from one processor to the next.
    Migrating,
}

/// Parameters of a writer.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// Number of the writer in the test.
    pub(crate) number: u32,
    pub(crate) threads: u32,
    /// Events of each thread; `u64::MAX` means until the writer is killed.
    pub(crate) events: u64,
    /// Payload bytes after the 16 that identify an event.
    pub(crate) filler_bytes: usize,
    /// Number of events between pauses of `pause_ms`; 0 means no pauses.
    pub(crate) burst_events: u64,
    pub(crate) pause_ms: u64,
    pub(crate) placement: Placement,
    /// A file with one number per thread: how many calls have returned. The file outlives a killed
    /// writer.
    pub(crate) progress: Option<PathBuf>,
}

impl Writer {
    pub(crate) fn new(number: u32, threads: u32, events: u64) -> Self {
        Self {
            number,
            threads,
            events,
            filler_bytes: 24,
            burst_events: 0,
            pause_ms: 0,
            placement: Placement::Any,
            progress: None,
        }
    }

    /// Returns the environment variable, name and value, that gives a child this role.
    pub(crate) fn role_variable(&self) -> (&'static str, String) {
        let progress = self.progress.as_ref().map_or(String::new(), |p| p.display().to_string());
        let Self { number, threads, events, filler_bytes, burst_events, pause_ms, placement, .. } = self;
        (
            ROLE_VARIABLE,
            format!(
                "writer {number} {threads} {events} {filler_bytes} {burst_events} {pause_ms} {} {progress}",
                *placement as u8
            ),
        )
    }

    fn parse(words: &[&str]) -> Self {
        let number = |i: usize| words[i].parse::<u64>().expect("the argument is not a number");
        Self {
            number: number(0) as u32,
            threads: number(1) as u32,
            events: number(2),
            filler_bytes: number(3) as usize,
            burst_events: number(4),
            pause_ms: number(5),
            placement: [Placement::Any, Placement::Pinned, Placement::Migrating][number(6) as usize],
            progress: words.get(7).map(PathBuf::from),
        }
    }
}

/// Counts that a writer prints at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Number of write calls.
    pub(crate) offered: u64,
    /// Number of write calls that returned an error.
    pub(crate) refused: u64,
}

impl Report {
    /// Parses the output of a child.
    pub(crate) fn parse(output: &str) -> Self {
        let line = output.lines().find_map(|line| Some(line.split_once("report ")?.1)).unwrap_or_else(|| {
            panic!("the writer printed no report:\n{output}");
        });
        let mut numbers =
            line.split(' ').map(|word| word.parse::<u64>().expect("a word of the report is not a number"));
        let mut next = || numbers.next().expect("the report has fewer than two numbers");
        Self { offered: next(), refused: next() }
    }

    fn print(self) {
        // The harness captures `println!` but not the stream itself.
        let mut out = std::io::stdout();
        writeln!(out, "\nreport {} {}", self.offered, self.refused).expect("standard output is not open");
        out.flush().expect("standard output is not open");
    }
}

/// Runs the role that the environment names and exits. Returns if there is no role.
pub(crate) fn run_role() {
    let Ok(role) = std::env::var(ROLE_VARIABLE) else { return };
    let words: Vec<&str> = role.split(' ').filter(|word| !word.is_empty()).collect();
    match words[0] {
        "writer" => write_events(&Writer::parse(&words[1..])).print(),
        "scenario" => crate::processes::run_role(&words[1..]),
        "private" => crate::private::run_role(&words[1..]),
        "providers" => crate::bounds::run_role(&words[1..]),
        "registering" => crate::kills::run_role(&words[1..]),
        "hostile" => crate::hostile::run_role(&words[1..]),
        role => panic!("no such role: {role}"),
    }
    std::process::exit(0);
}

/// Returns the environment variable that gives a child a role of another module.
pub(crate) fn role_variable(words: &str) -> (&'static str, String) {
    (ROLE_VARIABLE, words.to_owned())
}

/// Counters of a writer's threads, in a shared page.
pub(crate) struct Progress {
    page: *const AtomicU64,
}

// SAFETY: the page is never unmapped, so any thread may use the pointer.
unsafe impl Send for Progress {}
// SAFETY: the page is only accessed through atomics, so threads may share it.
unsafe impl Sync for Progress {}

impl Progress {
    pub(crate) const COUNTERS: usize = 512;

    pub(crate) fn open(path: &std::path::Path) -> Self {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("the progress file cannot be opened");
        file.set_len(4096).expect("the progress file cannot grow");
        // SAFETY: a fresh shared mapping of one page of the file, never unmapped.
        let page = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                4096,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }
        .expect("the progress file cannot be mapped");
        Self { page: page.cast_const().cast() }
    }

    pub(crate) fn counter(&self, thread: usize) -> &AtomicU64 {
        assert!(thread < Self::COUNTERS);
        // SAFETY: the index is inside the page, which is never unmapped; any bytes are a valid
        // `AtomicU64`.
        unsafe { &*self.page.add(thread) }
    }
}

/// Writes one event that is identified by its writer, thread and number. Returns whether the call
/// succeeded.
pub(crate) fn write_event(provider: &Provider, writer: u32, thread: u32, number: u64, filler: &[u8]) -> bool {
    provider
        .write(&EVENT, &[&writer.to_le_bytes(), &thread.to_le_bytes(), &number.to_le_bytes(), filler])
        .is_ok()
}

fn write_events(role: &Writer) -> Report {
    let provider = Provider::register(PROVIDER, None).expect("the provider did not register");
    let progress = role.progress.as_deref().map(Progress::open);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..role.threads {
            let (provider, progress, refused) = (&provider, progress.as_ref(), &refused);
            scope.spawn(move || write_thread_events(role, thread, provider, progress, refused));
        }
    });
    Report { offered: role.events.saturating_mul(u64::from(role.threads)), refused: refused.into_inner() }
}

fn write_thread_events(
    role: &Writer,
    thread: u32,
    provider: &Provider,
    progress: Option<&Progress>,
    refused: &AtomicU64,
) {
    let filler = vec![0x5A_u8; role.filler_bytes];
    if role.placement == Placement::Pinned {
        pin_to_processor(u64::from(thread));
    }
    for number in 0..role.events {
        if !write_event(provider, role.number, thread, number, &filler) {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(progress) = progress {
            progress.counter(thread as usize).store(number + 1, Ordering::Release);
        }
        // Moves to the next processor once in 97 events.
        if role.placement == Placement::Migrating && number % 97 == 0 {
            pin_to_processor(number / 97);
        }
        if role.burst_events != 0 && number % role.burst_events == role.burst_events - 1 {
            std::thread::sleep(Duration::from_millis(role.pause_ms));
        }
    }
}

/// Pins this thread to processor `index`, modulo the number of processors.
fn pin_to_processor(index: u64) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = rustix::thread::CpuSet::new();
    set.set(index as usize % processors);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
