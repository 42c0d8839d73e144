//! Files in every state a session can leave them in: read, checked and repaired.

mod fake;

use fake::{
    ANCHOR, PROVIDER, START, Seen, buffers, data, encode, event, file, findings, options, put, read, salvage,
    small,
};
use traceweir_format::Record;
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::etl::{Options, Repair, Rule, Summary, Trace, Writer, repair};
use traceweir_format::header::Family;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::{
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_RTBACKUP_CORRUPT,
    EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_CIRCULAR,
};
use traceweir_format::time::{ClockKind, FileTime};
use traceweir_format::wire::Put;

const LOG_FILE_HEADER: usize = 0x68;
const END_TIME: usize = LOG_FILE_HEADER + 0x10;
const MODE: usize = LOG_FILE_HEADER + 0x20;
const BUFFERS_WRITTEN: usize = LOG_FILE_HEADER + 0x24;

/// Takes back what finalising wrote.
fn crash(file: &mut [u8]) {
    put(file, END_TIME, &[0; 8]);
    put(file, BUFFERS_WRITTEN, &[0; 4]);
}

fn repaired(file: &[u8]) -> (Vec<u8>, Repair) {
    let mut sink = Vec::new();
    let done = repair(&Trace::open(file).unwrap(), &mut sink).unwrap();
    assert_eq!(done.bytes, sink.len() as u64);
    (sink, done)
}

/// Repairs a file, and asserts that nothing is wrong with the result and that it has the same events.
fn repairs(file: &[u8]) -> Repair {
    let (before, _) = salvage(file);
    let (sink, done) = repaired(file);
    assert_eq!(findings(&sink), []);
    // Finalising changes the header event, which is an event of the file too.
    let but_header = |seen: Vec<Seen>| -> Vec<Seen> {
        seen.into_iter()
            .map(|s| if fake::is_log_file_header(&s.bytes) { Seen { bytes: Vec::new(), ..s } } else { s })
            .collect()
    };
    assert!(but_header(read(&sink)) == but_header(before.clone()), "other events than before");
    assert_eq!(done.events, before.len() as u64);
    let trace = Trace::open(&sink).unwrap();
    assert_eq!(u64::from(trace.header().buffers_written), trace.buffers().len() as u64);
    done
}

mod crashed {
    use super::*;

    #[test]
    fn a_file_that_was_not_finalised_is_read_to_its_last_event() {
        for compressed in [false, true] {
            let whole = small(compressed);
            for count in [0_u32, 1, 5, 9999] {
                let mut file = whole.clone();
                crash(&mut file);
                put(&mut file, BUFFERS_WRITTEN, &count.to_le_bytes());
                assert_eq!(data(&file), data(&whole));
                assert_eq!(findings(&file), [(Rule::NotFinalised, 0x78), (Rule::BuffersWritten, 0x8C)]);
                let done = repairs(&file);
                assert_eq!((done.buffers, done.salvaged, done.dropped), (13, 0, 0));
                assert_eq!(done.end_time, FileTime(START.0 + 125), "the last event");
            }
        }
    }

    #[test]
    fn a_writer_that_never_finishes_leaves_such_a_file() {
        for compressed in [false, true] {
            let mut sink = Vec::new();
            let mut writer = Writer::create(&mut sink, Options { compressed, ..options() }).unwrap();
            for n in 0..20 {
                writer.write_record(n % 2, &event(ANCHOR + i64::from(n), usize::from(n), 64)).unwrap();
            }
            writer.flush().unwrap();
            drop(writer);
            assert!(!Trace::open(&sink).unwrap().is_finalised());
            assert_eq!(data(&sink).len(), 20);
            repairs(&sink);
            let (done, _) = repaired(&sink);
            assert_eq!(Trace::open(&done).unwrap().header().processors, 2, "the writer had begun with one");
        }
    }

    #[test]
    fn half_a_last_buffer_keeps_its_whole_records() {
        for compressed in [false, true] {
            let mut file = small(compressed);
            crash(&mut file);
            let (last, head) = *buffers(&file).last().unwrap();
            let events = data(&file).len();
            // Records of 120 and 180 bytes, then padding and filler.
            let cuts: &[(usize, usize)] = if compressed {
                &[(1, 2), (8, 2)]
            } else {
                &[
                    (0, 2),
                    (HEADER_SIZE, 2),
                    (HEADER_SIZE + 119, 2),
                    (HEADER_SIZE + 120, 1),
                    (HEADER_SIZE + 299, 1),
                    (HEADER_SIZE + 300, 0),
                ]
            };
            for &(keep, lost) in cuts {
                let cut = &file[..last + keep];
                assert_eq!(salvage(cut).0.len(), events + 1 - lost, "{keep} bytes, compressed {compressed}");
                let done = repairs(cut);
                let salvaged = u32::from(lost < 2);
                assert_eq!(done.salvaged, salvaged);
                assert_eq!(done.buffers, 12 + salvaged);
            }
            assert!(head.buffer_size > 0);
        }
    }

    #[test]
    fn every_cut_of_an_unfinalised_file_is_repaired() {
        for compressed in [false, true] {
            let mut file = small(compressed);
            crash(&mut file);
            let second = buffers(&file)[1].0;
            for length in (second..file.len()).step_by(41) {
                repairs(&file[..length]);
            }
        }
    }

    #[test]
    fn a_cut_header_buffer_is_rebuilt_if_its_event_is_whole() {
        let mut file = small(false);
        crash(&mut file);
        let first_event = HEADER_SIZE + Record::parse(&file[HEADER_SIZE..], 0).unwrap().bytes().len();
        let done = repairs(&file[..first_event]);
        assert_eq!((done.buffers, done.salvaged, done.bytes), (1, 1, 1024));
        assert!(Trace::open(&file[..first_event - 1]).is_err());
    }

    #[test]
    fn a_header_buffer_that_claims_to_end_inside_its_event_is_rebuilt() {
        let mut file = small(false);
        for offset in [0x04, 0x30] {
            put(&mut file, offset, &0x50_u32.to_le_bytes());
        }
        let (sink, done) = repaired(&file);
        assert!(done.salvaged >= 1);
        assert_eq!(Trace::open(&sink).unwrap().header().session_name, "fake");
        assert_eq!(data(&sink), data(&small(false)), "no data buffer is touched");
    }

    #[test]
    fn a_preallocated_tail_of_zeros_is_left_out() {
        for compressed in [false, true] {
            for tail in [1, 7, 0x47, 0x48, 1023, 1024, 1025, 4096, 100_000] {
                let mut file = small(compressed);
                crash(&mut file);
                let length = file.len();
                file.resize(length + tail, 0);
                let trace = Trace::open(&file).unwrap();
                assert_eq!(trace.defects().len(), 1);
                let zeros = trace.defects()[0].to_string().contains("zeros to the end");
                assert_eq!(zeros, tail >= HEADER_SIZE, "{tail}");
                assert!(findings(&file).contains(&(Rule::BufferSequence, length as u64)));
                let done = repairs(&file);
                assert_eq!((done.bytes, done.dropped), (length as u64, 0));
            }
        }
    }
}

mod modes {
    use super::*;

    /// Ten buffers of one processor, two events each, all at one time: only sequence numbers tell their order.
    fn circular() -> Vec<u8> {
        let plan: Vec<_> = (0..10)
            .map(|n| (0, vec![event(ANCHOR + 5, 2 * n, 8), event(ANCHOR + 5, 2 * n + 1, 8)]))
            .collect();
        file(
            Options { log_file_mode: EVENT_TRACE_FILE_MODE_CIRCULAR, maximum_file_size: 1, ..options() },
            &plan,
        )
    }

    fn ids(seen: &[Seen]) -> Vec<u16> {
        seen.iter().map(|s| Record::parse(&s.bytes, 0).unwrap().descriptor().id).collect()
    }

    /// The file as it is when only `room` data buffers fit and later ones replaced the first.
    fn wrapped(file: &[u8], room: usize) -> Vec<u8> {
        let buffers: Vec<&[u8]> = file.chunks(1024).collect();
        let mut out = buffers[0].to_vec();
        let mut slots = vec![&[][..]; room];
        for (n, buffer) in buffers[1..].iter().enumerate() {
            slots[n % room] = buffer;
        }
        out.extend(slots.concat());
        out
    }

    #[test]
    fn a_circular_file_that_did_not_wrap_reads_as_any_other() {
        assert_eq!(findings(&circular()), []);
        assert_eq!(ids(&data(&circular())), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_circular_file_that_lost_its_newest_buffers_is_not_taken_for_a_wrapped_one() {
        let whole = circular();
        let cut = &whole[..6 * 1024];
        assert_eq!(Trace::open(cut).unwrap().missing_buffers(), Some((11, 6)));
        assert_eq!(findings(cut), [(Rule::BuffersWritten, BUFFERS_WRITTEN as u64)]);
        assert_eq!(Trace::open(&whole[..]).unwrap().missing_buffers(), None);
        assert_eq!(Trace::open(&wrapped(&whole, 3)[..]).unwrap().missing_buffers(), None);
    }

    #[test]
    fn a_wrapped_circular_file_comes_in_order_of_acquisition() {
        for room in 1..10 {
            let file = wrapped(&circular(), room);
            assert_eq!(Trace::open(&file).unwrap().header().buffers_written, 11, "all ever written");
            assert_eq!(ids(&data(&file)), (20 - 2 * room as u16..20).collect::<Vec<_>>());
            assert_eq!(findings(&file), []);
            let mut crashed = file.clone();
            crash(&mut crashed);
            repairs(&crashed);
        }
    }

    #[test]
    fn a_wrapped_file_of_many_processors_comes_in_time_order() {
        let mut file = small(false);
        put(&mut file, MODE, &EVENT_TRACE_FILE_MODE_CIRCULAR.to_le_bytes());
        let all = data(&file);
        let wrapped = wrapped(&file, 7);
        let seen = data(&wrapped);
        let kept: Vec<_> =
            all.into_iter().filter(|s| Record::parse(&s.bytes, 0).unwrap().descriptor().id >= 10).collect();
        assert_eq!(seen, kept);
        assert_eq!(findings(&wrapped), []);
    }

    #[test]
    fn an_appended_session_follows_the_first() {
        let session = |anchor: i64, first: usize| {
            let o = Options {
                clock_type: 2,
                anchor,
                start_time: FileTime(anchor),
                boot_time: FileTime(1),
                log_file_mode: EVENT_TRACE_FILE_MODE_APPEND,
                ..options()
            };
            let plan = [(0, vec![event(anchor + 1, first, 8)]), (1, vec![event(anchor + 2, first + 1, 8)])];
            file(o, &plan)
        };
        let mut both = session(START.0, 1);
        both.extend(session(START.0 + 1_000_000, 3));
        put(&mut both, BUFFERS_WRITTEN, &6_u32.to_le_bytes());
        put(&mut both, END_TIME, &(START.0 + 2_000_000).to_le_bytes());
        assert_eq!(findings(&both), []);
        let seen = read(&both);
        let hooks = seen.iter().filter(|s| fake::is_log_file_header(&s.bytes)).count();
        assert_eq!((seen.len(), hooks), (6, 2), "the second header is reported as the event it is");
        assert_eq!(ids(&data(&both)), [1, 2, 3, 4]);
        let trace = Trace::open(&both).unwrap();
        assert_eq!(
            (trace.clock().kind, trace.clock().anchor),
            (ClockKind::SystemTime, START.0),
            "the first one anchors"
        );
        crash(&mut both);
        repairs(&both);
    }

    #[test]
    fn a_new_file_segment_goes_on_counting() {
        let mut file = small(false);
        for (n, (at, _)) in buffers(&file).into_iter().enumerate().skip(1) {
            put(&mut file, at + 0x18, &(907 + n as i64).to_le_bytes());
        }
        assert_eq!(findings(&file), []);
        assert_eq!(data(&file), data(&small(false)));
    }

    #[test]
    fn one_stream_for_all_processors_is_one_queue() {
        let mode = 0x1000_0001;
        let plan: Vec<_> = (0..6).map(|n| (0, vec![event(ANCHOR + n, n as usize, 8)])).collect();
        let bytes = file(Options { log_file_mode: mode, ..options() }, &plan);
        let trace = Trace::open(&bytes).unwrap();
        assert_eq!((trace.header().processors, trace.header().log_file_mode), (1, mode));
        assert!(data(&bytes).iter().all(|s| s.cpu == 0));
        assert_eq!(findings(&bytes), []);
    }

    #[test]
    fn plain_and_compressed_buffers_may_be_mixed() {
        // Bytes without repetition do not shrink, so their buffer is stored.
        let mut noise = Vec::new();
        let mut state = 1_u32;
        noise.resize_with(600, || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let perf = |time| PerfInfoHeader { pointer_size: 8, version: 2, hook: 0x0F2E, time, counters: &[] };
        let stored = encode(|out| perf(ANCHOR + 2).encode(&noise, out));
        let plan =
            [(0, vec![event(ANCHOR + 1, 1, 500)]), (0, vec![stored]), (0, vec![event(ANCHOR + 3, 3, 500)])];
        let mixed = file(Options { compressed: true, ..options() }, &plan);
        let flags: Vec<_> =
            buffers(&mixed).iter().map(|(_, h)| (h.is_compressed(), h.buffer_size <= h.offset)).collect();
        assert_eq!(
            flags[1..],
            [(true, true), (false, true), (true, true)],
            "none is larger than its contents"
        );
        assert_eq!(findings(&mixed), []);
        assert_eq!(data(&mixed).len(), 3);

        // The flag of the buffer decides, not the mode of the file.
        let mut unsaid = mixed.clone();
        put(&mut unsaid, MODE, &1_u32.to_le_bytes());
        assert_eq!(data(&unsaid), data(&mixed));
        let first = (buffers(&mixed)[1].0 + 0x34) as u64;
        assert_eq!(findings(&unsaid), [(Rule::Compression, first)], "once a file");
        let (again, done) = repaired(&unsaid);
        assert_eq!((again, done.salvaged), (unsaid, 0), "repair does not change the mode");
    }

    #[test]
    fn records_behind_the_saved_offset_are_read() {
        let extra = PerfInfoHeader { pointer_size: 8, version: 2, hook: 0x0042, time: ANCHOR, counters: &[] };
        let header_records = encode(|out| extra.encode(b"a build\0", out));
        let mut file = file(
            Options { compressed: true, header_records, ..options() },
            &[(0, vec![event(ANCHOR, 1, 8)])],
        );
        let offset = buffers(&file)[0].1.offset;
        put(&mut file, 4, &(offset - 24).to_le_bytes());
        assert_eq!(read(&file).len(), 3);
        assert_eq!(findings(&file), []);
        crash(&mut file);
        repairs(&file);
    }
}

mod old_layouts {
    use super::*;

    fn header(versions: [u8; 4]) -> LogFileHeader {
        LogFileHeader {
            buffer_size: 1024,
            versions,
            processors: 2,
            end_time: FileTime(START.0 + 5000),
            buffers_written: 3,
            start_buffers: 1,
            pointer_size: 4,
            boot_time: FileTime(1),
            perf_freq: 3_579_545,
            start_time: START,
            clock_type: 1,
            buffers_lost: 4,
            session_name: "old".into(),
            file_name: "old.etl".into(),
            ..LogFileHeader::default()
        }
    }

    /// The payload with the two pointers in four bytes each.
    fn narrow(header: &LogFileHeader) -> Vec<u8> {
        let wide = header.to_payload();
        [&wide[..0x38], &[0; 8], &wide[0x48..]].concat()
    }

    fn first_event(header: &LogFileHeader, version: u8) -> Vec<u8> {
        let system = SystemHeader {
            pointer_size: 4,
            version,
            hook: 0,
            thread_id: 1,
            process_id: 2,
            time: ANCHOR,
            cpu_times: Some((0, 0)),
        };
        encode(|out| system.encode(&narrow(header), out))
    }

    /// A file of plain buffers of 1 KiB, the header buffer first.
    fn file_of(header: &LogFileHeader, buffers: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        let first = first_event(header, 2);
        for (n, records) in [&first].into_iter().chain(buffers).enumerate() {
            let start = out.len();
            let offset = (HEADER_SIZE + records.len()) as u32;
            let (flags, kind) =
                (if n == 0 || n == buffers.len() { 0x21 } else { 0x20 }, if n == 0 { 4 } else { 0 });
            out.put_u32(1024)
                .put_u32(offset)
                .put_u32(offset)
                .put_u32(0)
                .put_i64(0)
                .put_i64(n as i64)
                .put_u64(0);
            out.put_u16(n.saturating_sub(1) as u16)
                .put_u16(1)
                .put_u32(3)
                .put_u32(offset)
                .put_u16(flags)
                .put_u16(kind);
            out.put(&[0; 16]).put(records);
            out.resize(start + 1024, 0xFF);
        }
        out
    }

    #[test]
    fn a_32_bit_log_file_header_is_read_whole() {
        let header = header([10, 0, 1, 5]);
        let file = file_of(&header, &[event(ANCHOR + 1, 1, 8), event(ANCHOR + 2, 2, 8)]);
        let trace = Trace::open(&file).unwrap();
        assert_eq!(trace.header(), &header);
        assert_eq!(data(&file).len(), 2);
        assert_eq!(findings(&file), []);

        let mut wrong = file.clone();
        put(&mut wrong, LOG_FILE_HEADER + 0xF0, &i64::MAX.to_le_bytes());
        put(&mut wrong, LOG_FILE_HEADER + 0x108, &9_u32.to_le_bytes());
        assert_eq!(findings(&wrong), [(Rule::HeaderTimes, 0x158), (Rule::ClockType, 0x170)]);
        let mut crashed = file.clone();
        crash(&mut crashed);
        repairs(&crashed);
    }

    /// An INSTANCE record with the short header.
    fn old_instance(time: i64) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u16(0x38 + 5)
            .put_u8(11)
            .put_u8(0xC0)
            .put_u8(1)
            .put_u8(4)
            .put_u16(2)
            .put_u32(30)
            .put_u32(31)
            .put_i64(time);
        out.put_u64(0xAAAA).put_u32(51).put_u32(52).put_u32(0).put_u32(0).put_u64(0xBBBB).put(b"hello");
        out.resize(0x40, 0);
        out
    }

    #[test]
    fn instances_before_layout_1_1_have_the_short_header() {
        let file = file_of(&header([6, 0, 1, 0]), &[old_instance(ANCHOR + 1)]);
        let trace = Trace::open(&file).unwrap();
        let mut events = trace.events();
        events.next().unwrap();
        let record = events.next().unwrap().unwrap();
        let instance = record.instance().unwrap();
        assert_eq!((instance.id, instance.parent_id, record.payload()), (51, 52, &b"hello"[..]));
        assert_eq!(
            (record.family(), record.thread_id(), record.provider().is_null()),
            (Family::Instance, 30, true)
        );
    }

    /// Windows XP: the first field counts references, a GUID stands for the sequence number, lost events for the flags.
    fn xp() -> Vec<u8> {
        let mut header = header([5, 1, 1, 0]);
        header.clock_type = 0;
        let system_time = |n: i64| ANCHOR + n;
        let mut file = file_of(&header, &[old_instance(system_time(1)), old_instance(system_time(2))]);
        for (n, buffer) in file.chunks_mut(1024).enumerate() {
            put(buffer, 0, &(n as u32).to_le_bytes());
            put(buffer, 0x18, &PROVIDER.to_bytes());
            put(buffer, 0x29, &[8]);
            put(buffer, 0x34, &0xFFFF_FFFF_u32.to_le_bytes());
        }
        file
    }

    #[test]
    fn windows_xp_buffers_have_the_size_of_the_session() {
        let file = xp();
        let trace = Trace::open(&file).unwrap();
        assert_eq!((trace.buffers().len(), trace.defects()), (3, &[][..]));
        assert_eq!(trace.clock().kind, ClockKind::SystemTime);
        let seen: Vec<_> = read(&file).iter().map(|s| (s.cpu, s.time)).collect();
        assert_eq!(seen, [(0, ANCHOR), (0, ANCHOR + 1), (1, ANCHOR + 2)]);
        assert_eq!(findings(&file), []);
    }

    #[test]
    fn a_crashed_windows_xp_file_is_repaired() {
        let mut file = xp();
        crash(&mut file);
        file.truncate(2048 + 0x48 + 0x40);
        repairs(&file);
        let mut file = xp();
        crash(&mut file);
        file.resize(3 * 1024 + 5000, 0);
        let done = repairs(&file);
        assert_eq!((done.buffers, done.bytes), (3, 3 * 1024));
    }
}

mod seen_in_passing {
    use super::*;

    #[test]
    fn flags_of_loss_are_gathered_from_all_buffers() {
        for compressed in [false, true] {
            let mut file = small(compressed);
            let all = buffers(&file);
            assert_eq!(Trace::open(&file).unwrap().loss_flags(), 0);
            for (index, flag) in [(0, 0x08), (3, 0x02), (12, 0x04)] {
                let (at, head) = all[index];
                put(&mut file, at + 0x34, &(head.flags | flag).to_le_bytes());
            }
            let trace = Trace::open(&file).unwrap();
            assert_eq!(
                trace.loss_flags(),
                BUFFER_FLAG_EVENTS_LOST | BUFFER_FLAG_BUFFER_LOST | BUFFER_FLAG_RTBACKUP_CORRUPT
            );
        }
    }

    #[test]
    fn flags_that_cannot_be_trusted_tell_of_no_loss() {
        let mut unknown = small(false);
        put(&mut unknown, 1024 + 0x34, &0x0126_u16.to_le_bytes());
        assert_eq!(Trace::open(&unknown).unwrap().loss_flags(), 0, "an unknown flag among them");
        let mut old = small(false);
        put(&mut old, LOG_FILE_HEADER + 4, &[5, 1, 1, 5]);
        put(&mut old, 1024 + 0x34, &[0x26]);
        assert_eq!(Trace::open(&old).unwrap().loss_flags(), 0, "Windows XP had no flags");
    }

    #[test]
    fn kernel_events_show_at_the_start_of_a_buffer() {
        let system = |cpu_times| SystemHeader {
            pointer_size: 8,
            version: 2,
            hook: 0x0301,
            thread_id: 1,
            process_id: 2,
            time: ANCHOR + 1,
            cpu_times,
        };
        let perf = PerfInfoHeader { pointer_size: 8, version: 2, hook: 0x0F2E, time: ANCHOR, counters: &[] };
        let kinds = [
            (true, encode(|out| system(Some((0, 0))).encode(&[0; 600], out))),
            (true, encode(|out| system(None).encode(&[0; 600], out))),
            (true, encode(|out| perf.encode(&[0; 600], out))),
            (false, event(ANCHOR + 1, 2, 600)),
        ];
        for compressed in [false, true] {
            for (expected, record) in &kinds {
                let plan = [(0, vec![event(ANCHOR, 1, 600)]), (1, vec![record.clone()])];
                let bytes = file(Options { compressed, ..options() }, &plan);
                let trace = Trace::open(&bytes).unwrap();
                assert_eq!(trace.seems_to_hold_kernel_events(), *expected, "{:x?}", &record[..8]);
            }
        }
    }

    #[test]
    fn header_buffers_do_not_count_as_kernel_events() {
        let mut both = small(false);
        both.extend(small(false));
        assert!(!Trace::open(&both).unwrap().seems_to_hold_kernel_events(), "two sessions");
    }
}

mod rules {
    use super::*;

    /// Changes a good file and asserts that exactly this rule breaks, exactly there.
    fn breaks(rule: Rule, offset: usize, at: usize, value: &[u8]) {
        breaks_in(small(false), rule, offset, at, value);
    }

    fn breaks_in(mut file: Vec<u8>, rule: Rule, offset: usize, at: usize, value: &[u8]) {
        assert_eq!(findings(&file), []);
        put(&mut file, at, value);
        assert_eq!(findings(&file), [(rule, offset as u64)]);
    }

    /// Where the fourth buffer of the small file starts.
    const FOURTH: usize = 3 * 1024;
    const LAST: usize = 12 * 1024;

    #[test]
    fn good_files_break_none() {
        for compressed in [false, true] {
            assert_eq!(findings(&small(compressed)), []);
        }
    }

    #[test]
    fn an_end_time_of_zero() {
        breaks(Rule::NotFinalised, 0x78, END_TIME, &[0; 8]);
    }

    #[test]
    fn a_wrong_count_of_buffers() {
        breaks(Rule::BuffersWritten, 0x8C, BUFFERS_WRITTEN, &[12]);
        breaks(Rule::BuffersWritten, 0x8C, BUFFERS_WRITTEN, &[14]);
    }

    #[test]
    fn times_in_the_wrong_order() {
        breaks(Rule::HeaderTimes, 0x78, END_TIME, &(START.0 - 1).to_le_bytes());
        breaks(Rule::HeaderTimes, 0x160, LOG_FILE_HEADER + 0xF8, &(START.0 + 1).to_le_bytes());
    }

    #[test]
    fn a_clock_that_does_not_tick() {
        breaks(Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x110, &[4]);
        breaks(Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x110, &[0]);
        breaks(Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x100, &[0; 8]);
        let mut cycles = small(false);
        put(&mut cycles, LOG_FILE_HEADER + 0x110, &[3]);
        breaks_in(cycles, Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x34, &[0; 4]);
    }

    #[test]
    fn a_session_buffer_size_that_no_session_has() {
        breaks(Rule::SessionBufferSize, 0x68, LOG_FILE_HEADER, &1023_u32.to_le_bytes());
        breaks(Rule::SessionBufferSize, 0x68, LOG_FILE_HEADER, &((16_u32 << 20) + 1).to_le_bytes());
    }

    #[test]
    fn buffers_that_do_not_lead_to_the_end() {
        breaks(Rule::BufferSequence, FOURTH, FOURTH, &[0; 4]);
        breaks(Rule::BufferSequence, FOURTH, FOURTH, &[0xFF; 4]);
        breaks(Rule::BufferSequence, FOURTH, FOURTH, &1500_u32.to_le_bytes());
        for junk in [1, 0x47] {
            let mut file = small(false);
            file.resize(file.len() + junk, 7);
            assert_eq!(findings(&file), [(Rule::BufferSequence, LAST as u64 + 1024)]);
        }
        let file = small(false);
        assert_eq!(findings(&file[..file.len() - 1]), [(Rule::BufferSequence, LAST as u64)]);
    }

    #[test]
    fn an_offset_that_is_none() {
        let offset = buffers(&small(false))[3].1.offset;
        breaks(Rule::BufferOffset, FOURTH + 0x30, FOURTH + 0x30, &(offset + 1).to_le_bytes());
        breaks(Rule::BufferOffset, FOURTH + 0x30, FOURTH + 0x30, &0x40_u32.to_le_bytes());
        breaks(Rule::BufferOffset, FOURTH + 0x30, FOURTH + 0x30, &1032_u32.to_le_bytes());
        assert_eq!(data(&small(false)).len(), 24);
    }

    #[test]
    fn flags_and_types_of_no_known_kind() {
        breaks(Rule::BufferKind, FOURTH + 0x34, FOURTH + 0x34, &0x00A0_u16.to_le_bytes());
        breaks(Rule::BufferKind, 0x34, 0x34, &0x0061_u16.to_le_bytes());
        breaks(Rule::BufferKind, FOURTH + 0x36, FOURTH + 0x36, &[8]);
    }

    #[test]
    fn a_state_that_is_not_flush() {
        breaks(Rule::BufferState, FOURTH + 0x2C, FOURTH + 0x2C, &[1]);
        breaks(Rule::BufferState, 0x2C, 0x2C, &[0]);
    }

    #[test]
    fn a_first_buffer_that_is_no_header_buffer() {
        breaks(Rule::FirstBuffer, 0x36, 0x36, &[0]);
    }

    #[test]
    fn a_processor_that_the_machine_does_not_have() {
        breaks(Rule::Processor, LAST + 0x28, LAST + 0x28, &[3]);
        let mut unknown = small(false);
        put(&mut unknown, LOG_FILE_HEADER + 0x0C, &[0]);
        put(&mut unknown, LAST + 0x28, &[3]);
        assert_eq!(findings(&unknown), [], "nobody says how many there are");
    }

    #[test]
    fn a_session_number_of_another_session() {
        breaks(Rule::LoggerId, FOURTH + 0x2A, FOURTH + 0x2A, &[8]);
        let mut every_other = small(false);
        for (at, _) in buffers(&every_other).into_iter().skip(1).step_by(2) {
            put(&mut every_other, at + 0x2A, &[8]);
        }
        assert_eq!(findings(&every_other), [(Rule::LoggerId, 2 * 1024 + 0x2A)], "once a file");
        let mut header = small(false);
        put(&mut header, 0x2A, &[8]);
        assert_eq!(findings(&header), []);
    }

    #[test]
    fn flags_of_loss_break_none() {
        for flag in [0x02, 0x04, 0x08, 0x10] {
            let mut file = small(false);
            put(&mut file, FOURTH + 0x34, &[0x20 | flag]);
            assert_eq!(findings(&file), [], "{flag:#x}");
        }
    }

    #[test]
    fn filler_that_is_none() {
        let end = FOURTH + buffers(&small(false))[3].1.offset as usize;
        for at in [end, end + 5, FOURTH + 1023] {
            breaks(Rule::Filler, at, at, &[0]);
        }
        let mut many = small(false);
        put(&mut many, end + 1, &[7; 20]);
        put(&mut many, 1020, &[7; 4]);
        assert_eq!(findings(&many), [(Rule::Filler, 1020), (Rule::Filler, end as u64 + 1)], "once a buffer");
    }

    #[test]
    fn a_pointer_size_that_no_machine_has() {
        for size in [0, 5, 16] {
            breaks(Rule::LogFileHeader, 0x94, LOG_FILE_HEADER + 0x2C, &[size]);
        }
    }

    #[test]
    fn names_that_do_not_end() {
        let names = LOG_FILE_HEADER + 0x118;
        let file_name = names + 2 * "fake\0".len();
        let file_end = file_name + 2 * "fake.etl".len();
        breaks(Rule::LogFileHeader, file_name, file_end, b"x");
        let mut neither = small(false);
        put(&mut neither, file_name - 2, b"x");
        put(&mut neither, file_end, b"x");
        assert_eq!(findings(&neither), [(Rule::LogFileHeader, names as u64)]);
    }

    #[test]
    fn a_sequence_number_used_twice() {
        breaks(Rule::SequenceNumber, 4 * 1024 + 0x18, FOURTH + 0x18, &[4]);
    }

    #[test]
    fn a_stream_that_does_not_give_what_it_should() {
        let file = small(true);
        let (at, head) = buffers(&file)[3];
        breaks_in(file.clone(), Rule::Compression, at, at + 0x30, &(head.offset + 8).to_le_bytes());
        breaks_in(file.clone(), Rule::Compression, at, at + 0x30, &((16 << 20) + 8_u32).to_le_bytes());
        let mut damaged = file.clone();
        put(&mut damaged, at + HEADER_SIZE, &[0xFF; 8]);
        assert_eq!(findings(&damaged), [(Rule::Compression, at as u64)], "a copy from before the first byte");
        let (seen, damage) = salvage(&damaged);
        assert_eq!((seen.len(), damage), (1 + 22, 1));
    }

    #[test]
    fn a_compressed_buffer_that_nobody_announced() {
        let file = small(true);
        let first = buffers(&file)[1].0;
        breaks_in(file, Rule::Compression, first + 0x34, MODE, &1_u32.to_le_bytes());
    }

    #[test]
    fn a_compressed_buffer_larger_than_its_contents() {
        // A stream of literals only: four bytes of flags for each 32.
        let record = event(ANCHOR + 1, 1, 8);
        let mut stream = Vec::new();
        for part in record.chunks(32) {
            stream.put_u32(0).put(part);
        }
        let mut bytes = file(Options { compressed: true, ..options() }, &[(0, vec![record])]);
        let (at, head) = buffers(&bytes)[1];
        bytes.truncate(at + HEADER_SIZE);
        bytes.put(&stream);
        let size = (HEADER_SIZE + stream.len()) as u32;
        assert!(size > head.offset);
        put(&mut bytes, at, &size.to_le_bytes());
        put(&mut bytes, at + 0x34, &(0x61_u16).to_le_bytes());
        assert_eq!(findings(&bytes), [(Rule::Compression, at as u64)]);
        assert_eq!(data(&bytes).len(), 1, "it is read all the same");
    }

    #[test]
    fn a_flush_marker_where_none_belongs() {
        breaks(Rule::FlushMarker, LAST + 0x34, LAST + 0x34, &[0x20]);
        breaks(Rule::FlushMarker, FOURTH + 0x34, FOURTH + 0x34, &[0x21]);
    }

    #[test]
    fn a_record_that_is_none() {
        let first = FOURTH + HEADER_SIZE;
        breaks(Rule::Record, first, first + 3, &[0x40]);
        breaks(Rule::Record, first, first, &[0, 0]);
        breaks(Rule::Record, first, first, &0x4F_u16.to_le_bytes());
        breaks(Rule::Record, first, first, &1000_u16.to_le_bytes());
        breaks(Rule::Record, first + 120, first + 120 + 2, &[19, 0]);
        let mut file = small(false);
        put(&mut file, first, &[0, 0, 0, 0]);
        assert_eq!(salvage(&file).1, 1, "reading reports it too");
    }

    #[test]
    fn extended_items_that_leave_the_record() {
        let items = [Item { kind: ExtType::SID, data: &[1; 12] }];
        let header = EventHeader { time: ANCHOR, items: &items, ..Default::default() };
        let record = encode(|out| header.encode(b"payload", out));
        let good = file(options(), &[(0, vec![record])]);
        let at = 1024 + HEADER_SIZE;
        breaks_in(good.clone(), Rule::ExtendedItems, at, at + 0x50, &[0]);
        breaks_in(good.clone(), Rule::ExtendedItems, at, at + 0x54, &[1]);
        breaks_in(good, Rule::ExtendedItems, at, at + 0x56, &[200]);
    }

    #[test]
    fn stamps_that_decrease() {
        // The second record of a buffer, then the first one of a processor's later buffer.
        let (first, second) = (FOURTH + HEADER_SIZE, FOURTH + HEADER_SIZE + 120);
        breaks(Rule::TimeInBuffer, second, second + 0x10, &(ANCHOR + 19).to_le_bytes());
        let mut late = small(false);
        put(&mut late, first + 0x10, &ANCHOR.to_le_bytes());
        assert_eq!(findings(&late), []);
        let sixth = 6 * 1024 + HEADER_SIZE;
        breaks(Rule::TimeAcrossBuffers, sixth, sixth + 0x10, &(ANCHOR + 34).to_le_bytes());
    }

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        let rules = [
            Rule::NotFinalised,
            Rule::BuffersWritten,
            Rule::HeaderTimes,
            Rule::ClockType,
            Rule::SessionBufferSize,
            Rule::LogFileHeader,
            Rule::BufferSequence,
            Rule::FirstBuffer,
            Rule::BufferOffset,
            Rule::BufferState,
            Rule::Processor,
            Rule::LoggerId,
            Rule::Filler,
            Rule::BufferKind,
            Rule::SequenceNumber,
            Rule::Compression,
            Rule::FlushMarker,
            Rule::Record,
            Rule::ExtendedItems,
            Rule::TimeInBuffer,
            Rule::TimeAcrossBuffers,
        ];
        let names: std::collections::BTreeSet<_> = rules.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), rules.len());
        assert_eq!(format!("{:>18}|", Rule::Record), "            record|");
    }
}

#[test]
fn a_repaired_file_is_finalised_at_its_last_event_or_where_it_said() {
    let file = small(false);
    let (sink, done) = repaired(&file);
    assert_eq!((sink, done.end_time), (file, FileTime(START.0 + 10_000)), "a good file stays as it is");
    let mut empty = Vec::new();
    drop(Writer::create(&mut empty, options()).unwrap());
    assert_eq!(repairs(&empty).end_time, START);
    let unset = Options { start_time: FileTime(0), boot_time: FileTime(0), ..options() };
    let mut empty = Vec::new();
    drop(Writer::create(&mut empty, unset).unwrap());
    assert_eq!(repairs(&empty).end_time, FileTime(1), "0 would mean that it is not finalised");
    assert!(Writer::create(Vec::new(), options()).unwrap().finish(Summary::default()).is_ok());
}
