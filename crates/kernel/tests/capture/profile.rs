//! Samples of programs with known behaviour, intervals, and counters in events. These tests need
//! access to perf events of the whole machine.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use traceweir_format::kernel::hook::{
    CONTEXT_SWITCH, DPC, PMC_CONFIG, PMC_PROFILE, PROFILE_END, PROFILE_SET_INTERVAL, PROFILE_START,
    READY_THREAD, SAMPLED_PROFILE, TIMER_DPC,
};
use traceweir_format::wire::u64_at;
use traceweir_kernel::{CaptureSettings, Counter, Group, Groups};

use crate::retry::retry_alternately_with_busy_processors;
use crate::support::{
    CapturedEvent, FreshMemory, capture, capture_with_changes, cpu_count, pin_to_cpu, select_hooks,
    settings_for, this_thread_id, this_thread_priority,
};

// Ids of profile sources.
const TOTAL_CYCLES: u32 = 19;
const PAGE_FAULTS: u32 = 0x0801;
const CONTEXT_SWITCHES: u32 = 0x0802;

/// Returns the processor time that this thread has used.
fn used_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

#[inline(never)]
fn use_cpu_time(duration: Duration) {
    let (start, mut sum) = (used_cpu_time(), 0_u64);
    while used_cpu_time() - start < duration {
        for number in 0..20_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
}

/// Returns three standard deviations of an expected count, plus two for start and end.
fn tolerance(expected: f64) -> f64 {
    3.0 * expected.sqrt() + 2.0
}

fn count_samples(events: &[CapturedEvent], thread: u32) -> f64 {
    let samples = select_hooks(events, &[SAMPLED_PROFILE]);
    let own = samples.iter().filter(|event| event.fields().number("ThreadId") == u64::from(thread));
    f64::from(u32::try_from(own.count()).unwrap())
}

#[test]
fn thread_is_sampled_in_proportion_to_its_run_time() {
    retry_alternately_with_busy_processors(5, || {
        let (thread, ran_us) = (AtomicU32::new(0), AtomicU64::new(0));
        let work = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin_to_cpu(0);
                    thread.store(this_thread_id(), Relaxed);
                    // The thread runs at most a third of the time.
                    for _ in 0..20 {
                        use_cpu_time(Duration::from_millis(20));
                        std::thread::sleep(Duration::from_millis(40));
                    }
                    ran_us.store(u64::try_from(used_cpu_time().as_micros()).unwrap(), Relaxed);
                });
            });
        };
        let settings = settings_for(&[Group::PROFILE, Group::CSWITCH]);
        let Some((events, capture)) = capture(&settings, work) else { return };
        assert_eq!(capture.lost(), 0);
        // The default interval is 1 ms.
        let expected = f64::from(u32::try_from(ran_us.into_inner()).unwrap()) / 1000.0;
        let thread = thread.into_inner();
        let samples = count_samples(&events, thread);
        assert!((samples - expected).abs() <= tolerance(expected), "{samples} samples in {expected} ms");
        let mut known_priorities = 0;
        for sample in select_hooks(&events, &[SAMPLED_PROFILE]) {
            let fields = sample.fields();
            assert_eq!((fields.number("Count"), fields.number("Rank")), (1, 0));
            assert_ne!(fields.number("InstructionPointer"), 0);
            if fields.number("ThreadId") == u64::from(thread) {
                // The priority is that of this thread, or 0 if the switch to the thread is missing.
                assert!([this_thread_priority(), 0].contains(&(fields.number("Flags") >> 3)));
                known_priorities += u32::from(fields.number("Flags") >> 3 == this_thread_priority());
            }
        }
        assert!(known_priorities > 0, "no sample has its thread's priority");
        let recorded: Vec<(u16, String, u64)> =
            select_hooks(&events, &[PROFILE_START, PROFILE_END, PROFILE_SET_INTERVAL])
                .iter()
                .map(|event| {
                    (
                        event.hook,
                        event.fields().text("SourceName").to_owned(),
                        event.fields().number("NewInterval"),
                    )
                })
                .collect();
        let timer = |hook| (hook, "Timer".to_owned(), 10_000);
        assert_eq!(recorded, [timer(PROFILE_START), timer(PROFILE_END)]);
        assert!(
            select_hooks(&events, &[PROFILE_START])
                .iter()
                .all(|event| event.is_system() && event.payload.len() == 24)
        );
    });
}

#[test]
fn changed_interval_is_recorded_and_applied() {
    retry_alternately_with_busy_processors(5, || {
        let mut before = settings_for(&[Group::PROFILE]);
        before.interval = 20_000;
        let after = CaptureSettings { interval: 5_000, ..before.clone() };
        let no_groups = CaptureSettings { groups: Groups::new(&[]), ..after.clone() };
        let thread = this_thread_id();
        let mut ran_us = 0;
        let work = |control: &traceweir_kernel::CaptureControl, poll: &mut dyn FnMut()| {
            control.set(&after).expect("the settings do not apply");
            poll();
            let start = used_cpu_time();
            use_cpu_time(Duration::from_millis(300));
            ran_us = u32::try_from((used_cpu_time() - start).as_micros()).unwrap();
            poll();
            control.set(&no_groups).expect("the settings do not apply");
            poll();
        };
        let Some((events, _)) = capture_with_changes(&before, work) else { return };
        // 5,000 units of 100 ns are 500 µs.
        let expected = f64::from(ran_us) / 500.0;
        let samples = count_samples(&events, thread);
        assert!((samples - expected).abs() <= tolerance(expected) + 4.0, "{samples} samples, not {expected}");
        let recorded: Vec<(u16, u64, u64)> =
            select_hooks(&events, &[PROFILE_START, PROFILE_SET_INTERVAL, PROFILE_END])
                .iter()
                .map(|event| {
                    (event.hook, event.fields().number("NewInterval"), event.fields().number("OldInterval"))
                })
                .collect();
        assert_eq!(
            recorded,
            [
                (PROFILE_START, 20_000, 20_000),
                (PROFILE_SET_INTERVAL, 5_000, 20_000),
                (PROFILE_END, 5_000, 5_000),
            ],
            "not exactly one start, one change and one end"
        );
    });
}

/// Sends datagrams to itself for some time, about half of which is spent in softirqs.
fn send_and_receive(duration: Duration) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("the socket does not bind");
    let (to, start, mut buffer) =
        (socket.local_addr().expect("the socket has no address"), used_cpu_time(), [0; 1000]);
    while used_cpu_time() - start < duration {
        for _ in 0..50 {
            socket.send_to(&[7; 1000], to).expect("the datagram is not transferred");
            socket.recv(&mut buffer).expect("the datagram is not transferred");
        }
    }
}

#[test]
fn samples_within_a_deferred_call_are_marked() {
    retry_alternately_with_busy_processors(5, || {
        let thread = u64::from(this_thread_id());
        let settings = CaptureSettings { interval: 2_000, ..settings_for(&[Group::PROFILE, Group::DPC]) };
        let Some((events, capture)) = capture(&settings, || send_and_receive(Duration::from_millis(200)))
        else {
            return;
        };
        assert_eq!(capture.lost(), 0);
        // Processor, end and entry of each call, sorted; calls of one processor do not overlap.
        // Other tests check the payloads of these many events.
        let mut calls: Vec<(u16, u64, u64)> = select_hooks(&events, &[DPC, TIMER_DPC])
            .iter()
            .map(|event| (event.cpu, event.stamp, u64_at(&event.payload, 0)))
            .collect();
        calls.sort_unstable();
        let mut marked_samples = 0;
        for sample in select_hooks(&events, &[SAMPLED_PROFILE]) {
            let fields = sample.fields();
            if fields.number("ThreadId") != thread {
                continue;
            }
            let next = calls.partition_point(|(cpu, ended, _)| (*cpu, *ended) <= (sample.cpu, sample.stamp));
            let is_within =
                calls.get(next).is_some_and(|(cpu, _, entry)| *cpu == sample.cpu && *entry <= sample.stamp);
            assert_eq!(fields.number("Flags") & 1 == 1, is_within, "{}", sample.stamp);
            marked_samples += u32::from(is_within);
        }
        assert!(marked_samples > 20, "{marked_samples}");
    });
}

fn counter(id: u32, name: &str, interval: u32) -> Counter {
    Counter { id, name: name.to_owned(), interval }
}

#[test]
fn counter_samples_after_each_interval() {
    retry_alternately_with_busy_processors(5, || {
        const PAGES: usize = 500;
        let settings = CaptureSettings {
            profile_sources: vec![counter(PAGE_FAULTS, "PageFaults", 1)],
            ..settings_for(&[Group::PMC_PROFILE])
        };
        let thread = u64::from(this_thread_id());
        let fresh = FreshMemory::map_pages(PAGES);
        let Some((events, capture)) = capture(&settings, || fresh.write()) else { return };
        assert_eq!(capture.lost(), 0);
        let samples: Vec<_> =
            select_hooks(&events, &[PMC_PROFILE]).iter().map(|event| event.fields()).collect();
        let own: Vec<_> = samples.iter().filter(|fields| fields.number("ThreadId") == thread).collect();
        // This thread has few other faults, for the memory of the capture itself.
        assert!((PAGES..PAGES + 100).contains(&own.len()), "{}", own.len());
        assert!(own.iter().all(|fields| fields.number("ProfileSource") == u64::from(PAGE_FAULTS)));
        let starts = select_hooks(&events, &[PROFILE_START]);
        assert_eq!(starts.len(), 1);
        let start = starts[0].fields();
        assert_eq!(
            (start.number("Source"), start.text("SourceName")),
            (u64::from(PAGE_FAULTS), "PageFaults")
        );
    });
}

#[test]
fn counters_are_read_with_the_selected_events() {
    retry_alternately_with_busy_processors(5, || {
        let settings = CaptureSettings {
            counters: vec![
                counter(CONTEXT_SWITCHES, "ContextSwitches", 0),
                counter(PAGE_FAULTS, "PageFaults", 0),
            ],
            counter_hooks: vec![CONTEXT_SWITCH],
            stacks: vec![CONTEXT_SWITCH],
            ..settings_for(&[Group::CSWITCH, Group::DISPATCHER])
        };
        let work = || {
            pin_to_cpu(0);
            let fresh = FreshMemory::map_pages(50);
            (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
            fresh.write();
            std::thread::sleep(Duration::from_millis(1));
            unpin_from_cpu();
        };
        let Some((events, capture)) = capture(&settings, work) else { return };
        assert_eq!(capture.lost(), 0);
        for cpu in 0..cpu_count() {
            let switches: Vec<&CapturedEvent> = select_hooks(&events, &[CONTEXT_SWITCH])
                .into_iter()
                .filter(|event| event.cpu == cpu)
                .collect();
            let counters: Vec<[u64; 2]> = switches
                .iter()
                .map(|event| event.counters().try_into().expect("a switch does not have two counters"))
                .collect();
            for (pair, values) in switches.windows(2).zip(counters.windows(2)) {
                let [before, after] = [values[0], values[1]];
                // The counter also counts switches between the two that the trace lacks.
                let is_next =
                    pair[0].fields().number("NewThreadId") == pair[1].fields().number("OldThreadId");
                let is_right = if is_next { after[0] == before[0] + 1 } else { after[0] > before[0] + 1 };
                assert!(is_right, "a switch was not counted: {before:?} {after:?}");
                assert!(after[1] >= before[1]);
            }
            if let (0, Some(first), Some(last)) = (cpu, counters.first(), counters.last()) {
                assert!(last[1] - first[1] >= 50, "{first:?} {last:?}");
            }
            assert!(switches.iter().all(|event| event.fields().number("OldThreadState") <= 5));
        }
        assert!(select_hooks(&events, &[READY_THREAD]).iter().all(|event| event.counters().is_empty()));
        assert!(events.iter().any(|event| event.is_stack), "no stack is recorded");
        let names = select_hooks(&events, &[PMC_CONFIG]);
        assert_eq!(names[0].fields().texts("CounterName"), ["ContextSwitches", "PageFaults"]);
    });
}

/// Lets this thread run on all processors again.
fn unpin_from_cpu() {
    // SAFETY: a set of processors is plain bits, for which zeros are valid, and the call reads as
    // many bytes as its argument says.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..usize::from(cpu_count())).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

#[test]
fn unknown_counter_is_missing_or_rejected() {
    retry_alternately_with_busy_processors(5, || {
        let settings = CaptureSettings {
            profile_sources: vec![counter(0x1FFF, "no-such-event", 1)],
            ..settings_for(&[Group::PMC_PROFILE])
        };
        let work = |control: &traceweir_kernel::CaptureControl, _: &mut dyn FnMut()| {
            assert_eq!(control.missing_events(), ["profile source no-such-event"]);
            let with_counters = CaptureSettings {
                counters: vec![counter(0x1FFF, "no-such-event", 1)],
                counter_hooks: vec![CONTEXT_SWITCH],
                ..settings_for(&[Group::CSWITCH])
            };
            let cycles = CaptureSettings {
                profile_sources: vec![counter(TOTAL_CYCLES, "TotalCycles", 1_000_000)],
                ..settings_for(&[Group::PMC_PROFILE])
            };
            control.set(&cycles).expect("a missing source is rejected");
            let has_counters = std::fs::exists("/sys/bus/event_source/devices/cpu").unwrap_or(false);
            assert_eq!(control.missing_events().is_empty(), has_counters, "{:?}", control.missing_events());
            let refused = control.set(&with_counters).expect_err("the counter exists");
            assert_eq!(refused.to_string(), "this kernel has no counter no-such-event");
        };
        capture_with_changes(&settings, work);
    });
}
