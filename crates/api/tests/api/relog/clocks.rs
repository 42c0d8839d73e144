//! Relogging of several inputs with different clocks into one file with one clock.

use super::*;
use traceweir::relog::EventKind;
use traceweir_format::kernel::hook;
use traceweir_format::wire::i64_at;

// Clock types of the log-file header.

const QPC: u32 = 1;
const SYSTEM_TIME: u32 = 2;
const CPU_CYCLES: u32 = 3;

#[derive(Clone, Copy)]
struct ClockSpec {
    clock_type: u32,
    /// Ticks per second; not used for [`SYSTEM_TIME`].
    rate: i64,
}

/// Writes a file whose clock starts `delay` units of 100 ns after [`START_TIME`], with an event
/// every `step` units on two processors.
fn write_file_with_clock(folder: &Path, name: &str, clock: ClockSpec, delay: i64, step: i64) -> PathBuf {
    let ClockSpec { clock_type, rate } = clock;
    let start = START_TIME + delay;
    let anchor = if clock_type == SYSTEM_TIME { start } else { 1 << 40 };
    let options = Options {
        clock_type,
        perf_freq: if clock_type == QPC { rate } else { 10_000_000 },
        cpu_speed_mhz: if clock_type == CPU_CYCLES { u32::try_from(rate / 1_000_000).unwrap() } else { 1000 },
        anchor,
        start_time: FileTime(start),
        boot_time: FileTime(START_TIME - 1),
        processors: 2,
        ..options()
    };
    let counts = FileSummary { events_lost: 3, buffers_lost: 1, ..ended_after(20) };
    let records: Vec<(u16, Vec<u8>)> = (0..500_i64)
        .map(|n| {
            let units = i128::from(n * step);
            let ticks = if clock_type == SYSTEM_TIME { units } else { units * i128::from(rate) / 10_000_000 };
            let time = anchor + i64::try_from(ticks).unwrap();
            (u16::try_from(n % 2).unwrap(), encode_event(time, u32::try_from(n).unwrap(), name.as_bytes()))
        })
        .collect();
    write_file(&folder.join(name), options, &records, counts)
}

#[derive(Debug)]
struct WallTimeEvent {
    wall_time: i64,
    cpu: u16,
    process_id: u32,
    payload: Vec<u8>,
}

fn read_wall_times(path: &Path) -> Vec<WallTimeEvent> {
    let trace = open_trace(path);
    let mut events = trace.events();
    let mut wall_time_events = Vec::new();
    while let Some(record) = events.next().unwrap() {
        if record.hook().is_none() {
            wall_time_events.push(WallTimeEvent {
                wall_time: trace.clock().file_time(record.time()).0,
                cpu: record.cpu(),
                process_id: record.process_id(),
                payload: record.payload().to_vec(),
            });
        }
    }
    wall_time_events
}

#[test]
fn all_clock_types_are_reconciled_by_wall_time() {
    let folder = tempfile::tempdir().unwrap();
    let clocks = [
        (QPC, 10_000_000),
        (QPC, 2_494_132_007),
        (SYSTEM_TIME, 0),
        (CPU_CYCLES, 3_000_000_000),
        (QPC, 3_579_545),
    ]
    .map(|(clock_type, rate)| ClockSpec { clock_type, rate });
    for first in 0..clocks.len() {
        let paths: Vec<PathBuf> = clocks
            .iter()
            .enumerate()
            .map(|(n, clock)| {
                let delay = if n == first { 0 } else { 1_000_003 * i64::try_from(n + 1).unwrap() };
                write_file_with_clock(folder.path(), &format!("{n}"), *clock, delay, 10_007)
            })
            .collect();
        let out = folder.path().join("out.etl");
        let summary = relog_all(&paths, &out, Settings::default());
        assert_eq!(broken_rules(&out), Vec::<String>::new(), "in the clock of {first}");
        assert_eq!((summary.events_lost, summary.buffers_lost), (15, 5));
        assert_eq!(open_trace(&out).header().start_time, FileTime(START_TIME));
        assert_eq!(open_trace(&out).header().end_time, ended_after(20).end_time);
        let mut expected: Vec<_> = paths.iter().flat_map(|path| read_wall_times(path)).collect();
        let mut relogged = read_wall_times(&out);
        assert_eq!(relogged.len(), expected.len());
        let key = |event: &WallTimeEvent| (event.payload.clone(), event.process_id);
        expected.sort_by_key(key);
        relogged.sort_by_key(key);
        // A tick of the last clock, the coarsest one, is almost three units of 100 ns long.
        let tolerance = if first == 4 { 3 } else { 1 };
        for (expected_event, event) in expected.iter().zip(&relogged) {
            assert!(
                (expected_event.wall_time - event.wall_time).abs() <= tolerance,
                "in the clock of {first}: {expected_event:?}, {event:?}"
            );
            assert_eq!((expected_event.cpu, key(expected_event)), (event.cpu, key(event)));
        }
    }
}

#[test]
fn one_clock_with_several_anchors_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let write_part = |name: &str, seconds: i64| {
        let options = Options {
            anchor: 5_000 + seconds * 10_000_000,
            start_time: FileTime(START_TIME + seconds * 10_000_000),
            ..options()
        };
        let records = [(0, encode_event(5_123 + seconds * 10_000_000, 1, name.as_bytes()))];
        write_file(&folder.path().join(name), options, &records, ended_after(9))
    };
    let (first, second) = (write_part("early", 0), write_part("late", 3));
    let out = folder.path().join("out.etl");
    relog_all(&[second.clone(), first.clone()], &out, Settings::default());
    assert_eq!(read_events(&out), [read_events(&first), read_events(&second)].concat());
    assert_eq!(open_trace(&out).header().file_name, "[multiple files]");
}

#[test]
fn timestamps_in_kernel_payloads_are_converted_too() {
    let folder = tempfile::tempdir().unwrap();
    let plain =
        write_file(&folder.path().join("a"), options(), &[(0, encode_event(5_001, 1, b""))], ended_after(9));
    let other = Options { anchor: 700, perf_freq: 30_000_000, ..options() };
    // Three ticks of this clock are one tick of the first.
    let time = 700 + 3 * 4_321_i64;
    let mut stack = time.to_le_bytes().to_vec();
    stack.extend_from_slice(&[7; 24]);
    let records =
        [(1, encode_event(time, 7, b"sampled")), (1, encode_kernel_event(time, hook::STACK_WALK, &stack))];
    let other = write_file(&folder.path().join("b"), other, &records, ended_after(9));
    let out = folder.path().join("out.etl");
    relog_all(&[plain, other], &out, Settings::default());
    let events = read_events(&out);
    let [.., (_, sampled, _), (_, walked, bytes)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*sampled, *walked), (5_000 + 4_321, 5_000 + 4_321));
    assert_eq!(i64_at(bytes, 0x10), *sampled, "the time in the stack walk was not converted");
    assert_eq!(bytes[0x18..0x18 + 24], [7; 24]);
}

#[test]
fn cut_moves_the_start_by_whole_seconds_but_no_event_time() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<(u16, Vec<u8>)> =
        (0..100).map(|n| (0, encode_event(5_000 + n * 1_234_567, 1, b"x"))).collect();
    let input = write_file(&folder.path().join("in"), options(), &records, ended_after(20));
    let out = folder.path().join("out.etl");
    let (from, to) = (FileTime(START_TIME + 35_000_000), FileTime(START_TIME + 60_000_000));
    let mut relogger = Relogger::new();
    relogger.add_file(&input).unwrap();
    relogger.set_output(&out);
    relogger.set(Settings::default().window(Some(from), Some(to)));
    let summary = relogger
        .process(
            |event: &Event<'_>, output: &mut Output| {
                if (from..=to).contains(&event.time) { output.keep(event) } else { Ok(()) }
            },
        )
        .unwrap();
    let expected: Vec<RecordedEvent> = read_events(&input)
        .into_iter()
        .filter(|(_, time, _)| (35_000_000..=60_000_000).contains(&(time - 5_000)))
        .collect();
    assert_eq!(read_events(&out), expected);
    assert_eq!(summary.start, FileTime(START_TIME + 30_000_000));
    assert_eq!(open_trace(&out).header().start_time, summary.start);
    let (_, last_time, _) = expected.last().unwrap();
    assert_eq!(
        summary.end,
        FileTime(START_TIME + last_time - 5_000),
        "the end is not the time of the last event"
    );
    assert_eq!(broken_rules(&out), Vec::<String>::new());
}

#[test]
fn event_kept_or_added_before_the_cut_limits_the_new_start() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<(u16, Vec<u8>)> =
        (0..10).map(|n| (0, encode_event(5_000 + n * 10_000_000, 1, b"x"))).collect();
    let input = write_file(&folder.path().join("in"), options(), &records, ended_after(20));
    let out = folder.path().join("out.etl");
    // In seconds: the time of the event kept from before the cut, the time of an added event, and the
    // resulting start.
    for (kept_second, added_second, start_second) in
        [(None, None, 7), (Some(2), None, 2), (Some(0), None, 0), (None, Some(4), 4), (None, Some(-3), -3)]
    {
        let cut = FileTime(START_TIME + 70_000_000);
        let mut relogger = Relogger::new();
        relogger.add_file(&input).unwrap();
        relogger.set_output(&out);
        relogger.set(Settings::default().window(Some(cut), None));
        let mut number = -1;
        let summary = relogger
            .process(|event: &Event<'_>, output: &mut Output| {
                number += 1;
                if let (0, Some(seconds)) = (number, added_second) {
                    let mut mark = output.create_event(0, EventKind::Modern)?;
                    mark.set_time(FileTime(START_TIME + seconds * 10_000_000))?;
                    output.inject(&mark)?;
                }
                if event.time >= cut || kept_second == Some(number) { output.keep(event) } else { Ok(()) }
            })
            .unwrap();
        let case = (kept_second, added_second);
        assert_eq!(summary.start, FileTime(START_TIME + start_second * 10_000_000), "{case:?}");
        assert_eq!(open_trace(&out).header().start_time, summary.start, "{case:?}");
        assert_eq!(broken_rules(&out), Vec::<String>::new(), "{case:?}");
    }
}
