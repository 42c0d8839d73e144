use alloc::boxed::Box;

use super::*;

use crate::etl::{Trace, check};
use crate::header::event::EventHeader;
use crate::spec::session::{BUFFER_FLAG_EVENTS_LOST, EVENT_TRACE_FILE_MODE_CIRCULAR};

const BUFFER_BYTES: usize = 1024;

fn options(compressed: bool) -> Options {
    let times = FileTime(1000);
    Options { buffer_size: 1024, compressed, start_time: times, boot_time: times, ..Options::default() }
}

fn encode_records(time: i64) -> Vec<u8> {
    let mut out = Vec::new();
    for index in 0..5 {
        EventHeader { time: time.saturating_add(index), ..EventHeader::default() }
            .encode(&[7; 10], &mut out)
            .unwrap();
    }
    out
}

fn lay_out_buffer(records: &[u8]) -> (Vec<u8>, usize) {
    let mut buffer = alloc::vec![0; HEADER_SIZE];
    buffer.extend_from_slice(records);
    let filled = buffer.len();
    buffer.resize(BUFFER_BYTES, 0xAA);
    (buffer, filled)
}

fn find_violations(file: &[u8]) -> Vec<crate::etl::Finding> {
    let mut findings = Vec::new();
    check(&Trace::open(file).unwrap(), &mut |finding| findings.push(finding)).unwrap();
    findings
}

#[test]
fn in_place_and_copied_buffer_give_the_same_file() {
    for compressed in [false, true] {
        let mut copied = Writer::create(Vec::new(), options(compressed)).unwrap();
        let mut placed = Writer::create(Vec::new(), options(compressed)).unwrap();
        for time in [10, 20, 30] {
            copied.append(1, time, &encode_records(time)).unwrap();
            let (mut buffer, filled) = lay_out_buffer(&encode_records(time));
            placed.append_in_place(buffer_in_place(&mut buffer, time, 0, filled)).unwrap();
        }
        assert_eq!(copied.finish(Summary::default()), placed.finish(Summary::default()));
    }
}

fn buffer_in_place(bytes: &mut [u8], time: i64, loss_flags: u16, filled: usize) -> BufferInPlace<'_> {
    BufferInPlace { cpu: 1, time, loss_flags, bytes, filled }
}

#[test]
fn several_buffers_in_one_write_give_the_same_file_as_single_writes() {
    let mut single = Writer::create(Vec::new(), options(false)).unwrap();
    let mut batched = Writer::create(Vec::new(), options(false)).unwrap();
    batched.wrap_at(5 * BUFFER_BYTES as u64 + 100);
    assert!(batched.can_append_contiguously(3));
    let mut buffers = [10, 20, 30].map(|time| (time, lay_out_buffer(&encode_records(time))));
    for (time, (buffer, filled)) in &mut buffers.clone() {
        single.append_in_place(buffer_in_place(buffer, *time, 0, *filled)).unwrap();
    }
    let mut unpadded: Vec<_> = buffers
        .iter_mut()
        .map(|(time, (buffer, filled))| buffer_in_place(buffer, *time, 0, *filled + 1))
        .collect();
    assert!(batched.append_all_in_place(&mut unpadded).is_err(), "unpadded records were accepted");
    let mut placed: Vec<_> = buffers
        .iter_mut()
        .map(|(time, (buffer, filled))| buffer_in_place(buffer, *time, 0, *filled))
        .collect();
    batched.append_all_in_place(&mut placed).unwrap();
    assert!(
        batched.can_append_contiguously(1) && !batched.can_append_contiguously(2),
        "the log does not wrap after one more buffer"
    );
    assert_eq!(single.finish(Summary::default()), batched.finish(Summary::default()));
}

#[test]
fn threads_compress_buffers_to_the_same_file() {
    let times: Vec<i64> = (1..=25).collect();
    let mut single = Writer::create(Vec::new(), options(true)).unwrap();
    for time in &times {
        single.append(1, *time, &encode_records(*time)).unwrap();
    }
    let expected = single.finish(Summary::default()).unwrap();
    for threads in [1, 2, 3, 40] {
        let mut batched = Writer::create(Vec::new(), options(true)).unwrap();
        batched.compress_with_threads(threads, Box::new(|work| work()));
        for part in times.chunks(10) {
            let mut buffers: Vec<_> =
                part.iter().map(|time| (*time, lay_out_buffer(&encode_records(*time)))).collect();
            let mut placed: Vec<_> = buffers
                .iter_mut()
                .map(|(time, (buffer, filled))| buffer_in_place(buffer, *time, 0, *filled))
                .collect();
            let sizes = batched.append_all_in_place(&mut placed).unwrap();
            assert_eq!(sizes.len(), part.len());
        }
        assert_eq!(batched.finish(Summary::default()).unwrap(), expected, "{threads} threads, in place");
    }
}

#[test]
fn records_of_several_processors_give_the_same_file_with_threads() {
    let [expected, actual] = [1, 3].map(|threads| {
        let mut writer = Writer::create(Vec::new(), options(true)).unwrap();
        writer.compress_with_threads(threads, Box::new(|work| work()));
        for time in 1..3000 {
            let cpu = u16::try_from(time % 7).unwrap();
            let records = encode_records(time);
            writer.write(cpu, time, &records).unwrap();
        }
        writer.finish(Summary::default()).unwrap()
    });
    assert_eq!(expected, actual);
    assert_eq!(find_violations(&actual), []);
}

#[test]
fn in_place_buffer_is_checked_and_keeps_only_loss_flags() {
    let mut writer = Writer::create(Vec::new(), options(false)).unwrap();
    let (mut buffer, filled) = lay_out_buffer(&encode_records(1));
    writer.append_in_place(buffer_in_place(&mut buffer, 1, u16::MAX, filled)).unwrap();
    assert!(
        writer.append_in_place(buffer_in_place(&mut buffer, 1, 0, BUFFER_BYTES + 8)).is_err(),
        "accepted a fill level beyond the end"
    );
    assert!(
        writer.append_in_place(buffer_in_place(&mut buffer, 1, 0, 8)).is_err(),
        "accepted a fill level inside the header"
    );
    assert!(
        writer.append_in_place(buffer_in_place(&mut buffer[..512], 1, 0, 256)).is_err(),
        "accepted a buffer of a different size"
    );
    assert!(
        writer.append_in_place(buffer_in_place(&mut buffer, 1, 0, filled + 1)).is_err(),
        "unpadded records were accepted"
    );
    let file = writer.finish(Summary::default()).unwrap();
    assert_eq!(find_violations(&file), []);
    assert_eq!(Trace::open(&file).unwrap().loss_flags() & BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_EVENTS_LOST);
}

#[test]
fn circular_log_stays_within_its_limit_and_can_be_finalised_again() {
    let mode = EVENT_TRACE_FILE_MODE_CIRCULAR;
    for buffers in 0..12_i64 {
        let circular = Options { log_file_mode: mode, ..options(false) };
        let mut writer = Writer::create(Vec::new(), circular).unwrap();
        // The header buffer and four data buffers; the last 100 bytes are too few for another.
        writer.wrap_at(5 * BUFFER_BYTES as u64 + 100);
        for index in 0..buffers {
            writer.append(0, index * 10, &encode_records(index * 10)).unwrap();
        }
        for events_lost in [3, 4] {
            let end_time = FileTime(2000);
            writer.finalise(&Summary { end_time, events_lost, buffers_lost: 1 }).unwrap();
        }
        assert_eq!(writer.length(), writer.sink_mut().len() as u64);
        let file = writer.sink_mut().clone();
        assert!(file.len() <= 5 * BUFFER_BYTES);
        assert_eq!(find_violations(&file), [], "{buffers} buffers");
        let trace = Trace::open(&file).unwrap();
        assert_eq!(i64::from(trace.header().buffers_written), buffers + 1);
        assert_eq!(trace.header().events_lost, 4);
        let oldest = trace.buffers().iter().filter(|b| b.offset > 0).map(|b| b.first_time).min();
        assert_eq!(oldest, (buffers > 0).then_some((buffers - 4).max(0) * 10));
    }
}

#[test]
fn header_buffer_equals_the_start_of_a_new_file() {
    let header = options(false).header_buffer().unwrap();
    assert_eq!(Writer::create(Vec::new(), options(false)).unwrap().sink_mut(), &header);
    assert!(Options { logger_id: 0, ..options(false) }.header_buffer().is_err());
}
