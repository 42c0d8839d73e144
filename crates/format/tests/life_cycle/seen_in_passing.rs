//! What `Trace::open` reports from the start of each buffer: loss flags, and whether the file seems
//! to contain kernel events.

use super::*;
use traceweir_format::kernel::hook;

#[test]
fn loss_flags_are_gathered_from_all_buffers() {
    for compressed in [false, true] {
        let mut file = small_file(compressed);
        let headers = buffer_headers(&file);
        assert_eq!(Trace::open(&file).unwrap().loss_flags(), 0);
        for (index, flag) in
            [(0, BUFFER_FLAG_RTBACKUP_CORRUPT), (3, BUFFER_FLAG_EVENTS_LOST), (12, BUFFER_FLAG_BUFFER_LOST)]
        {
            let (at, header) = headers[index];
            overwrite(&mut file, at + FLAGS, &(header.flags | flag).to_le_bytes());
        }
        let trace = Trace::open(&file).unwrap();
        assert_eq!(
            trace.loss_flags(),
            BUFFER_FLAG_EVENTS_LOST | BUFFER_FLAG_BUFFER_LOST | BUFFER_FLAG_RTBACKUP_CORRUPT
        );
    }
}

#[test]
fn damaged_flags_report_no_loss() {
    let mut unknown = small_file(false);
    // The second buffer: 0x100 is unknown, 0x20 is the processor index, 6 are the flags
    // of lost events and lost buffers.
    overwrite(&mut unknown, 1024 + FLAGS, &0x0126_u16.to_le_bytes());
    assert_eq!(Trace::open(&unknown).unwrap().loss_flags(), 0, "loss flags beside an unknown flag are read");
    let mut old = small_file(false);
    // The version of Windows XP (5.1) in the log-file header.
    overwrite(&mut old, HEADER_PAYLOAD_OFFSET + 4, &[5, 1, 1, 5]);
    overwrite(&mut old, 1024 + FLAGS, &[0x26]);
    assert_eq!(Trace::open(&old).unwrap().loss_flags(), 0, "flags of Windows XP buffers are not ignored");
}

#[test]
fn kernel_event_at_the_start_of_a_buffer_is_reported() {
    let system = |cpu_times| SystemHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::PROCESS_START,
        thread_id: 1,
        process_id: 2,
        time: ANCHOR + 1,
        cpu_times,
    };
    let perf = PerfInfoHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::SAMPLED_PROFILE,
        time: ANCHOR,
        counters: &[],
    };
    let records = [
        (true, encode_record(|out| system(Some((0, 0))).encode(&[0; 600], out))),
        (true, encode_record(|out| system(None).encode(&[0; 600], out))),
        (true, encode_record(|out| perf.encode(&[0; 600], out))),
        (false, encode_event(ANCHOR + 1, 2, 600)),
    ];
    for compressed in [false, true] {
        for (expected, record) in &records {
            let buffer_plan = [(0, vec![encode_event(ANCHOR, 1, 600)]), (1, vec![record.clone()])];
            let bytes = build_file(Options { compressed, ..options() }, &buffer_plan);
            let trace = Trace::open(&bytes).unwrap();
            assert_eq!(trace.seems_to_hold_kernel_events(), *expected, "{:x?}", &record[..8]);
        }
    }
}

#[test]
fn header_buffers_are_not_reported_as_kernel_events() {
    let mut both = small_file(false);
    both.extend(small_file(false));
    assert!(!Trace::open(&both).unwrap().seems_to_hold_kernel_events(), "header buffers are reported");
}
