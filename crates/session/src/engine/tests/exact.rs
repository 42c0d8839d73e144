//! Tests that every offered event is either in the file, once, or counted as lost.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

/// Writes from one thread per writer. Returns the numbers that were accepted and how many were
/// not.
fn write_from_threads(writers: &[TestWriter], events: u64, extra_bytes: usize) -> (Vec<u64>, u64) {
    let totals = Arc::new(Mutex::new((Vec::new(), 0)));
    std::thread::scope(|scope| {
        for (index, writer) in writers.iter().enumerate() {
            let totals = Arc::clone(&totals);
            scope.spawn(move || {
                let (mut accepted, mut lost) = (Vec::new(), 0);
                for at in 0..events {
                    let number = (index as u64) << 32 | at;
                    match writer.write(
                        number,
                        if extra_bytes == 0 { 0 } else { (number as usize * 37) % extra_bytes },
                    ) {
                        Ok(()) => accepted.push(number),
                        Err(WriteFailure::Full | WriteFailure::TooLarge | WriteFailure::OwnerFull) => {
                            lost += 1
                        }
                        Err(WriteFailure::Closed) => panic!("the outlet is closed"),
                    }
                }
                let (all_accepted, all_lost) = &mut *totals.lock().unwrap();
                all_accepted.append(&mut accepted);
                *all_lost += lost;
            });
        }
    });
    Arc::try_unwrap(totals).unwrap().into_inner().unwrap()
}

/// Writes, stops, and compares the accepted events with the file.
fn assert_all_events_counted(config: SessionConfig, writer_count: usize, events: u64, extra_bytes: usize) {
    let fixture = SessionFixture::with_file(config);
    let writers: Vec<TestWriter> =
        (0..writer_count).map(|i| fixture.attach_writer(1000 + i as u32)).collect();
    let (accepted, lost) = write_from_threads(&writers, events, extra_bytes);
    let after = fixture.stop();
    let read = read_log(&fixture.log_path());
    assert_eq!(
        unique_numbers(&read.iter().map(|event| event.number).collect::<Vec<_>>()),
        unique_numbers(&accepted)
    );
    assert_eq!(after.events_lost, lost);
    assert_eq!(after.lost_by_cause.no_room, lost);
    assert_eq!((after.events, after.damaged_regions), (accepted.len() as u64, 0));
    assert_eq!((after.processes, after.end_status), (0, 0));
    let has_true_id = |event: &LoggedEvent| u64::from(event.process_id) == 1000 + (event.number >> 32);
    assert!(read.iter().all(has_true_id), "an event has a wrong process id");
    let header = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap().header().clone();
    assert_eq!(u64::from(header.events_lost), lost);
    assert_eq!(header.buffers_written, after.buffers_written);
}

#[test]
fn events_of_one_writer_are_accounted_for() {
    assert_all_events_counted(session_config(SEQUENTIAL), 1, 20_000, 0);
}

#[test]
fn events_of_sixteen_writers_are_accounted_for() {
    assert_all_events_counted(session_config(SEQUENTIAL), 16, 3_000, 600);
}

#[test]
fn overflowing_rings_count_lost_events() {
    // The smallest rings and buffers, and the largest records that fit: writers are faster than the
    // collector.
    let config = SessionConfig { buffer_size: 4, ring_bytes: 1, ..session_config(SEQUENTIAL) };
    assert_all_events_counted(config, 4, 4_000, 3_900);
}

#[test]
fn one_stream_for_all_cpus_loses_nothing() {
    assert_all_events_counted(session_config(SEQUENTIAL | ONE_STREAM), 4, 4_000, 50);
}

#[test]
fn compressed_file_loses_nothing() {
    assert_all_events_counted(session_config(SEQUENTIAL | COMPRESSED), 3, 4_000, 100);
}

#[test]
fn two_buffers_are_enough_for_many_cpus() {
    // All CPUs share one stream: one buffer is filled while the other is written.
    let config =
        SessionConfig { minimum_buffers: 2, maximum_buffers: 2, ..session_config(SEQUENTIAL | ONE_STREAM) };
    assert_all_events_counted(config, 4, 2_000, 300);
}

#[test]
fn every_clock_stamps_the_time_of_writing() {
    for clock in 1..=3 {
        let fixture = SessionFixture::with_file(SessionConfig { clock, ..session_config(SEQUENTIAL) });
        let counter = traceweir_transport::clock::Counter::best();
        let before = traceweir_transport::clock::Anchor::now(counter).wall;
        let writer = fixture.attach_writer(5);
        for number in 0..100 {
            writer.write(number, 0).unwrap();
        }
        let after = fixture.stop();
        let end = traceweir_transport::clock::Anchor::now(counter).wall;
        let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
        assert_eq!(trace.header().clock_type, after.config.clock);
        for event in read_log(&fixture.log_path()) {
            let time = trace.clock().file_time(event.stamp);
            // 5 ms: the clocks of a machine under load agree to a millisecond, and a frequency
            // rounded to megahertz is wrong by up to 0.05 % of the short run.
            let slack = 50_000;
            assert!(
                time.0 > before.0 - slack && time.0 < end.0 + slack,
                "clock {clock}: {before} {time} {end}"
            );
        }
    }
}

#[test]
fn ended_process_is_collected_to_its_last_event() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    for pid in 0..20_u64 {
        let writer = fixture.attach_writer(u32::try_from(pid).unwrap());
        for at in 0..50 {
            writer.write(pid * 50 + at, 0).unwrap();
        }
        writer.outlet.count_lost(writer.ticket);
        assert!(writer.outlet.close());
        fixture.session.detach(writer.region);
    }
    let before = fixture.flush();
    assert!(before.processes <= 20);
    let after = fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), (0..1000).collect());
    assert_eq!(after.events_lost, 20, "losses of ended processes are not counted");
}

#[test]
fn invalid_record_is_counted_and_affects_no_other() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let (good, bad) = (fixture.attach_writer(1), fixture.attach_writer(2));
    for number in 0..100 {
        good.write(number, 0).unwrap();
        bad.write_record(&[0xEE; 96]).unwrap();
        bad.write(1000 + number, 0).unwrap();
    }
    let after = fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), (0..100).chain(1000..1100).collect());
    assert_eq!((after.lost_by_cause.damaged, after.events_lost, after.damaged_regions), (100, 100, 0));
}

#[test]
fn damaged_region_affects_no_other_region() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let good = fixture.attach_writer(1);
    let attached = fixture.session.attach(2, ThreadIdMapping::AsGiven).unwrap();
    let layout = attached.params.layout;
    let memory = File::from(attached.memory);
    // A head so far ahead that the ring cannot hold the records before it.
    let head = layout.control_offset(0) + traceweir_transport::abi::control::HEAD;
    std::os::unix::fs::FileExt::write_all_at(&memory, &u64::MAX.to_le_bytes(), head as u64).unwrap();
    for number in 0..100 {
        good.write(number, 0).unwrap();
    }
    let after = fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), (0..100).collect());
    assert_eq!(after.damaged_regions, 1);
}

#[test]
fn random_bytes_in_regions_affect_no_other_region() {
    use std::os::unix::fs::FileExt;
    let fixture = SessionFixture::with_file(SessionConfig { ring_bytes: 1, ..session_config(SEQUENTIAL) });
    let good = fixture.attach_writer(1);
    // A small deterministic generator: the same bytes each time.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut accepted = Vec::new();
    for round in 0..200 {
        let attached = fixture.session.attach(2, ThreadIdMapping::AsGiven).unwrap();
        let memory = File::from(attached.memory.try_clone().unwrap());
        let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
        let source = RegionSource::File { memory: attached.memory, wake: attached.wake };
        let ticket = outlet.open(source, &attached.params).unwrap();
        let bad = TestWriter { outlet, ticket, region: attached.id };
        for at in 0..20 {
            bad.write(1 << 40 | round << 8 | at, 0).unwrap();
        }
        let layout = attached.params.layout;
        let used: Vec<usize> = (0..layout.rings())
            .filter(|&ring| {
                let mut head = [0; 8];
                memory.read_exact_at(&mut head, layout.control_offset(ring) as u64).unwrap();
                head != [0; 8]
            })
            .collect();
        for _ in 0..random(8) {
            let ring = used[usize::try_from(random(used.len() as u64)).unwrap()];
            // The control words of the ring, or its records: mostly those at the start.
            let (start, length) = match random(3) {
                0 => (layout.control_offset(ring), 256),
                1 => (layout.data_offset(ring), 4096),
                _ => (layout.data_offset(ring), u64::from(layout.ring_bytes())),
            };
            let (start, at) = (start as u64, start as u64 + random(length) / 4 * 4);
            // A small length, a length that may be too large, all ones, the start of a valid record
            // of 96 bytes, anything.
            let word = [random(256), random(1 << 17), u64::MAX, 0xC013_0060, random(u64::MAX)];
            let word = word[usize::try_from(random(5)).unwrap()].to_le_bytes();
            let bytes = &word[..if at + 8 > start + length { 4 } else { 8 }];
            memory.write_all_at(bytes, at).unwrap();
        }
        let number = accepted.len() as u64;
        good.write(number, 0).unwrap();
        accepted.push(number);
        if random(2) == 0 {
            fixture.flush();
        }
        // The outlet stays open: closing it would wait for an overwritten lock word.
        fixture.session.detach(attached.id);
    }
    let after = fixture.stop();
    // Random bytes can mark a record as one that has its own stamp, which may be out of order.
    let read = read_log_except(&fixture.log_path(), &[Rule::TimeInBuffer, Rule::TimeAcrossBuffers]);
    let honest = read.into_iter().filter(|event| event.process_id == 1).map(|event| event.number);
    assert_eq!(unique_numbers(&honest.collect::<Vec<_>>()), unique_numbers(&accepted));
    assert!(after.damaged_regions > 0 && after.lost_by_cause.damaged > 0, "no damage was noticed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn random_writers_and_flushes_are_accounted_for(
        buffer_size in prop::sample::select(vec![4_u32, 8, 64]),
        writer_count in 1_usize..5,
        bursts in prop::collection::vec((0_u64..400, 0_usize..700, any::<bool>()), 1..6),
        low_latency: bool,
    ) {
        let config = SessionConfig { buffer_size, low_latency, ring_bytes: 1, ..session_config(SEQUENTIAL) };
        let fixture = SessionFixture::with_file(config);
        let writers: Vec<TestWriter> = (0..writer_count).map(|i| fixture.attach_writer(i as u32)).collect();
        let (mut next, mut accepted, mut lost) = (0, Vec::new(), 0);
        for (events, extra_bytes, flush) in bursts {
            for (index, writer) in writers.iter().enumerate() {
                for at in next..next + events {
                    let number = (index as u64) << 32 | at;
                    match writer.write(number, extra_bytes) {
                        Ok(()) => accepted.push(number),
                        Err(_) => lost += 1,
                    }
                }
            }
            next += events;
            if flush {
                let collected = fixture.flush().events;
                prop_assert_eq!(collected, accepted.len() as u64, "a published event was not collected");
            }
        }
        let after = fixture.stop();
        prop_assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), unique_numbers(&accepted));
        prop_assert_eq!(after.events_lost, lost);
    }
}
