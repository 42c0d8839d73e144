//! Context switches, ready threads and priority inheritance of programs with known behaviour. These
//! tests need access to tracepoints.

use std::io::{Read, Write, pipe};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use traceweir_format::kernel::hook::{CONTEXT_SWITCH, READY_THREAD, SET_PRIORITY};
use traceweir_kernel::{Group, now_ns};

use crate::retry::retry_alternately_with_busy_processors;
use crate::support::{
    CapturedEvent, capture, pin_to_cpu, select_hooks, settings_for, skip, this_thread_id,
    this_thread_priority,
};

const STATE_WAITING: u64 = 5;
const STATE_TERMINATED: u64 = 4;
/// The wait reason of a thread that waits in a system call.
const USER_REQUEST: u64 = 6;
/// Real-time priority 50 on the scale of the events.
const BOOSTED_PRIORITY: u64 = 24;

/// Returns the switches to and from a thread and its ready events, in time order.
fn find_thread_events(events: &[CapturedEvent], thread: u32) -> Vec<&CapturedEvent> {
    let thread = u64::from(thread);
    let mut thread_events = select_hooks(events, &[CONTEXT_SWITCH, READY_THREAD]);
    thread_events.retain(|event| {
        let fields = event.fields();
        match event.hook {
            CONTEXT_SWITCH => [fields.number("NewThreadId"), fields.number("OldThreadId")].contains(&thread),
            _ => fields.number("ThreadId") == thread,
        }
    });
    thread_events
}

#[test]
fn sleeping_thread_is_switched_out_for_each_sleep() {
    retry_alternately_with_busy_processors(5, || {
        const SLEEPS: usize = 20;
        const SLEEP: Duration = Duration::from_millis(5);
        let thread = AtomicU32::new(0);
        let work = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin_to_cpu(0);
                    thread.store(this_thread_id(), Relaxed);
                    (0..SLEEPS).for_each(|_| std::thread::sleep(SLEEP));
                });
            });
            // Waits until the thread has been switched out for the last time.
            std::thread::sleep(Duration::from_millis(50));
        };
        let Some((events, capture)) = capture(&settings_for(&[Group::CSWITCH, Group::DISPATCHER]), work)
        else {
            return;
        };
        assert_eq!(capture.lost(), 0);
        let thread = thread.into_inner();
        let (mut sleeps, mut ready_at, mut away_at) = (0, None, None);
        let thread_events = find_thread_events(&events, thread);
        let first = thread_events.first().expect("the thread start is not captured");
        // The reason 1 means that a wait has ended; a new thread has not waited.
        assert_eq!((first.hook, first.fields().number("AdjustReason")), (READY_THREAD, 0), "it had waited");
        for event in &thread_events {
            let fields = event.fields();
            if event.hook == READY_THREAD {
                ready_at = Some(event.stamp);
                if away_at.is_some_and(|away| event.stamp - away >= SLEEP.as_nanos() as u64) {
                    assert_eq!(fields.number("AdjustReason"), 1);
                    // The flag 1 marks a wakeup in an interrupt, here that of the timer.
                    assert_eq!(fields.number("Flags"), 1, "not woken in an interrupt");
                }
            } else if fields.number("NewThreadId") == u64::from(thread) {
                let since = ready_at.take().or(away_at).expect("a switch in has no cause");
                assert_eq!(fields.number("NewThreadWaitTime"), event.stamp - since);
                if let Some(away) = away_at.take() {
                    assert!(event.stamp - away >= SLEEP.as_nanos() as u64, "{}", event.stamp - away);
                }
                assert_eq!(fields.number("NewThreadPriority"), this_thread_priority());
            } else if fields.number("OldThreadState") == STATE_WAITING
                && fields.number("OldThreadWaitReason") == USER_REQUEST
            {
                assert_eq!(fields.number("OldThreadWaitMode"), 1);
                (sleeps, away_at, ready_at) = (sleeps + 1, Some(event.stamp), None);
            } else {
                // The thread was preempted and stays ready.
                ready_at = Some(event.stamp);
            }
        }
        assert_eq!(sleeps, SLEEPS);
        let last = thread_events.last().expect("the thread end is not captured").fields();
        assert_eq!(
            (last.number("OldThreadId"), last.number("OldThreadState")),
            (u64::from(thread), STATE_TERMINATED)
        );
    });
}

/// The switches of a thread during a time span, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default)]
struct SwitchCounts {
    thread: u64,
    span: (u64, u64),
    /// The number of voluntary and of involuntary switches.
    switches: (usize, usize),
}

/// Counts the switches of this thread while `work` runs.
fn count_switches(work: impl FnOnce()) -> SwitchCounts {
    let counts = || {
        // SAFETY: zeros are a valid `rusage`, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        [usage.ru_nvcsw, usage.ru_nivcsw].map(|count| usize::try_from(count).expect("the count is negative"))
    };
    // Repeats if a switch falls between reading the count and the time.
    let read_counts_and_time = || loop {
        let (before, time) = (counts(), now_ns());
        if counts() == before {
            return (before, time);
        }
    };
    let (first, start) = read_counts_and_time();
    work();
    let (last, ended) = read_counts_and_time();
    let switches = (last[0] - first[0], last[1] - first[1]);
    SwitchCounts { thread: u64::from(this_thread_id()), span: (start, ended), switches }
}

#[test]
fn switches_on_one_processor_match_the_kernel_counts() {
    retry_alternately_with_busy_processors(5, || {
        const ROUNDS: usize = 300;
        let mut threads = [SwitchCounts::default(); 2];
        let work = || {
            let (mut to, mut from) = (pipe().unwrap(), pipe().unwrap());
            let [first, second] = &mut threads;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    pin_to_cpu(0);
                    let mut byte = [0];
                    *first = count_switches(|| {
                        for _ in 0..ROUNDS {
                            to.0.read_exact(&mut byte).unwrap();
                            from.1.write_all(&byte).unwrap();
                        }
                    });
                });
                scope.spawn(move || {
                    pin_to_cpu(0);
                    let mut byte = [7];
                    *second = count_switches(|| {
                        for _ in 0..ROUNDS {
                            to.1.write_all(&byte).unwrap();
                            from.0.read_exact(&mut byte).unwrap();
                        }
                    });
                });
            });
        };
        let Some((events, capture)) = capture(&settings_for(&[Group::CSWITCH]), work) else { return };
        assert_eq!(capture.lost(), 0);
        let mut running: Option<u64> = None;
        let mut recorded = [(0, 0); 2];
        for event in select_hooks(&events, &[CONTEXT_SWITCH]).iter().filter(|event| event.cpu == 0) {
            let fields = event.fields();
            let (new, old) = (fields.number("NewThreadId"), fields.number("OldThreadId"));
            let is_own = |thread| threads.iter().any(|counted| counted.thread == thread);
            assert!(
                !running.is_some_and(is_own) || running == Some(old),
                "the old thread is not the one that ran"
            );
            running = Some(new);
            for (counted, recorded) in threads.iter().zip(&mut recorded) {
                if counted.thread == old && (counted.span.0..counted.span.1).contains(&event.stamp) {
                    let is_waiting = fields.number("OldThreadState") == STATE_WAITING;
                    *(if is_waiting { &mut recorded.0 } else { &mut recorded.1 }) += 1;
                }
            }
            // The idle thread has priority 0 and no wait time.
            let is_valid = |thread: u64, name| thread != 0 || fields.number(name) == 0;
            assert!(is_valid(new, "NewThreadPriority") && is_valid(old, "OldThreadPriority"));
            assert!(new != 0 || fields.number("NewThreadWaitTime") == 0);
        }
        assert_eq!(recorded, threads.map(|counted| counted.switches));
        assert!(
            recorded.iter().all(|(waits, preemptions)| waits + preemptions + 2 >= ROUNDS),
            "{recorded:?}"
        );
    });
}

/// A mutex with priority inheritance.
struct InheritingMutex(std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex may be used from all threads.
unsafe impl Sync for InheritingMutex {}

impl InheritingMutex {
    fn new() -> Self {
        let mutex = Self(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        // SAFETY: nothing uses the mutex yet, the attributes live until it is initialized, and it
        // is not moved once it is locked.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT);
            assert_eq!(libc::pthread_mutex_init(mutex.0.get(), &raw const attributes), 0);
        }
        mutex
    }

    fn lock(&self) {
        // SAFETY: the mutex is initialized and alive.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
    }

    fn unlock(&self) {
        // SAFETY: the thread that locked the mutex unlocks it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// Gives this thread a real-time priority. Returns whether that succeeded.
fn set_real_time_priority(priority: i32) -> bool {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the call only reads the parameter.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

#[test]
fn inherited_priority_is_recorded_when_it_begins_and_ends() {
    retry_alternately_with_busy_processors(5, || {
        let (holder, has_real_time) = (AtomicU32::new(0), AtomicU32::new(0));
        let work = || {
            let mutex = InheritingMutex::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    mutex.lock();
                    holder.store(this_thread_id(), Relaxed);
                    std::thread::sleep(Duration::from_millis(60));
                    mutex.unlock();
                });
                scope.spawn(|| {
                    while holder.load(Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                    if set_real_time_priority(50) {
                        has_real_time.store(1, Relaxed);
                        mutex.lock();
                        mutex.unlock();
                    }
                });
            });
        };
        let Some((events, _)) = capture(&settings_for(&[Group::PRIORITY]), work) else { return };
        if !skip::holds_or_skip(
            has_real_time.into_inner() == 1,
            "root",
            "real-time priorities need CAP_SYS_NICE",
        ) {
            return;
        }
        let holder = u64::from(holder.into_inner());
        let recorded: Vec<_> =
            select_hooks(&events, &[SET_PRIORITY]).iter().map(|event| event.fields()).collect();
        let changes: Vec<(u64, u64)> = recorded
            .iter()
            .filter(|fields| fields.number("ThreadId") == holder)
            .map(|fields| (fields.number("OldPriority"), fields.number("NewPriority")))
            .filter(|(old, new)| old != new)
            .collect();
        let own = this_thread_priority();
        assert_eq!(changes, [(own, BOOSTED_PRIORITY), (BOOSTED_PRIORITY, own)], "{recorded:?}");
    });
}
