use std::ops::ControlFlow;

use traceweir::consumer::{self, Item, Trace};

use super::*;

#[path = "../../../../../../tests/support/kernel_trace.rs"]
mod kernel_trace;

use kernel_trace::{KernelWriter, Packet, READY, Switch, Transfer, WAITING};

/// Ticks of the traces in a second.
const SECOND: i64 = 10_000_000;

/// Returns the counts of a trace with the process 70 (thread 71) and the process 80 (thread 81).
fn count(write: impl FnOnce(&mut KernelWriter)) -> (KernelTables, Second) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.etl");
    let mut writer = KernelWriter::create(&path, 2).unwrap();
    for (pid, tid, name) in [(70, 71, "first.exe"), (80, 81, "second\x1b.exe")] {
        writer.put_process(pid, name, "").unwrap();
        writer.put_thread(pid, tid).unwrap();
    }
    write(&mut writer);
    writer.finish(100 * SECOND, 0).unwrap();
    let trace = Trace::open(&path).unwrap();
    let start = trace.header().start_time;
    let tables = Arc::new(Mutex::new(KernelTables::new(start, 2)));
    let mut counter = KernelCounter::new(Arc::clone(&tables));
    let mut context = LiveContext::default();
    consumer::process(vec![trace], |item| {
        if let Item::Event(event) = item {
            lock(&tables).set_now(event.time);
            context.observe(event.record);
            counter.count(event.record, event.time, event.clock, &mut context);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let tables = lock(&tables).clone();
    (tables, Second::of_time(start))
}

fn switch(new_tid: u32, old_tid: u32) -> Switch {
    Switch { new_tid, old_tid, old_state: WAITING, wait_reason: 6 }
}

fn row(tables: &KernelTables, pid: u32) -> &KernelRow {
    &tables.processes.rows().find(|(key, _)| *key == pid).unwrap().1
}

#[test]
fn processor_time_is_divided_by_second() {
    let (tables, start) = count(|writer| {
        // From the middle of a second to the middle of the next but one.
        writer.put_switch(1, SECOND / 2, switch(71, 0)).unwrap();
        writer.put_switch(1, SECOND * 5 / 2, switch(81, 71)).unwrap();
        writer.put_switch(1, SECOND * 11 / 4, switch(0, 81)).unwrap();
    });
    let times = |pid| row(&tables, pid).cpu_ns.amounts_until(Second(start.0 + 3), 4);
    assert_eq!(times(70), [500_000_000, 1_000_000_000, 500_000_000, 0]);
    assert_eq!(times(80), [0, 0, 250_000_000, 0]);
    assert_eq!(row(&tables, 80).name.name.as_deref(), Some("second\\x1b.exe"));
    assert_eq!(tables.processes.len(), 2, "idle time belongs to no process");
    assert_eq!(tables.cpu_percent(Second(start.0 + 2)), 37.5, "of two processors");
}

#[test]
fn thread_that_runs_on_is_accounted_for_each_second() {
    let (tables, start) = count(|writer| {
        writer.put_switch(0, 0, switch(71, 0)).unwrap();
        // Only the other processor has events, in each of three seconds.
        for second in 1..=3 {
            writer.put_ready(1, second * SECOND, 81).unwrap();
        }
    });
    let times = row(&tables, 70).cpu_ns.amounts_until(Second(start.0 + 3), 4);
    assert_eq!(times, [1_000_000_000, 1_000_000_000, 1_000_000_000, 0]);
}

#[test]
fn time_that_is_accounted_for_is_not_counted_again() {
    let (tables, start) = count(|writer| {
        writer.put_switch(0, 0, switch(71, 0)).unwrap();
        writer.put_ready(1, SECOND, 81).unwrap();
        writer.put_switch(0, SECOND * 3 / 2, switch(0, 71)).unwrap();
        writer.put_ready(1, SECOND * 2, 81).unwrap();
    });
    let times = row(&tables, 70).cpu_ns.amounts_until(Second(start.0 + 2), 3);
    assert_eq!(times, [1_000_000_000, 500_000_000, 0]);
}

#[test]
fn latency_of_a_wake_is_the_time_until_the_thread_runs() {
    let (tables, start) = count(|writer| {
        writer.put_switch(0, 100, switch(81, 71)).unwrap();
        writer.put_ready(0, 200, 71).unwrap();
        writer.put_switch(0, 350, switch(71, 81)).unwrap();
        // A preempted thread was not woken.
        writer.put_switch(0, 400, Switch { old_state: READY, ..switch(81, 71) }).unwrap();
        writer.put_switch(0, 500, switch(71, 81)).unwrap();
    });
    let row = row(&tables, 70);
    let wakes = row.wakes.recent(start);
    assert_eq!((wakes.count, wakes.percentile(100)), (1, Some(15_000)));
    assert_eq!(row.switches.total(), 2);
}

#[test]
fn bytes_count_for_the_process_of_the_thread_or_packet() {
    let (tables, _) = count(|writer| {
        let transfer = Transfer { is_write: true, tid: 71, bytes: 4096, file: 0, duration: 10 };
        writer.put_transfer(0, 100, transfer).unwrap();
        let packet = Packet { pid: 80, bytes: 100, local_port: 1, is_sent: true };
        writer.put_packet(0, 200, packet).unwrap();
        writer.put_packet(0, 300, Packet { bytes: 11, is_sent: false, ..packet }).unwrap();
    });
    assert_eq!(row(&tables, 70).disk_bytes.total(), 4096);
    assert_eq!(row(&tables, 80).network_bytes.total(), 111);
}

#[test]
fn lost_switch_gives_no_time() {
    let (tables, _) = count(|writer| {
        writer.put_switch(0, 100, switch(71, 0)).unwrap();
        writer.put_switch(0, 900, switch(0, 81)).unwrap();
    });
    assert!(tables.processes.rows().all(|(_, row)| row.cpu_ns.total() == 0));
}
