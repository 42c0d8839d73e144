//! Files of older systems: 32 bits, short instance headers, buffers of Windows XP.

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

/// Returns the payload with the two pointers in four bytes each.
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

/// Returns a file of plain buffers of 1 KiB, the header buffer first.
fn file_of(header: &LogFileHeader, buffers: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let first = first_event(header, 2);
    for (n, records) in [&first].into_iter().chain(buffers).enumerate() {
        let start = out.len();
        let offset = (HEADER_SIZE + records.len()) as u32;
        let (flags, kind) =
            (if n == 0 || n == buffers.len() { 0x21 } else { 0x20 }, if n == 0 { 4 } else { 0 });
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

/// Returns an INSTANCE record with the short header.
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

/// Returns a file of Windows XP: the first field counts references, a GUID takes the place of the
/// sequence number, lost events that of the flags.
pub(super) fn xp() -> Vec<u8> {
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
