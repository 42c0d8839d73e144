//! Reads back written files with every header family and size. `order` tests the order of events.

#[path = "../fake/mod.rs"]
mod fake;
mod order;

use std::collections::BTreeMap;

use fake::{
    ANCHOR, Buffer, PROVIDER, ReadEvent, START, build_file, check_file, encode_event, encode_record,
    encode_unstamped_message, options, read_data_events, read_events,
};
use traceweir_format::Guid;
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::etl::{Options, Summary, Trace, Writer};
use traceweir_format::header::classic::{ClassicHeader, Instance};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::header::{Family, MAX_RECORD_BYTES, NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{EventDescriptor, ExtType};
use traceweir_format::time::FileTime;

const DESCRIPTOR: EventDescriptor = EventDescriptor {
    id: 65_000,
    version: 3,
    channel: 11,
    level: 5,
    opcode: 240,
    task: 4_660,
    keyword: 0x8000_0000_0000_0001,
};

/// Returns records of each family and pointer size, with stamps that rise by one. The last record
/// of each pointer size is a message without a stamp.
fn encode_all_families() -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut time = ANCHOR;
    let mut next = || {
        time += 1;
        time
    };
    let payload = b"payload of nineteen";
    for pointer_size in [4, 8] {
        let items = [
            Item { kind: ExtType::PROV_TRAITS, data: b"traits" },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: b"schema metadata" },
            Item { kind: ExtType::RELATED_ACTIVITYID, data: &PROVIDER.to_bytes() },
        ];
        let event = EventHeader {
            pointer_size,
            thread_id: 11,
            process_id: 12,
            time: next(),
            provider: PROVIDER,
            descriptor: DESCRIPTOR,
            activity: Guid::from_u128(5),
            items: &items,
            ..Default::default()
        };
        records.push(encode_record(|out| event.encode(payload, out)));
        let system = |time, cpu_times| SystemHeader {
            pointer_size,
            version: 4,
            hook: hook::PROCESS_START,
            thread_id: 13,
            process_id: 14,
            time,
            cpu_times,
        };
        records.push(encode_record(|out| system(next(), Some((1, 2))).encode(payload, out)));
        records.push(encode_record(|out| system(next(), None).encode(payload, out)));
        for counters in [&[][..], &[1, 2, 3, 4, 5, 6, u64::MAX]] {
            let perf = PerfInfoHeader {
                pointer_size,
                version: 2,
                hook: hook::SAMPLED_PROFILE,
                time: next(),
                counters,
            };
            records.push(encode_record(|out| perf.encode(payload, out)));
        }
        for instance in [None, Some(Instance { id: 1, parent_id: 2, parent_class: PROVIDER })] {
            let classic = ClassicHeader {
                pointer_size,
                opcode: 36,
                level: 4,
                version: 2,
                thread_id: 15,
                process_id: 16,
                time: next(),
                class: PROVIDER,
                cpu_times: (3, 4),
                instance,
            };
            records.push(encode_record(|out| classic.encode(payload, out)));
        }
        for stamp in [Some(next()), None] {
            let message = MessageHeader {
                number: 17,
                pointer_size,
                sequence: Some(18),
                guid: Some(PROVIDER),
                time: stamp,
                ids: Some((19, 20)),
            };
            records.push(encode_record(|out| message.encode(payload, out)));
        }
    }
    records
}

#[test]
fn every_header_family_reads_back_byte_for_byte() {
    for compressed in [false, true] {
        let records = encode_all_families();
        let file =
            build_file(Options { compressed, buffer_size: 8192, ..options() }, &[(5, records.clone())]);
        let events = read_data_events(&file);
        assert_eq!(check_file(&file), []);
        assert_eq!(events.len(), records.len());
        let mut previous_time = 0;
        for (event, written) in events.iter().zip(&records) {
            assert_eq!(event.cpu, 5);
            assert_eq!(event.bytes, written[..event.bytes.len()], "the bytes differ");
            let record = Record::parse(&event.bytes, 5).unwrap();
            assert_eq!(record.payload(), b"payload of nineteen", "{:?}", record.family());
            let stamp = if record.family() == Family::Message && record.time() == 0 {
                previous_time
            } else {
                record.time()
            };
            assert_eq!(event.time, stamp);
            previous_time = event.time;
        }
    }
}

#[test]
fn headers_keep_ids_descriptor_and_items() {
    let file = build_file(Options { buffer_size: 8192, ..options() }, &[(0, encode_all_families())]);
    let events = read_data_events(&file);
    let families: Vec<_> = events
        .iter()
        .map(|event| {
            let record = Record::parse(&event.bytes, 0).unwrap();
            (record.family(), record.pointer_size(), record.thread_id(), record.process_id())
        })
        .collect();
    let families_of_width = |width| {
        [
            (Family::Event, width, 11, 12),
            (Family::System, width, 13, 14),
            (Family::Compact, width, 13, 14),
            (Family::PerfInfo, width, NO_ID, NO_ID),
            (Family::PerfInfo, width, NO_ID, NO_ID),
            (Family::Full, width, 15, 16),
            (Family::Instance, width, 15, 16),
            (Family::Message, width, 19, 20),
            (Family::Message, width, 19, 20),
        ]
    };
    assert_eq!(families, [families_of_width(4), families_of_width(8)].concat());
    let event = Record::parse(&events[0].bytes, 0).unwrap();
    assert_eq!((event.descriptor(), event.activity()), (DESCRIPTOR, Some(Guid::from_u128(5))));
    let kinds: Vec<_> = event.items().map(|i| (i.kind, i.data.len())).collect();
    assert_eq!(
        kinds,
        [(ExtType::PROV_TRAITS, 6), (ExtType::EVENT_SCHEMA_TL, 15), (ExtType::RELATED_ACTIVITYID, 16)]
    );
    assert_eq!(Record::parse(&events[4].bytes, 0).unwrap().pmc_counters().len(), 56);
    assert_eq!(Record::parse(&events[6].bytes, 0).unwrap().instance().unwrap().parent_class, PROVIDER);
}

#[test]
fn log_file_header_matches_the_options() {
    for compressed in [false, true] {
        let options =
            Options { compressed, starter: (77, 78), maximum_file_size: 9, processors: 4, ..options() };
        let mut writer = Writer::create(Vec::new(), options).unwrap();
        writer.write_record(9, &encode_event(ANCHOR + 1, 0, 8)).unwrap();
        let summary = Summary { end_time: FileTime(START.0 + 5), events_lost: 3, buffers_lost: 2 };
        let file = writer.finish(summary).unwrap();
        let trace = Trace::open(&file).unwrap();
        let header = trace.header();
        assert_eq!(
            (header.buffer_size, header.processors, header.maximum_file_size),
            (1024, 10, 9),
            "a higher index did not raise the number of processors"
        );
        assert_eq!((header.buffers_written, header.events_lost, header.buffers_lost), (2, 3, 2));
        assert_eq!(
            (header.start_time, header.end_time, header.clock_type),
            (START, FileTime(START.0 + 5), 1)
        );
        assert_eq!((header.session_name.as_str(), header.file_name.as_str()), ("fake", "fake.etl"));
        // Windows version, then the layout: 2.0 for compressed files, buffers over 1 MiB and more
        // than 256 processors, otherwise 1.5.
        assert_eq!(header.versions, if compressed { [10, 0, 2, 0] } else { [10, 0, 1, 5] });
        assert_eq!(
            (trace.starter(), trace.is_finalised(), trace.is_compressed()),
            ((77, 78), true, compressed)
        );
        assert_eq!(trace.clock().file_time(ANCHOR + 1), FileTime(START.0 + 1));
    }
}

#[test]
fn empty_trace_has_only_its_header_event() {
    for compressed in [false, true] {
        let bytes = build_file(Options { compressed, ..options() }, &[]);
        assert_eq!(check_file(&bytes), []);
        let all = read_events(&bytes);
        assert_eq!((all.len(), all[0].time), (1, ANCHOR));
        assert!(read_data_events(&bytes).is_empty());
    }
}

#[test]
fn records_of_the_header_buffer_read_back() {
    for compressed in [false, true] {
        let groups = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::GROUP_MASKS,
            thread_id: 0,
            process_id: 0,
            time: ANCHOR,
            cpu_times: Some((0, 0)),
        };
        let header_records = encode_record(|out| groups.encode(&[1; 36], out));
        let bytes = build_file(
            Options { compressed, header_records, ..options() },
            &[(0, vec![encode_event(ANCHOR + 1, 1, 8)])],
        );
        let hooks: Vec<_> =
            read_events(&bytes).iter().map(|event| Record::parse(&event.bytes, 0).unwrap().hook()).collect();
        assert_eq!(hooks, [Some(hook::LOG_FILE_HEADER), Some(hook::GROUP_MASKS), None]);
        assert_eq!(check_file(&bytes), []);
    }
}

#[test]
fn every_buffer_size_holds_the_largest_record_it_can() {
    for compressed in [false, true] {
        for buffer_size in [1 << 10, 3 << 10, 64 << 10, 128 << 10, 1 << 20, 2 << 20, 16 << 20] {
            let record_space = buffer_size as usize - HEADER_SIZE;
            // 0x50 is the size of the event header.
            let payload = record_space.min(MAX_RECORD_BYTES) - 0x50;
            let records: Vec<_> = (0..5).map(|n| encode_event(ANCHOR + n, n as usize, payload)).collect();
            let mut writer =
                Writer::create(Vec::new(), Options { compressed, buffer_size, ..options() }).unwrap();
            for record in &records {
                writer.write_record(0, record).unwrap();
            }
            let bytes = writer.finish(Summary::default()).unwrap();
            assert_eq!(check_file(&bytes), [], "{buffer_size}");
            let events = read_data_events(&bytes);
            assert_eq!(events.len(), 5);
            assert!(events.iter().zip(&records).all(
                |(event, record)| record.starts_with(&event.bytes) && event.bytes.len() == payload + 0x50
            ));
        }
    }
}

#[test]
fn impossible_sizes_of_buffers_and_records_are_rejected() {
    for size in [0, 512, 1025, (16 << 20) + 1024] {
        assert!(Writer::create(Vec::new(), Options { buffer_size: size, ..options() }).is_err(), "{size}");
    }
    let mut writer = Writer::create(Vec::new(), options()).unwrap();
    assert!(writer.write_record(0, &encode_event(ANCHOR, 1, 1024 - HEADER_SIZE - 0x50 + 1)).is_err());
    assert!(writer.append(0, 0, &[0; 1024]).is_err());
    assert!(writer.append(0, 0, &[0; 9]).is_err(), "accepted unpadded records");
    assert!(
        writer.write(2048, 0, &encode_event(ANCHOR, 1, 1)).is_err(),
        "accepted an impossible processor index"
    );
    let long = Options { session_name: "n".repeat(500), ..options() };
    assert!(Writer::create(Vec::new(), long).is_err(), "accepted names larger than the header buffer");
    assert_eq!(read_data_events(&writer.finish(Summary::default()).unwrap()), []);
}

#[test]
fn impossible_options_are_rejected_with_the_reason() {
    let perf =
        PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::BUILD_INFO, time: ANCHOR, counters: &[] };
    let mut unpadded = encode_record(|out| perf.encode(b"build", out));
    unpadded.pop();
    for (invalid, reason) in [
        (Options { buffer_size: 1025, ..options() }, "multiple of 1,024"),
        (Options { logger_id: 0, ..options() }, "logger id is 0"),
        (Options { cpu_speed_mhz: 0, ..options() }, "processor speed is 0"),
        (Options { header_records: unpadded, ..options() }, "multiple of eight"),
    ] {
        let mut sink = Vec::new();
        let error = Writer::create(&mut sink, invalid).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(sink.is_empty(), "bytes were written");
    }
    assert!(Writer::create(Vec::new(), Options::default()).is_ok());
}

#[test]
fn longest_names_read_back() {
    let name = "\u{e9}".repeat(1023);
    for compressed in [false, true] {
        let options = Options {
            compressed,
            buffer_size: 8192,
            session_name: name.clone(),
            file_name: name.clone(),
            ..options()
        };
        let bytes = build_file(options, &[(0, vec![encode_event(ANCHOR, 1, 1)])]);
        let trace = Trace::open(&bytes).unwrap();
        assert_eq!((&trace.header().session_name, &trace.header().file_name), (&name, &name));
        assert_eq!(read_data_events(&bytes).len(), 1);
    }
}

#[test]
fn highest_processor_reads_back() {
    let bytes = build_file(
        options(),
        &[(2047, vec![encode_event(ANCHOR, 1, 1)]), (256, vec![encode_event(ANCHOR, 2, 1)])],
    );
    assert_eq!(read_data_events(&bytes).iter().map(|event| event.cpu).collect::<Vec<_>>(), [256, 2047]);
    let trace = Trace::open(&bytes).unwrap();
    assert_eq!((trace.header().processors, trace.header().versions), (2048, [10, 0, 2, 0]));
}
