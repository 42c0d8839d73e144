//! Context switches, ready threads and lent priorities of programs of known behaviour: an extra, which needs the right to open tracepoints.

use std::io::{Read, Write, pipe};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use traceweir_kernel::{Group, now_ns};

use crate::again::again;
use crate::support::{Seen, capture, of, own_priority, pin, skip, this_thread, wanting};

const SWITCH: u16 = 0x0524;
const READY: u16 = 0x0532;
const SET_PRIORITY: u16 = 0x0530;
const WAITING: u64 = 5;
const TERMINATED: u64 = 4;

/// Switches to a thread and away from it, and when it was made ready, in time order.
fn life(seen: &[Seen], thread: u32) -> Vec<&Seen> {
    let thread = u64::from(thread);
    let mut all = of(seen, &[SWITCH, READY]);
    all.retain(|it| {
        let fields = it.fields();
        match it.hook {
            SWITCH => [fields.number("NewThreadId"), fields.number("OldThreadId")].contains(&thread),
            _ => fields.number("ThreadId") == thread,
        }
    });
    all
}

#[test]
fn a_thread_that_sleeps_is_switched_away_as_often_and_as_long_as_it_sleeps() {
    again(5, || {
        const SLEEPS: usize = 20;
        const LONG: Duration = Duration::from_millis(5);
        let thread = AtomicU32::new(0);
        let work = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin(0);
                    thread.store(this_thread(), Relaxed);
                    (0..SLEEPS).for_each(|_| std::thread::sleep(LONG));
                });
            });
            // Until the end of the thread is the end of its last time slice.
            std::thread::sleep(Duration::from_millis(50));
        };
        let Some((seen, capture)) = capture(&wanting(&[Group::CSWITCH, Group::DISPATCHER]), work) else {
            return;
        };
        assert_eq!(capture.lost(), 0);
        let thread = thread.into_inner();
        let (mut sleeps, mut ready_at, mut away_at) = (0, None, None);
        let life = life(&seen, thread);
        let first = life.first().expect("it began");
        assert_eq!((first.hook, first.fields().number("AdjustReason")), (READY, 0), "it waited for nothing");
        for event in &life {
            let fields = event.fields();
            if event.hook == READY {
                ready_at = Some(event.raw);
                if away_at.is_some_and(|away| event.raw - away >= LONG.as_nanos() as u64) {
                    assert_eq!(fields.number("AdjustReason"), 1);
                    assert_eq!(fields.number("Flags"), 1, "the timer wakes it, in an interrupt");
                }
            } else if fields.number("NewThreadId") == u64::from(thread) {
                let since = ready_at.take().or(away_at).expect("it was made ready");
                assert_eq!(fields.number("NewThreadWaitTime"), event.raw - since);
                if let Some(away) = away_at.take() {
                    assert!(event.raw - away >= LONG.as_nanos() as u64, "{}", event.raw - away);
                }
                assert_eq!(fields.number("NewThreadPriority"), own_priority());
            } else if fields.number("OldThreadState") == WAITING && fields.number("OldThreadWaitReason") == 6
            {
                assert_eq!(fields.number("OldThreadWaitMode"), 1);
                (sleeps, away_at, ready_at) = (sleeps + 1, Some(event.raw), None);
            } else {
                // Others had their turn: it stays ready from now on.
                ready_at = Some(event.raw);
            }
        }
        assert_eq!(sleeps, SLEEPS);
        let last = life.last().expect("it ended").fields();
        assert_eq!(
            (last.number("OldThreadId"), last.number("OldThreadState")),
            (u64::from(thread), TERMINATED)
        );
    });
}

/// What the kernel itself has counted of a thread, from one moment to another.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    thread: u64,
    span: (u64, u64),
    /// How often it was switched away because it waited, and although it could have gone on.
    switches: (usize, usize),
}

/// Counts what this thread does.
fn counting(work: impl FnOnce()) -> Counted {
    let counts = || {
        // SAFETY: the call fills the structure.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        [usage.ru_nvcsw, usage.ru_nivcsw].map(|it| usize::try_from(it).expect("a count"))
    };
    // A switch between the count and the time would be taken for one too many: then it is asked again.
    let moment = || loop {
        let (before, time) = (counts(), now_ns());
        if counts() == before {
            return (before, time);
        }
    };
    let (first, begun) = moment();
    work();
    let (last, ended) = moment();
    let switches = (last[0] - first[0], last[1] - first[1]);
    Counted { thread: u64::from(this_thread()), span: (begun, ended), switches }
}

#[test]
fn two_threads_on_one_processor_are_switched_as_often_as_the_kernel_counts() {
    again(5, || {
        const ROUNDS: usize = 300;
        let mut threads = [Counted::default(); 2];
        let work = || {
            let (mut to, mut from) = (pipe().unwrap(), pipe().unwrap());
            let [first, second] = &mut threads;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    pin(0);
                    let mut byte = [0];
                    *first = counting(|| {
                        for _ in 0..ROUNDS {
                            to.0.read_exact(&mut byte).unwrap();
                            from.1.write_all(&byte).unwrap();
                        }
                    });
                });
                scope.spawn(move || {
                    pin(0);
                    let mut byte = [7];
                    *second = counting(|| {
                        for _ in 0..ROUNDS {
                            to.1.write_all(&byte).unwrap();
                            from.0.read_exact(&mut byte).unwrap();
                        }
                    });
                });
            });
        };
        let Some((seen, capture)) = capture(&wanting(&[Group::CSWITCH]), work) else { return };
        assert_eq!(capture.lost(), 0);
        let mut running: Option<u64> = None;
        let mut told = [(0, 0); 2];
        for event in of(&seen, &[SWITCH]).iter().filter(|it| it.cpu == 0) {
            let fields = event.fields();
            let (new, old) = (fields.number("NewThreadId"), fields.number("OldThreadId"));
            let is_mine = |thread| threads.iter().any(|it| it.thread == thread);
            assert!(
                !running.is_some_and(is_mine) || running == Some(old),
                "who ran is who is switched away from"
            );
            running = Some(new);
            for (it, told) in threads.iter().zip(&mut told) {
                if it.thread == old && (it.span.0..it.span.1).contains(&event.raw) {
                    let is_waiting = fields.number("OldThreadState") == WAITING;
                    *(if is_waiting { &mut told.0 } else { &mut told.1 }) += 1;
                }
            }
            let is_idle = |thread: u64, name| thread != 0 || fields.number(name) == 0;
            assert!(is_idle(new, "NewThreadPriority") && is_idle(old, "OldThreadPriority"));
            assert!(new != 0 || fields.number("NewThreadWaitTime") == 0);
        }
        assert_eq!(told, threads.map(|it| it.switches));
        assert!(told.iter().all(|(waits, turns)| waits + turns + 2 >= ROUNDS), "{told:?}");
    });
}

/// A mutex that lends the priority of who waits to who holds it.
struct Lending(std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made to be used from all threads.
unsafe impl Sync for Lending {}

impl Lending {
    fn new() -> Self {
        let it = Self(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        // SAFETY: nobody uses it yet; the attributes live until it is made. It is not moved once it is locked.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT);
            assert_eq!(libc::pthread_mutex_init(it.0.get(), &raw const attributes), 0);
        }
        it
    }

    fn lock(&self) {
        // SAFETY: it was initialised, and lives.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
    }

    fn unlock(&self) {
        // SAFETY: by who locked it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// Whether this thread is one of the first-come kind with a priority now.
fn become_urgent(priority: i32) -> bool {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter is read.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

#[test]
fn a_priority_that_is_lent_is_told_when_it_comes_and_when_it_goes() {
    again(5, || {
        let (holder, may) = (AtomicU32::new(0), AtomicU32::new(0));
        let work = || {
            let mutex = Lending::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    mutex.lock();
                    holder.store(this_thread(), Relaxed);
                    std::thread::sleep(Duration::from_millis(60));
                    mutex.unlock();
                });
                scope.spawn(|| {
                    while holder.load(Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                    if become_urgent(50) {
                        may.store(1, Relaxed);
                        mutex.lock();
                        mutex.unlock();
                    }
                });
            });
        };
        let Some((seen, _)) = capture(&wanting(&[Group::PRIORITY]), work) else { return };
        if !skip::can(may.into_inner() == 1, "root", "real-time priorities need CAP_SYS_NICE") {
            return;
        }
        let holder = u64::from(holder.into_inner());
        let told: Vec<_> = of(&seen, &[SET_PRIORITY]).iter().map(|it| it.fields()).collect();
        let changes: Vec<(u64, u64)> = told
            .iter()
            .filter(|it| it.number("ThreadId") == holder)
            .map(|it| (it.number("OldPriority"), it.number("NewPriority")))
            .filter(|(old, new)| old != new)
            .collect();
        let own = own_priority();
        assert_eq!(changes, [(own, 24), (24, own)], "{told:?}");
    });
}
