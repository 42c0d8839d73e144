//! Files of older systems: 32 bits, short instance headers, buffers of Windows XP.

use super::*;

fn old_header(versions: [u8; 4]) -> LogFileHeader {
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

/// Encodes the header in the 32-bit layout, with two pointers of four bytes.
fn encode_32_bit(header: &LogFileHeader) -> Vec<u8> {
    let payload_64_bit = header.to_payload();
    [&payload_64_bit[..0x38], &[0; 8], &payload_64_bit[0x48..]].concat()
}

fn encode_first_event(header: &LogFileHeader, version: u8) -> Vec<u8> {
    let system = SystemHeader {
        pointer_size: 4,
        version,
        hook: traceweir_format::kernel::hook::LOG_FILE_HEADER,
        thread_id: 1,
        process_id: 2,
        time: ANCHOR,
        cpu_times: Some((0, 0)),
    };
    encode_record(|out| system.encode(&encode_32_bit(header), out))
}

/// Builds a file of plain buffers of 1 KiB, with the header buffer first.
fn build_old_file(header: &LogFileHeader, buffers: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let first = encode_first_event(header, 2);
    for (n, records) in [&first].into_iter().chain(buffers).enumerate() {
        let start = out.len();
        let offset = (HEADER_SIZE + records.len()) as u32;
        // Flag 0x20: the processor is an index. Flag 1: flush marker. Type 4: header buffer.
        let (flags, kind) =
            (if n == 0 || n == buffers.len() { 0x21 } else { 0x20 }, if n == 0 { 4 } else { 0 });
        // Buffer size, SavedOffset, CurrentOffset, reference count, time, sequence number, clock;
        // processor, logger id, state 3 (flush), Offset, flags, type.
        out.put_u32(1024).put_u32(offset).put_u32(offset).put_u32(0).put_i64(0).put_i64(n as i64).put_u64(0);
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
fn log_file_header_of_32_bits_is_read() {
    let header = old_header([10, 0, 1, 5]);
    let file = build_old_file(&header, &[encode_event(ANCHOR + 1, 1, 8), encode_event(ANCHOR + 2, 2, 8)]);
    let trace = Trace::open(&file).unwrap();
    assert_eq!(trace.header(), &header);
    assert_eq!(read_data_events(&file).len(), 2);
    assert_eq!(check_file(&file), []);

    let mut wrong = file.clone();
    // BootTime and the clock type; with 32 bits they are eight bytes nearer to the start.
    overwrite(&mut wrong, HEADER_PAYLOAD_OFFSET + 0xF0, &i64::MAX.to_le_bytes());
    overwrite(&mut wrong, HEADER_PAYLOAD_OFFSET + 0x108, &9_u32.to_le_bytes());
    assert_eq!(check_file(&wrong), [(Rule::HeaderTimes, 0x158), (Rule::ClockType, 0x170)]);
    let mut crashed = file.clone();
    undo_finalising(&mut crashed);
    assert_repairs(&crashed);
}

/// Encodes an INSTANCE record with the short header of layouts before 1.1.
fn encode_old_instance(time: i64) -> Vec<u8> {
    let mut out = Vec::new();
    // Size, header type, marker, event type, level, version, thread, process, time; then handle,
    // instance, parent instance, two processor times, parent handle, payload.
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
    let file = build_old_file(&old_header([6, 0, 1, 0]), &[encode_old_instance(ANCHOR + 1)]);
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

/// Builds a file of Windows XP. Its buffer headers have a reference count in place of the size, a
/// GUID in place of the sequence number, and a count of lost events in place of the flags. The byte
/// after the processor number is not part of the number.
pub(super) fn windows_xp_file() -> Vec<u8> {
    let mut header = old_header([5, 1, 1, 0]);
    header.clock_type = 0;
    let system_time = |n: i64| ANCHOR + n;
    let mut file =
        build_old_file(&header, &[encode_old_instance(system_time(1)), encode_old_instance(system_time(2))]);
    for (n, buffer) in file.chunks_mut(1024).enumerate() {
        overwrite(buffer, 0, &(n as u32).to_le_bytes());
        overwrite(buffer, 0x18, &PROVIDER.to_bytes());
        overwrite(buffer, 0x29, &[8]);
        overwrite(buffer, 0x34, &0xFFFF_FFFF_u32.to_le_bytes());
    }
    file
}

#[test]
fn windows_xp_buffers_have_the_size_of_the_session() {
    let file = windows_xp_file();
    let trace = Trace::open(&file).unwrap();
    assert_eq!((trace.buffers().len(), trace.defects()), (3, &[][..]));
    assert_eq!(trace.clock().kind, ClockKind::SystemTime);
    let events: Vec<_> = read_events(&file).iter().map(|event| (event.cpu, event.time)).collect();
    assert_eq!(events, [(0, ANCHOR), (0, ANCHOR + 1), (1, ANCHOR + 2)]);
    assert_eq!(check_file(&file), []);
}

#[test]
fn unfinalised_windows_xp_file_is_repaired() {
    let mut file = windows_xp_file();
    undo_finalising(&mut file);
    file.truncate(2048 + 0x48 + 0x40);
    assert_repairs(&file);
    let mut file = windows_xp_file();
    undo_finalising(&mut file);
    file.resize(3 * 1024 + 5000, 0);
    let report = assert_repairs(&file);
    assert_eq!((report.buffers, report.bytes), (3, 3 * 1024));
}
