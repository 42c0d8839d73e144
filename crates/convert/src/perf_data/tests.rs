//! Recordings are built here, from the published layouts, without the code that reads them.

mod builder;

use proptest::prelude::*;
use traceweir_format::etl::{Trace, check};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::wire::{u16_at, u32_at, u64_at};

use self::builder::{Recording, SWITCH_EVENT, TICK_EVENT, Words};
use super::{import as import_file, import_bytes};
use crate::Conversion;

const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;
const KERNEL_MARKER: u64 = -128_i64 as u64;
const USER_MARKER: u64 = -512_i64 as u64;

/// Hook id or event name, time, process and thread of the header, payload.
#[derive(Debug)]
struct ReadEvent {
    hook: Option<u16>,
    time: i64,
    cpu: u16,
    process: u32,
    thread: u32,
    payload: Vec<u8>,
    /// The frames of a stack-walk event or of a stack in an extended data item.
    frames: Vec<u64>,
}

fn read_event(record: &Record<'_>) -> ReadEvent {
    let definitions = Definitions::default();
    let walked = StackWalk::parse(record).and_then(|walk| Some(walk.frames(&definitions)?.collect()));
    let carried = record.items().stack().map(|stack| stack.frames().collect());
    ReadEvent {
        hook: record.hook(),
        time: record.time(),
        cpu: record.cpu(),
        process: record.process_id(),
        thread: record.thread_id(),
        payload: record.payload().to_vec(),
        frames: walked.or(carried).unwrap_or_default(),
    }
}

/// Imports a recording and reads all events of the trace, which must be sound.
fn import(recording: &[u8]) -> (Vec<ReadEvent>, Conversion) {
    let (trace, conversion) = import_bytes(recording).unwrap();
    let trace = Trace::open(&*trace).unwrap();
    let mut faults = Vec::new();
    check(&trace, &mut |finding| {
        if !finding.rule.is_remark() {
            faults.push(format!("{finding:?}"));
        }
    })
    .unwrap();
    assert!(faults.is_empty(), "{faults:?}");
    let (mut events, mut read) = (trace.events(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        read.push(read_event(&record));
    }
    (read, conversion)
}

fn with_hook(events: &[ReadEvent], hook: u16) -> Vec<&ReadEvent> {
    events.iter().filter(|event| event.hook == Some(hook)).collect()
}

/// A recording with a process, a sample, two switches and a tracepoint.
fn small_recording() -> Recording {
    let mut recording = Recording::new();
    recording.comm(0, 100, 100, "shell", false);
    recording.mapping(0, 100, 0x40_0000, 0x1000, 0, "/bin/no-such-shell");
    recording.kernel_mapping(KERNEL, 0x100_0000, "[kernel.kallsyms]_text");
    recording.round();
    recording.fork(1000, 100, 200);
    recording.comm(1100, 200, 200, "worker", true);
    recording.mapping(1150, 200, 0x50_0000, 0x2000, 0x1000, "/bin/no-such-worker");
    // Out of order.
    recording.sample(
        1300,
        1,
        200,
        201,
        0x50_0010,
        &[KERNEL_MARKER, KERNEL + 5, USER_MARKER, 0x50_0010, 0x50_0020],
    );
    recording.sample(1200, 0, 100, 100, 0x40_0008, &[USER_MARKER, 0x40_0008]);
    recording.round();
    recording.switch(1400, 0, (100, 1), 201, &[KERNEL_MARKER, KERNEL + 9]);
    recording.switch(1900, 0, (201, 0), 100, &[KERNEL_MARKER, KERNEL + 7]);
    recording.tick(1950, 1, 200, 201, 77, "text");
    recording.exit(2000, 200, 201);
    recording.exit(2100, 200, 200);
    recording.lost(2200, 5);
    recording
}

#[test]
fn samples_and_stacks_come_in_time_order() {
    let (events, conversion) = import(&small_recording().finish());
    let samples = with_hook(&events, hook::SAMPLED_PROFILE);
    let seen: Vec<_> =
        samples.iter().map(|e| (e.time, e.cpu, u64_at(&e.payload, 0), u32_at(&e.payload, 8))).collect();
    assert_eq!(seen, [(1200, 0, 0x40_0008, 100), (1300, 1, 0x50_0010, 201)]);
    let stacks: Vec<_> = with_hook(&events, hook::STACK_WALK)
        .iter()
        .filter(|e| e.time <= 1300)
        .map(|e| (u64_at(&e.payload, 0), u32_at(&e.payload, 8), u32_at(&e.payload, 12), e.frames.clone()))
        .collect();
    assert_eq!(
        stacks,
        [
            (1200, 100, 100, vec![0x40_0008]),
            (1300, 200, 201, vec![KERNEL + 5]),
            (1300, 200, 201, vec![0x50_0010, 0x50_0020]),
        ]
    );
    assert!(conversion.notes.contains(&"2 samples".to_owned()), "{:?}", conversion.notes);
    assert_eq!(conversion.reading.losses, ["perf.data: the recording lost 5 records"]);
}

#[test]
fn processes_threads_and_images_are_kernel_events() {
    let (events, _) = import(&small_recording().finish());
    // Process id, and the name after the empty SID block.
    let process = |hook| -> Vec<(i64, u32, u32, String)> {
        let name =
            |payload: &[u8]| String::from_utf8_lossy(&payload[0x28..]).split('\0').next().unwrap().to_owned();
        let entry =
            |e: &&ReadEvent| (e.time, u32_at(&e.payload, 8), u32_at(&e.payload, 12), name(&e.payload));
        with_hook(&events, hook).iter().map(entry).collect()
    };
    assert_eq!(
        process(hook::PROCESS_DC_START),
        [(1000, 0, 0, "swapper".to_owned()), (1000, 100, 0, "shell".to_owned())]
    );
    // The fork, then the exec, which ends the first program.
    assert_eq!(
        process(hook::PROCESS_START),
        [(1000, 200, 100, "shell".to_owned()), (1100, 200, 100, "worker".to_owned())]
    );
    let ends: Vec<i64> = process(hook::PROCESS_END).iter().map(|end| end.0).collect();
    assert_eq!(ends, [1100, 2100]);
    let threads: Vec<_> =
        with_hook(&events, hook::THREAD_DC_START).iter().map(|e| (e.time, u32_at(&e.payload, 4))).collect();
    assert_eq!(
        threads,
        [(1000, 0), (1000, 100), (1300, 201)],
        "the sample is the first record of thread 201"
    );
    let images = |hook| -> Vec<(u64, u64, u32)> {
        let entry = |e: &&ReadEvent| (u64_at(&e.payload, 0), u64_at(&e.payload, 8), u32_at(&e.payload, 16));
        with_hook(&events, hook).iter().map(entry).collect()
    };
    assert_eq!(images(hook::IMAGE_LOAD), [(0x4F_F000, 0x3000, 200)], "the base is that of file offset 0");
    assert_eq!(images(hook::IMAGE_DC_START), [(0x40_0000, 0x1000, 100), (KERNEL, 0x100_0000, 0)]);
    assert_eq!(u64_at(&with_hook(&events, hook::KERNEL_BASE)[0].payload, 0), KERNEL);
}

#[test]
fn switches_have_the_stack_and_the_wait_of_the_new_thread() {
    let (events, _) = import(&small_recording().finish());
    let switches = with_hook(&events, hook::CONTEXT_SWITCH);
    let payloads: Vec<&[u8]> = switches.iter().map(|e| e.payload.as_slice()).collect();
    // New and old thread, priorities, reason, mode, state, wait time.
    assert_eq!(payloads[0], [201, 0, 0, 0, 100, 0, 0, 0, 8, 8, 0, 0, 6, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(payloads[1], [100, 0, 0, 0, 201, 0, 0, 0, 8, 8, 0, 0, 31, 0, 1, 0, 0xF4, 1, 0, 0, 0, 0, 0, 0]);
    let stack = events.iter().find(|e| e.hook == Some(hook::STACK_WALK) && e.time == 1900).unwrap();
    assert_eq!((u32_at(&stack.payload, 12), &stack.frames), (100, &vec![KERNEL + 9]));
}

#[test]
fn other_tracepoints_have_typed_fields() {
    let (events, _) = import(&small_recording().finish());
    let tick = events.iter().find(|e| e.hook.is_none() && e.time == 1950).unwrap();
    assert_eq!((tick.process, tick.thread, tick.cpu), (200, 201, 1));
    assert_eq!(tick.payload, [&77_u64.to_le_bytes()[..], b"text\0"].concat());
}

#[test]
fn pipe_gives_the_same_events_as_the_file() {
    let file = import(&small_recording().finish()).0;
    let pipe = import(&small_recording().finish_pipe()).0;
    let key = |e: &ReadEvent| (e.hook, e.time, e.cpu, e.process, e.thread);
    // The header of the log differs in nothing but the name.
    assert_eq!(
        file.iter().skip(1).map(key).collect::<Vec<_>>(),
        pipe.iter().skip(1).map(key).collect::<Vec<_>>()
    );
}

#[test]
fn build_id_of_the_list_precedes_its_image() {
    let mut recording = small_recording();
    recording.build_id("/bin/no-such-shell", &[7; 20]);
    let (events, _) = import(&recording.finish());
    // An ImageID event has no hook; its payload begins with the base.
    let id =
        events.iter().find(|e| e.hook.is_none() && e.payload.ends_with(b"/bin/no-such-shell\0")).unwrap();
    assert_eq!(id.payload[12..32], [7; 20]);
}

#[test]
fn recording_that_cannot_be_converted_is_refused() {
    let message = |bytes: &[u8]| import_bytes(bytes).unwrap_err().to_string();
    let file = small_recording().finish();
    assert!(message(b"ELF").starts_with("not a recording of perf"));
    assert!(message(b"2ELIFREP").contains("big-endian"));
    assert!(message(&file[..50]).contains("ends within its header"));
    let mut compressed = small_recording();
    compressed.raw(81, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(message(&compressed.finish()).contains("compressed"));
    assert!(message(&Recording::new().finish()).contains("no samples"));
}

#[test]
fn recording_that_was_cut_gives_its_first_part() {
    let mut recording = small_recording();
    for time in 3000..4000 {
        recording.sample(time, 0, 100, 100, 0x40_0008, &[USER_MARKER, 0x40_0008]);
    }
    let file = recording.finish();
    let whole = import(&file);
    assert!(!whole.1.reading.is_damaged);
    let (events, conversion) = import(&file[..file.len() * 3 / 4]);
    assert!(conversion.reading.is_damaged && events.len() < whole.0.len() && events.len() > 1000);
}

#[test]
fn late_record_keeps_the_order_of_its_processor() {
    let mut recording = small_recording();
    recording.round();
    recording.round();
    recording.sample(1201, 0, 100, 100, 0x40_0008, &[]);
    let (events, conversion) = import(&recording.finish());
    assert_eq!(with_hook(&events, hook::SAMPLED_PROFILE).len(), 3);
    assert!(
        conversion.notes.iter().any(|note| note.starts_with("1 event came too late")),
        "{:?}",
        conversion.notes
    );
}

#[test]
fn lost_samples_are_counted_once() {
    const FILTERED: u16 = 1 << 15;
    for (records, lost) in [
        // The five records that the kernel reported are among those that perf counted.
        (&[(0, 0, 5)][..], 5),
        (&[(0, 0, 4), (0, 0, 3)], 7),
        (&[(FILTERED, 0, 100)], 5),
        (&[(0, 0, 6), (0, 2300, 3)], 9),
    ] {
        let mut recording = small_recording();
        for (misc, time, count) in records {
            recording.lost_samples(*misc, *time, *count);
        }
        let (events, conversion) = import(&recording.finish());
        let expected = format!("perf.data: the recording lost {lost} records");
        assert_eq!(conversion.reading.losses, [expected], "{records:?}");
        assert_eq!(u32_at(&events[0].payload, 48), lost, "{records:?}");
    }
}

#[test]
fn weight_of_a_sample_at_a_frequency_is_its_period() {
    let mut recording = small_recording();
    for (time, period) in (3000..).zip([1, 1, 80, 9000, 900_000, 1_000_000, 1_100_000, 3_000_000]) {
        recording.period = period;
        recording.sample(time, 0, 100, 100, 0x40_0008, &[USER_MARKER, 0x40_0008]);
    }
    let (events, conversion) = import(&recording.finish());
    let count = |event: &&ReadEvent| (event.time, u16_at(&event.payload, 12));
    let weights: Vec<_> = with_hook(&events, hook::SAMPLED_PROFILE).iter().map(count).collect();
    assert_eq!(weights, [(3004, 1), (3005, 1), (3006, 1), (3007, 2)]);
    let stacks = with_hook(&events, hook::STACK_WALK).iter().filter(|e| e.time >= 3000).count();
    assert_eq!(stacks, 4, "a sample without weight has no stack");
    let note = conversion.notes.iter().find(|note| note.starts_with("6 samples left out"));
    assert!(note.is_some(), "{:?}", conversion.notes);
}

#[test]
fn folder_is_accepted_if_it_has_one_recording() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| std::fs::write(folder.path().join(name), small_recording().finish()).unwrap();
    let import = || import_file(folder.path(), tempfile::tempfile().unwrap(), &());
    let message = || format!("{:#}", import().unwrap_err());
    assert!(message().contains("is a folder without a recording of perf"), "{}", message());
    write("perf.data");
    assert!(message().ends_with("is a folder: name the recording in it, perf.data"), "{}", message());
    write("data");
    assert_eq!(import().unwrap().reading.losses.len(), 1);
    write("data.0");
    assert!(message().contains("perf record --threads"), "{}", message());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_recording_gives_an_error_or_a_sound_trace(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        is_pipe in any::<bool>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = if is_pipe { small_recording().finish_pipe() } else { small_recording().finish() };
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok((trace, _)) = import_bytes(&bytes) {
            let trace = Trace::open(&*trace).unwrap();
            let mut events = trace.events();
            while events.next().unwrap().is_some() {}
            prop_assert_eq!(events.damage().count, 0);
        }
    }

    #[test]
    fn arbitrary_records_cause_no_panic(
        records in proptest::collection::vec((0_u32..84, any::<u16>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..30),
    ) {
        let mut recording = small_recording();
        for (kind, misc, body) in records {
            recording.raw(kind, misc, &body);
        }
        let _ = import_bytes(&recording.finish());
        let _ = import_bytes(&recording.finish_pipe());
    }
}

#[test]
fn ids_of_the_builder_are_those_of_its_events() {
    assert_ne!(SWITCH_EVENT, TICK_EVENT);
    let mut words = Vec::new();
    words.word(1).pair(2, 3);
    assert_eq!(words, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
}
