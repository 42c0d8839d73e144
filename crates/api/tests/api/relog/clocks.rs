//! Relogging of several inputs with different clocks into one file with one clock.

use super::*;
use traceweir::relog::EventKind;
use traceweir_format::kernel::hook;
use traceweir_format::wire::i64_at;

/// Writes a file whose clock starts `later` units of 100 ns after the others, with an event every
/// `step` units on two processors.
fn clocked(folder: &Path, name: &str, (clock_type, rate): (u32, i64), later: i64, step: i64) -> PathBuf {
    let start = START + later;
    let anchor = if clock_type == 2 { start } else { 1 << 40 };
    let options = Options {
        clock_type,
        perf_freq: if clock_type == 1 { rate } else { 10_000_000 },
        cpu_speed_mhz: if clock_type == 3 { u32::try_from(rate / 1_000_000).unwrap() } else { 1000 },
        anchor,
        start_time: FileTime(start),
        boot_time: FileTime(START - 1),
        processors: 2,
        ..options()
    };
    let counts = Counts { events_lost: 3, buffers_lost: 1, ..ended(20) };
    let records: Vec<(u16, Vec<u8>)> = (0..500_i64)
        .map(|n| {
            let units = i128::from(n * step);
            let ticks = if clock_type == 2 { units } else { units * i128::from(rate) / 10_000_000 };
            let time = anchor + i64::try_from(ticks).unwrap();
            (u16::try_from(n % 2).unwrap(), event(time, u32::try_from(n).unwrap(), name.as_bytes()))
        })
        .collect();
    file(&folder.join(name), options, &records, counts)
}

/// Returns wall time, processor, process and payload of each event.
fn events_in(path: &Path) -> Vec<(i64, u16, u32, Vec<u8>)> {
    let trace = open(path);
    let mut events = trace.events();
    let mut events_found = Vec::new();
    while let Some(r) = events.next().unwrap() {
        if r.hook().is_none() {
            let time = trace.clock().file_time(r.time()).0;
            events_found.push((time, r.cpu(), r.process_id(), r.payload().to_vec()));
        }
    }
    events_found
}

#[test]
fn all_clock_types_are_reconciled_by_wall_time() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [(1, 10_000_000), (1, 2_494_132_007), (2, 0), (3, 3_000_000_000), (1, 3_579_545)];
    for first in 0..kinds.len() {
        let paths: Vec<PathBuf> = kinds
            .iter()
            .enumerate()
            .map(|(n, kind)| {
                let later = if n == first { 0 } else { 1_000_003 * i64::try_from(n + 1).unwrap() };
                clocked(folder.path(), &format!("{n}"), *kind, later, 10_007)
            })
            .collect();
        let out = folder.path().join("out.etl");
        let done = all(&paths, &out, Settings::default());
        assert_eq!(findings(&out), Vec::<String>::new(), "in the clock of {first}");
        assert_eq!((done.events_lost, done.buffers_lost), (15, 5));
        assert_eq!(open(&out).header().start_time, FileTime(START));
        assert_eq!(open(&out).header().end_time, ended(20).end_time);
        let mut expected: Vec<_> = paths.iter().flat_map(|path| events_in(path)).collect();
        let mut found = events_in(&out);
        assert_eq!(found.len(), expected.len());
        let key = |e: &(i64, u16, u32, Vec<u8>)| (e.3.clone(), e.2);
        expected.sort_by_key(key);
        found.sort_by_key(key);
        // A tick of the coarsest clock here is three units long.
        let tolerance = if first == 4 { 3 } else { 1 };
        for (wanted, got) in expected.iter().zip(&found) {
            assert!((wanted.0 - got.0).abs() <= tolerance, "in the clock of {first}: {wanted:?}, {got:?}");
            assert_eq!((wanted.1, wanted.2, &wanted.3), (got.1, got.2, &got.3));
        }
    }
}

#[test]
fn one_clock_with_several_anchors_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, seconds: i64| {
        let options = Options {
            anchor: 5_000 + seconds * 10_000_000,
            start_time: FileTime(START + seconds * 10_000_000),
            ..options()
        };
        let records = [(0, event(5_123 + seconds * 10_000_000, 1, name.as_bytes()))];
        file(&folder.path().join(name), options, &records, ended(9))
    };
    let (early, late) = (part("early", 0), part("late", 3));
    let out = folder.path().join("out.etl");
    all(&[late.clone(), early.clone()], &out, Settings::default());
    assert_eq!(seen(&out), [seen(&early), seen(&late)].concat());
    assert_eq!(open(&out).header().file_name, "[multiple files]");
}

#[test]
fn timestamps_in_kernel_payloads_are_converted_too() {
    let folder = tempfile::tempdir().unwrap();
    let plain = file(&folder.path().join("a"), options(), &[(0, event(5_001, 1, b""))], ended(9));
    let other = Options { anchor: 700, perf_freq: 30_000_000, ..options() };
    let time = 700 + 3 * 4_321_i64;
    let mut stack = time.to_le_bytes().to_vec();
    stack.extend_from_slice(&[7; 24]);
    let records = [(1, event(time, 7, b"sampled")), (1, kernel(time, hook::STACK_WALK, &stack))];
    let other = file(&folder.path().join("b"), other, &records, ended(9));
    let out = folder.path().join("out.etl");
    all(&[plain, other], &out, Settings::default());
    let events = seen(&out);
    let [.., (_, sampled, _), (_, walked, bytes)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*sampled, *walked), (5_000 + 4_321, 5_000 + 4_321));
    assert_eq!(i64_at(bytes, 0x10), *sampled, "the stack still names its event");
    assert_eq!(bytes[0x18..0x18 + 24], [7; 24]);
}

#[test]
fn cut_moves_the_start_by_whole_seconds_and_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<(u16, Vec<u8>)> = (0..100).map(|n| (0, event(5_000 + n * 1_234_567, 1, b"x"))).collect();
    let input = file(&folder.path().join("in"), options(), &records, ended(20));
    let out = folder.path().join("out.etl");
    let (from, to) = (FileTime(START + 35_000_000), FileTime(START + 60_000_000));
    let mut relogger = Relogger::new();
    relogger.add_file(&input).unwrap();
    relogger.set_output(&out);
    relogger.set(Settings::default().window(Some(from), Some(to)));
    let done = relogger
        .process(
            |event: &Event<'_>, output: &mut Output| {
                if (from..=to).contains(&event.time) { output.keep(event) } else { Ok(()) }
            },
        )
        .unwrap();
    let expected: Vec<RecordedEvent> = seen(&input)
        .into_iter()
        .filter(|(_, time, _)| (35_000_000..=60_000_000).contains(&(time - 5_000)))
        .collect();
    assert_eq!(seen(&out), expected);
    assert_eq!(done.start, FileTime(START + 30_000_000));
    assert_eq!(open(&out).header().start_time, done.start);
    let last = expected.last().unwrap().1 - 5_000;
    assert_eq!(done.end, FileTime(START + last), "the end is the last event's");
    assert_eq!(findings(&out), Vec::<String>::new());
}

#[test]
fn event_kept_or_added_before_the_cut_limits_the_new_start() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<(u16, Vec<u8>)> = (0..10).map(|n| (0, event(5_000 + n * 10_000_000, 1, b"x"))).collect();
    let input = file(&folder.path().join("in"), options(), &records, ended(20));
    let out = folder.path().join("out.etl");
    // In seconds: the time of the event kept from before the cut, the time of an added event, and
    // the resulting start.
    for (kept, added, start) in
        [(None, None, 7), (Some(2), None, 2), (Some(0), None, 0), (None, Some(4), 4), (None, Some(-3), -3)]
    {
        let cut = FileTime(START + 70_000_000);
        let mut relogger = Relogger::new();
        relogger.add_file(&input).unwrap();
        relogger.set_output(&out);
        relogger.set(Settings::default().window(Some(cut), None));
        let mut number = -1;
        let done = relogger
            .process(|event: &Event<'_>, output: &mut Output| {
                number += 1;
                if let (0, Some(seconds)) = (number, added) {
                    let mut mark = output.create_event(0, EventKind::Modern)?;
                    mark.set_time(FileTime(START + seconds * 10_000_000))?;
                    output.inject(&mark)?;
                }
                if event.time >= cut || kept == Some(number) { output.keep(event) } else { Ok(()) }
            })
            .unwrap();
        let case = (kept, added);
        assert_eq!(done.start, FileTime(START + start * 10_000_000), "{case:?}");
        assert_eq!(open(&out).header().start_time, done.start, "{case:?}");
        assert_eq!(findings(&out), Vec::<String>::new(), "{case:?}");
    }
}
