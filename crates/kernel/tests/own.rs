//! Captures of a user's own processes, without access to the events of the whole machine.
//!
//! These tests run apart from the other captures, because the kernel limits the memory that all
//! rings of a user lock together.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use traceweir_format::header::Record;
use traceweir_format::kernel::hook::{
    CONTEXT_SWITCH, DEMAND_ZERO_FAULT, IMAGE_LOAD, PROCESS_END, PROCESS_START, SAMPLED_PROFILE, STACK_WALK,
};
use traceweir_format::spec::event::class;
use traceweir_format::spec::system::LIMITED_RING_COPIES;
use traceweir_format::wire::{u32_at, u64_at};
use traceweir_kernel::{Capture, CaptureScope, CaptureSettings, Group, Groups};

#[path = "../../../tests/support/retry.rs"]
mod retry;
#[path = "capture/support.rs"]
mod support;
use retry::retry_alternately_with_busy_processors;
use support::{NanosecondClock, skip};

/// Waits until no other test has rings, so that all of the user's locked memory is free.
fn lock_locked_memory() -> MutexGuard<'static, ()> {
    static CAPTURE: Mutex<()> = Mutex::new(());
    CAPTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns hook (0 if there is none) and payload of all events of a capture that lasts while `work`
/// runs. `work` polls now and then, because the rings are small. Skips the test and returns `None`
/// if the capture does not start.
fn capture_hooks(
    settings: &CaptureSettings,
    work: impl FnOnce(&mut dyn FnMut()),
) -> Option<Vec<(u16, Vec<u8>)>> {
    let (mut capture, _) = support::start_or_skip(settings, 1)?;
    capture.poll(&NanosecondClock, false);
    work(&mut || capture.poll(&NanosecondClock, false));
    capture.end(&NanosecondClock);
    let mut events = Vec::new();
    while let Some((_, bytes)) = support::pop_record(&mut capture, 0) {
        let record = Record::parse(&bytes, 0).expect("invalid record");
        events.push((record.hook().unwrap_or(0), record.payload().to_vec()));
    }
    Some(events)
}

#[test]
fn unprivileged_user_captures_own_processes() {
    let _lock = lock_locked_memory();
    retry_alternately_with_busy_processors(5, || {
        let groups = [
            Group::PROCESS,
            Group::THREAD,
            Group::IMAGE_LOAD,
            Group::CSWITCH,
            Group::PROFILE,
            Group::PAGE_FAULTS,
            Group::NO_SYSCONFIG,
        ];
        // The size that every user may lock.
        let settings = CaptureSettings {
            groups: Groups::new(&groups),
            scope: CaptureScope::Own,
            ring_bytes: 512 << 10,
            stacks: vec![SAMPLED_PROFILE],
            ..CaptureSettings::default()
        };
        let mut child = 0;
        let work = |poll: &mut dyn FnMut()| {
            let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.05";
            let mut started = Command::new("sh").args(["-c", script]).spawn().expect("the start fails");
            child = started.id();
            let start = Instant::now();
            while started.try_wait().expect("the state of the program is not known").is_none() {
                poll();
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(start.elapsed() > Duration::from_millis(50));
        };
        let Some(events) = capture_hooks(&settings, work) else { return };
        // Counts events with this process or thread id at an offset of the payload: 0 and 4 are the
        // new and the old thread of a switch, 8 the process or the sampled thread, 12 the thread of
        // a stack, 16 the process of an image.
        let count = |hook: u16, offset: usize, id: u32| {
            let has_id = |payload: &[u8]| u32_at(payload, offset) == id;
            events.iter().filter(|(seen_hook, payload)| *seen_hook == hook && has_id(payload)).count()
        };
        // An exec ends one program and starts the next.
        assert_eq!(count(PROCESS_START, 8, child), 2, "not a fork and an exec");
        assert_eq!(count(PROCESS_END, 8, child), 2, "not an end for each start");
        assert!(count(SAMPLED_PROFILE, 8, child) > 10, "too few samples");
        assert!(count(STACK_WALK, 12, child) > 10, "too few stacks");
        assert!(
            count(CONTEXT_SWITCH, 0, child) > 0 && count(CONTEXT_SWITCH, 4, child) > 0,
            "no switches to and from the thread"
        );
        assert!(count(IMAGE_LOAD, 16, child) > 0, "no image loads");
        assert!(
            events.iter().any(|(hook, payload)| *hook == DEMAND_ZERO_FAULT && payload.len() == 16),
            "no page faults"
        );
        // An unprivileged user gets no kernel addresses. Byte 7 is the highest byte of the sampled
        // address.
        let top_bytes: BTreeSet<u8> = events
            .iter()
            .filter(|(hook, _)| *hook == SAMPLED_PROFILE)
            .map(|(_, payload)| payload[7])
            .collect();
        assert!(top_bytes.iter().all(|byte| *byte < 0x80), "a kernel address was sampled");
    });
}

#[test]
fn times_are_readings_of_the_monotonic_clock() {
    let _lock = lock_locked_memory();
    let settings = CaptureSettings {
        groups: Groups::new(&[Group::CSWITCH, Group::NO_SYSCONFIG]),
        scope: CaptureScope::Own,
        ring_bytes: 512 << 10,
        ..CaptureSettings::default()
    };
    let Some((mut capture, _)) = support::start_or_skip(&settings, 1) else { return };
    capture.poll(&NanosecondClock, false);
    let monotonic_ns = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    };
    let own_tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let before = monotonic_ns();
    (0..20).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
    let after = monotonic_ns();
    capture.end(&NanosecondClock);
    let mut count = 0;
    while let Some((queued, bytes)) = support::pop_record(&mut capture, 0) {
        let record = Record::parse(&bytes, 0).expect("invalid record");
        let is_own = record.hook() == Some(CONTEXT_SWITCH)
            && [0, 4].iter().any(|at| u32_at(record.payload(), *at) == own_tid);
        // The thread can lose its processor before the first and after the last reading.
        count += u32::from(is_own && (before..=after).contains(&queued.raw));
    }
    assert!(count >= 20, "{count} switches between {before} and {after}");
}

#[test]
fn events_before_a_change_follow_the_old_settings() {
    let _lock = lock_locked_memory();
    let own_settings = |groups: &[Group]| CaptureSettings {
        groups: Groups::new(groups),
        scope: CaptureScope::Own,
        ring_bytes: 512 << 10,
        ..CaptureSettings::default()
    };
    let (switches, no_groups) =
        (own_settings(&[Group::CSWITCH, Group::NO_SYSCONFIG]), own_settings(&[Group::NO_SYSCONFIG]));
    let Some((mut capture, control)) = support::start_or_skip(&no_groups, 1) else { return };
    let own_tid = rustix::thread::gettid().as_raw_nonzero().get();
    let sleep_times = |times: u32| (0..times).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
    let mut count_switches = || {
        capture.poll(&NanosecondClock, false);
        let mut count = 0;
        while let Some((_, bytes)) = support::pop_record(&mut capture, 0) {
            let record = Record::parse(&bytes, 0).expect("invalid record");
            let is_own = || i64::from(u32_at(record.payload(), 4)) == i64::from(own_tid);
            count += u32::from(record.hook() == Some(CONTEXT_SWITCH) && is_own());
        }
        count
    };
    // Other processes may make this thread wait too. Therefore it makes far more switches outside
    // the counted time than within.
    const FEW_SWITCHES: u32 = 20;
    const MANY_SWITCHES: u32 = 400;
    count_switches();
    sleep_times(MANY_SWITCHES);
    control.set(&switches).expect("the settings do not apply");
    sleep_times(FEW_SWITCHES);
    let after = count_switches();
    assert!(
        (FEW_SWITCHES..MANY_SWITCHES).contains(&after),
        "{after} switches, not only those after the change"
    );
    sleep_times(FEW_SWITCHES);
    control.set(&no_groups).expect("the settings do not apply");
    sleep_times(MANY_SWITCHES);
    let before = count_switches();
    assert!(
        (FEW_SWITCHES..MANY_SWITCHES).contains(&before),
        "{before} switches, not only those before the change"
    );
    sleep_times(FEW_SWITCHES);
    assert_eq!(count_switches(), 0);
}

/// The images that a process has loaded, by base: size, and build id of twenty bytes if there is
/// one.
type LoadedImages = BTreeMap<u64, (u64, Option<Vec<u8>>)>;

/// Removes the queued records of a capture and returns the images of a process.
fn take_images(process: u32, capture: &mut Capture) -> LoadedImages {
    const ID_RSDS: u8 = 36;
    let (mut images, mut ids) = (LoadedImages::new(), BTreeMap::new());
    while let Some((_, bytes)) = support::pop_record(capture, 0) {
        let record = Record::parse(&bytes, 0).expect("invalid record");
        let payload = record.payload();
        let base = u64_at(payload, 0);
        if record.hook() == Some(IMAGE_LOAD) && u32_at(payload, 16) == process {
            images.insert(base, (u64_at(payload, 8), ids.remove(&base)));
        }
        let is_id = record.provider() == class::IMAGE_ID && record.descriptor().opcode == ID_RSDS;
        if is_id && u32_at(payload, 8) == process {
            ids.insert(base, payload[12..32].to_vec());
        }
    }
    images
}

#[test]
fn image_ids_do_not_depend_on_other_captures() {
    let _lock = lock_locked_memory();
    let image_settings = |scope| CaptureSettings {
        groups: Groups::new(&[Group::PROCESS, Group::IMAGE_LOAD, Group::NO_SYSCONFIG]),
        scope,
        ring_bytes: 512 << 10,
        ..CaptureSettings::default()
    };
    let Some((mut own, _)) = support::start_or_skip(&image_settings(CaptureScope::Own), 1) else { return };
    let everything = CaptureSettings { ring_bytes: 4 << 20, ..image_settings(CaptureScope::Everything) };
    let (mut machine, _) = match Capture::start(&everything, support::cpu_count(), 1) {
        Ok(started) => started,
        Err(error) => return skip::skip("events of the whole machine", &error.to_string()),
    };
    for capture in [&mut own, &mut machine] {
        capture.poll(&NanosecondClock, false);
    }
    let mut command = Command::new("sh");
    command.args(["-c", "echo; read line; true"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the start fails");
    // The process has loaded all of its images when it prints, and stays until its input ends.
    child
        .stdout
        .as_mut()
        .expect("the program has no output")
        .read_exact(&mut [0])
        .expect("the program prints no line");
    for capture in [&mut own, &mut machine] {
        // The process is alive, so that its mappings can be inspected.
        capture.poll(&NanosecondClock, true);
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("the process does not end").success());
    let own_images = take_images(child.id(), &mut own);
    assert!(own_images.values().any(|(_, id)| id.is_some()), "{own_images:02x?}");
    assert_eq!(own_images, take_images(child.id(), &mut machine), "the scopes give different images");
}

#[test]
fn rings_shrink_to_the_locked_memory_limit() {
    let _lock = lock_locked_memory();
    // Runs on its own thread, which drops the capability to lock memory beyond the limit.
    let run = || {
        let mut sets = rustix::thread::capabilities(None).expect("the capabilities are not readable");
        sets.effective.remove(rustix::thread::CapabilitySet::IPC_LOCK);
        rustix::thread::set_capabilities(None, sets).expect("a capability cannot be dropped");
        let settings = |ring_bytes| CaptureSettings {
            groups: Groups::new(&[Group::PROFILE, Group::NO_SYSCONFIG]),
            scope: CaptureScope::Own,
            ring_bytes,
            ..CaptureSettings::default()
        };
        if let Err(error) = Capture::start(&settings(64 << 10), support::cpu_count(), 1) {
            return skip::skip("kernel events", &error.to_string());
        }
        let (mut capture, _) = Capture::start(&settings(64 << 20), support::cpu_count(), 1)
            .expect("the capture does not start with smaller rings");
        let limit = capture.stack_limit_bytes().expect("the stack copies are not limited");
        assert!(limit < (64 << 20) / LIMITED_RING_COPIES, "{limit}");
        capture.poll(&NanosecondClock, false);
        assert!(capture.peek(0).is_some(), "the start rundown is missing");
        capture.end(&NanosecondClock);
    };
    std::thread::scope(|scope| scope.spawn(run).join()).expect("the thread panicked");
}

/// Uses this much processor time.
fn use_cpu_time(span: Duration) {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).expect("the time is not positive")
    };
    let start = used();
    while used() - start < span {
        std::hint::black_box((0..10_000_u64).fold(0, |sum, number| sum ^ std::hint::black_box(number)));
    }
}

#[test]
fn small_rings_lose_nothing_without_polls() {
    let _lock = lock_locked_memory();
    retry_alternately_with_busy_processors(5, || {
        let settings = CaptureSettings {
            groups: Groups::new(&[Group::PROFILE, Group::NO_SYSCONFIG]),
            scope: CaptureScope::Own,
            ring_bytes: 512 << 10,
            stacks: vec![SAMPLED_PROFILE],
            stack_bytes: 4 << 10,
            // Other programs of this user are sampled too.
            relay_queue_bytes: 256 << 20,
            ..CaptureSettings::default()
        };
        let Some((mut capture, _)) = support::start_or_skip(&settings, 1) else { return };
        assert_eq!(capture.stack_limit_bytes(), Some(16 << 10), "not 32 copies fit");
        capture.poll(&NanosecondClock, false);
        // A sample per millisecond takes more than 4 KiB, so 128 ms fill the ring.
        use_cpu_time(Duration::from_millis(300));
        capture.end(&NanosecondClock);
        assert_eq!(capture.lost(), 0, "{:?}", capture.lost_by_cpu());
        let mut samples = 0;
        while let Some((_, bytes)) = support::pop_record(&mut capture, 0) {
            samples +=
                u32::from(Record::parse(&bytes, 0).expect("invalid record").hook() == Some(SAMPLED_PROFILE));
        }
        assert!(samples > 100, "{samples} in 300 ms");
    });
}

#[test]
fn unlimited_rings_do_not_limit_stack_copies() {
    let _lock = lock_locked_memory();
    let settings = CaptureSettings {
        groups: Groups::new(&[Group::PROFILE, Group::NO_SYSCONFIG]),
        ring_bytes: 64 << 10,
        stack_bytes: 64 << 10,
        ..CaptureSettings::default()
    };
    match Capture::start(&settings, support::cpu_count(), 1) {
        Ok((capture, _)) => assert_eq!(capture.stack_limit_bytes(), None),
        Err(error) => skip::skip("events of the whole machine", &error.to_string()),
    }
}
