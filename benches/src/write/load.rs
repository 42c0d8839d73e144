//! The load that is put on every measured tracer, and its result.
//!
//! ```text
//!   burst   ▓▓▓▓        ▓▓▓▓        ▓▓▓▓        fits into the buffers, emptied in the pauses
//!           ▓▓▓▓        ▓▓▓▓        ▓▓▓▓        threads begin a burst together; only ▓ counts
//!
//!   paced   ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓        each millisecond the events that are due by then
//! ```
//!
//! Thread t stays on processor t. `peers/load.h` is the same load in C; both take the same
//! arguments and print the same line: events, processor nanoseconds of writing, wall nanoseconds of
//! the slowest thread.

use std::fmt;
use std::str::FromStr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// Bursts at the start that touch all memory and are not counted.
pub(crate) const WARM_BURSTS: u64 = 24;
const PACING_STEP: Duration = Duration::from_millis(1);
/// Bytes of a payload other than the text: u32, u64, and the terminator of the text.
const FIXED_PAYLOAD_BYTES: usize = 4 + 8 + 1;

/// Amount and timing of the events to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteLoad {
    /// Number of writing threads, each on its own processor.
    pub(crate) threads: usize,
    /// Size of an event's payload in bytes: u32, u64 and a text.
    pub(crate) payload: usize,
    pub(crate) pattern: LoadPattern,
}

/// The timing of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadPattern {
    /// Bursts of `events` events by each thread, with pauses.
    Burst { events: u64, bursts: u64, pause_us: u64 },
    /// `rate` events per second by all threads together, for `length_ms`.
    Paced { rate: u64, length_ms: u64 },
}

impl WriteLoad {
    /// Returns the arguments for a program that puts this load on its tracer.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let (name, numbers) = match self.pattern {
            LoadPattern::Burst { events, bursts, pause_us } => ("burst", vec![events, bursts, pause_us]),
            LoadPattern::Paced { rate, length_ms } => ("paced", vec![rate, length_ms]),
        };
        let sizes = [self.threads.to_string(), self.payload.to_string()];
        std::iter::once(name.to_owned()).chain(sizes).chain(numbers.iter().map(u64::to_string)).collect()
    }

    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let (name, numbers) = arguments.split_first()?;
        let numbers: Vec<u64> = numbers.iter().map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let (&[threads, payload], numbers) = numbers.split_first_chunk()?;
        let pattern = match (name.as_str(), numbers) {
            ("burst", &[events, bursts, pause_us]) => LoadPattern::Burst { events, bursts, pause_us },
            ("paced", &[rate, length_ms]) => LoadPattern::Paced { rate, length_ms },
            _ => return None,
        };
        Some(Self {
            threads: usize::try_from(threads).ok()?,
            payload: usize::try_from(payload).ok()?,
            pattern,
        })
    }

    /// Returns all events that a burst load writes, including the warm-up; `None` for a paced one.
    pub(crate) fn offered_events(&self) -> Option<u64> {
        match self.pattern {
            LoadPattern::Burst { events, bursts, .. } => {
                Some((WARM_BURSTS + bursts) * events * self.threads as u64)
            }
            LoadPattern::Paced { .. } => None,
        }
    }

    /// Returns the text of an event, with its terminator.
    pub(crate) fn text(&self) -> Vec<u8> {
        let length = self.payload.saturating_sub(FIXED_PAYLOAD_BYTES);
        let mut text: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
        text.push(0);
        text
    }

    /// Runs the load on `emit`, which writes the requested number of events.
    pub(crate) fn run(&self, emit: &(impl Fn(u64) + Sync)) -> Result<WriteResult> {
        let barrier = Barrier::new(self.threads);
        let work = |thread: usize| -> Result<WriteResult> {
            pin_thread(thread)?;
            let started = Instant::now();
            let mut written = match self.pattern {
                LoadPattern::Burst { events, bursts, pause_us } => {
                    write_bursts(&barrier, events, bursts, Duration::from_micros(pause_us), emit)?
                }
                LoadPattern::Paced { rate, length_ms } => {
                    #[allow(clippy::cast_precision_loss)] // Rates are far below 2⁵³.
                    let rate_per_thread = rate as f64 / self.threads as f64;
                    write_paced(&barrier, rate_per_thread, Duration::from_millis(length_ms), emit)?
                }
            };
            written.wall = started.elapsed();
            Ok(written)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|t| scope.spawn(move || work(t))).collect();
            let mut sum = WriteResult::default();
            for thread in threads {
                let result = thread
                    .join()
                    .map_err(|_| Error::IncompleteRun("a writing thread panicked".to_owned()))??;
                sum.events += result.events;
                sum.cpu += result.cpu;
                sum.wall = sum.wall.max(result.wall);
            }
            Ok(sum)
        })
    }
}

/// The events that were written, and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteResult {
    /// Number of events, without the warm-up.
    pub(crate) events: u64,
    /// Processor time of the writing threads inside `emit`.
    pub(crate) cpu: Duration,
    /// Wall time of the slowest thread, including the warm-up and pauses.
    pub(crate) wall: Duration,
}

#[allow(clippy::cast_precision_loss)] // Counts and nanoseconds are far below 2⁵³.
impl WriteResult {
    /// Returns the nanoseconds of processor time per event.
    pub(crate) fn ns_per_event(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.events.max(1) as f64
    }

    /// Returns the events per second.
    pub(crate) fn rate(&self) -> f64 {
        self.events as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for WriteResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.events, self.cpu.as_nanos(), self.wall.as_nanos())
    }
}

impl FromStr for WriteResult {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [events, cpu, wall] => {
                Ok(Self { events, cpu: Duration::from_nanos(cpu), wall: Duration::from_nanos(wall) })
            }
            _ => Err(Error::IncompleteRun(format!("a writer printed {line:?} instead of three numbers"))),
        }
    }
}

/// Pins the calling thread to one processor.
fn pin_thread(processor: usize) -> Result<()> {
    let mut only = CpuSet::new();
    let count = thread::available_parallelism().map_or(1, usize::from);
    only.set(processor % count)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &only))
        .map_err(Error::system("pinning to a processor"))
}

fn thread_cpu_time() -> Result<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .map_err(Error::system("reading the thread's clock"))
}

/// Emits `events` events and adds their number and processor time to `written`.
fn emit_measured(written: &mut WriteResult, events: u64, emit: &impl Fn(u64)) -> Result<()> {
    let before = thread_cpu_time()?;
    emit(events);
    written.cpu += thread_cpu_time()?.saturating_sub(before);
    written.events += events;
    Ok(())
}

fn write_bursts(
    barrier: &Barrier,
    events: u64,
    bursts: u64,
    pause: Duration,
    emit: &impl Fn(u64),
) -> Result<WriteResult> {
    let mut written = WriteResult::default();
    for burst in 0..WARM_BURSTS + bursts {
        barrier.wait();
        if burst < WARM_BURSTS {
            emit(events);
        } else {
            emit_measured(&mut written, events, emit)?;
        }
        thread::sleep(pause);
    }
    Ok(written)
}

fn write_paced(barrier: &Barrier, rate: f64, length: Duration, emit: &impl Fn(u64)) -> Result<WriteResult> {
    let mut written = WriteResult::default();
    barrier.wait();
    let start = Instant::now();
    loop {
        let now = start.elapsed().min(length);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Whole events of a positive rate.
        let due = (rate * now.as_secs_f64()) as u64;
        if due > written.events {
            let events = due - written.events;
            emit_measured(&mut written, events, emit)?;
        }
        if now == length {
            return Ok(written);
        }
        // Sleeps until the next whole millisecond. A thread that is late continues at once with the
        // events that have become due.
        let spent = start.elapsed();
        if spent.as_millis() == now.as_millis() {
            thread::sleep(PACING_STEP - Duration::from_nanos(u64::from(spent.subsec_nanos()) % 1_000_000));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn burst(threads: usize) -> WriteLoad {
        WriteLoad {
            threads,
            payload: 40,
            pattern: LoadPattern::Burst { events: 100, bursts: 3, pause_us: 1 },
        }
    }

    #[test]
    fn load_is_parsed_from_its_arguments() {
        let paced = WriteLoad {
            threads: 2,
            payload: 200,
            pattern: LoadPattern::Paced { rate: 1_000_000, length_ms: 10 },
        };
        for load in [burst(1), paced] {
            assert_eq!(WriteLoad::parse(&load.arguments()), Some(load));
        }
        assert_eq!(WriteLoad::parse(&["burst".to_owned(), "1".to_owned()]), None);
        assert_eq!(burst(1).text().len(), 28);
    }

    #[test]
    fn only_bursts_after_the_warm_up_count() {
        let calls = AtomicU64::new(0);
        let load = burst(2);
        let written = load.run(&|n| _ = calls.fetch_add(n, Ordering::Relaxed)).unwrap();
        assert_eq!(written.events, 2 * 3 * 100);
        assert_eq!(Some(calls.into_inner()), load.offered_events());
    }

    #[test]
    fn paced_load_writes_only_due_events() {
        let calls = AtomicU64::new(0);
        let load = WriteLoad {
            threads: 2,
            payload: 40,
            pattern: LoadPattern::Paced { rate: 100_000, length_ms: 50 },
        };
        let written = load.run(&|n| _ = calls.fetch_add(n, Ordering::Relaxed)).unwrap();
        assert_eq!((written.events, calls.into_inner()), (5_000, 5_000));
        assert!(written.wall >= Duration::from_millis(50));
    }

    #[test]
    fn result_is_parsed_from_its_line() {
        let written = WriteResult { events: 4, cpu: Duration::from_nanos(100), wall: Duration::from_secs(2) };
        assert_eq!(written.to_string().parse::<WriteResult>().unwrap(), written);
        assert!((written.ns_per_event() - 25.0).abs() < 1e-9 && (written.rate() - 2.0).abs() < 1e-9);
        assert!("1 2".parse::<WriteResult>().is_err());
    }
}
