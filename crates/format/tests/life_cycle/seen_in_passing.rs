//! What opening a file reports without reading the events: loss, and kernel events.

use super::*;
use traceweir_format::kernel::hook;

#[test]
fn loss_flags_are_gathered_from_all_buffers() {
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
fn damaged_flags_report_no_loss() {
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
