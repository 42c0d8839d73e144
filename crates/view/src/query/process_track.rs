//! The track of a process: how much its threads ran, added up in cells of some pixels.
//!
//! ```text
//!   thread 12   ▄▄▄▄▄▄▄▄········      cells      busy ns of all threads, the thread that ran longest
//!   thread 13   ····▄▄▄▄▄▄▄▄····      ────▶      adjacent cells that one thread fills are one segment
//! ```
//!
//! Far out, the cost depends on the number of cells and threads, and not on the number of states: the
//! busiest threads are added up.

use crate::index::Index;
use crate::index::series::Window;
use crate::index::threads::ThreadIndex;

/// The width of a cell. Cells that are wider than a pixel need fewer blocks of the tracks of threads.
const CELL_PIXELS: u64 = 4;
/// The most cells; a window has at most 4,096 pixels.
const MAX_CELLS: usize = 1 << 11;

/// A part of the track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessSegment {
    pub(super) start: i64,
    pub(super) end: i64,
    /// The thread that ran longest.
    pub(super) thread: ThreadIndex,
    /// States of the threads in the segment; 1 if one thread ran all the time.
    pub(super) count: u64,
    /// Time that all threads ran, which is more than the width if they ran at the same time.
    pub(super) busy_ns: u64,
}

/// What happens in a cell, with the thread that ran longest so far.
#[derive(Clone, Copy, Default)]
struct Cell {
    busy_ns: u64,
    count: u64,
    thread: ThreadIndex,
    thread_ns: u64,
}

/// Adds up the busiest threads of a process in a window. Cells in which no thread ran are left out.
pub(super) fn merge_process(index: &Index, process: u32, window: Window) -> Vec<ProcessSegment> {
    let Some(process) = index.threads.processes.get(process as usize) else { return Vec::new() };
    let cell_ns = window.pixel_ns.saturating_mul(CELL_PIXELS).max(1);
    let offset_of = |time: i64| u64::try_from(time.saturating_sub(window.from)).unwrap_or(0);
    let width = offset_of(window.to);
    let cell_of = |offset: u64| usize::try_from(offset / cell_ns).unwrap_or(usize::MAX);
    let mut cells = vec![Cell::default(); cell_of(width).saturating_add(1).min(MAX_CELLS)];
    let mut own: Vec<u64> = Vec::new();
    for number in &process.busiest {
        let Some(thread) = index.threads.get(*number) else { continue };
        own.clear();
        own.resize(cells.len(), 0);
        for segment in
            thread.states_or_estimates().segments(Window { pixel_ns: cell_ns, ..window }, &index.store)
        {
            let [_, running, ..] = segment.totals;
            let Ok(running) = u64::try_from(running) else { continue };
            let whole = segment.end.saturating_sub(segment.start).unsigned_abs().max(1);
            let (start, end) = (offset_of(segment.start), offset_of(segment.end).min(width));
            for at in cell_of(start)..=cell_of(end) {
                let (Some(cell), Some(own)) = (cells.get_mut(at), own.get_mut(at)) else { break };
                let first = (at as u64).saturating_mul(cell_ns);
                let last = first.saturating_add(cell_ns);
                let overlap = end.min(last).saturating_sub(start.max(first));
                let share = u128::from(running) * u128::from(overlap) / u128::from(whole);
                *own = own.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
                cell.count = cell.count.saturating_add(u64::from(overlap > 0) * segment.count);
            }
        }
        for (cell, own) in cells.iter_mut().zip(&own) {
            cell.busy_ns = cell.busy_ns.saturating_add(*own);
            if *own > cell.thread_ns {
                (cell.thread, cell.thread_ns) = (*number, *own);
            }
        }
    }
    let mut segments: Vec<ProcessSegment> = Vec::new();
    for (number, cell) in (0_u64..).zip(&cells).filter(|(_, cell)| cell.busy_ns > 0) {
        let offset = number.saturating_mul(cell_ns);
        let start = window.from.saturating_add_unsigned(offset);
        let end = start.saturating_add_unsigned(cell_ns).min(window.to);
        let is_full = cell.count == 1 && cell.busy_ns >= end.saturating_sub(start).unsigned_abs();
        match segments.last_mut() {
            Some(last) if is_full && last.count == 1 && last.end == start && last.thread == cell.thread => {
                (last.end, last.busy_ns) = (end, last.busy_ns.saturating_add(cell.busy_ns));
            }
            _ => segments.push(ProcessSegment {
                start,
                end,
                thread: cell.thread,
                count: if is_full { 1 } else { cell.count.max(2) },
                busy_ns: cell.busy_ns,
            }),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::kernel_trace::{KernelWriter, Switch, WAITING};
    use crate::probe::build_view;

    /// On processor 0, thread 71 runs from 100,000 to 300,000 ns, and 72 from 300,000 to 400,000. On
    /// processor 1, thread 73 runs from 200,000 to 400,000, and 81 of another process from then on.
    const SWITCHES: [(u16, i64, u32, u32); 6] = [
        (0, 1000, 0, 71),
        (1, 2000, 0, 73),
        (0, 3000, 71, 72),
        (0, 4000, 72, 0),
        (1, 4000, 73, 81),
        (1, 5000, 81, 0),
    ];

    #[test]
    fn threads_of_a_process_are_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.etl");
        let mut writer = KernelWriter::create(&path, 2).unwrap();
        for (pid, tids) in [(70, &[71, 72, 73][..]), (80, &[81])] {
            writer.put_process(pid, &format!("app-{pid}.exe"), "").unwrap();
            tids.iter().for_each(|tid| writer.put_thread(pid, *tid).unwrap());
        }
        for (cpu, time, old_tid, new_tid) in SWITCHES {
            let switch = Switch { new_tid, old_tid, old_state: WAITING, wait_reason: 6 };
            writer.put_switch(cpu, time, switch).unwrap();
        }
        writer.finish(10_000, 0).unwrap();
        let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
        let index = view.index();
        let process_of = |pid| {
            let position = index.threads.processes.iter().position(|process| process.pid == pid).unwrap();
            u32::try_from(position).unwrap()
        };
        let merge = |pid, to, pixel_ns| {
            let segments = merge_process(&index, process_of(pid), Window { from: 0, to, pixel_ns });
            let tid = |thread| index.threads.get(thread).unwrap().tid;
            let describe = |s: &ProcessSegment| (s.start, s.end, tid(s.thread), s.count, s.busy_ns);
            segments.iter().map(describe).collect::<Vec<_>>()
        };
        // Cells of 50,000 ns.
        let near = merge(70, 500_000, 12_500);
        assert_eq!(near[0], (100_000, 200_000, 71, 1, 100_000));
        assert!(near[1..].iter().all(|segment| segment.3 > 1), "{near:?}");
        assert_eq!(near.iter().map(|segment| segment.4).sum::<u64>(), 500_000);
        assert!(near.iter().all(|segment| segment.0 >= 100_000 && segment.1 <= 400_000), "{near:?}");
        // One cell: 71 ran as long as 73, and has the lower index.
        let [far] = merge(70, 500_000, 125_000)[..] else { panic!("there is one cell") };
        assert_eq!((far.0, far.1, far.2, far.4), (0, 500_000, 71, 500_000));
        // A part of a run.
        assert_eq!(merge(80, 450_000, 100_000), [(400_000, 450_000, 81, 1, 50_000)]);
        assert!(merge_process(&index, u32::MAX, Window { from: 0, to: 1, pixel_ns: 1 }).is_empty());
    }

    #[test]
    fn windows_of_any_size_are_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.etl");
        let layout = crate::kernel_trace::KernelTraceLayout {
            bytes: 512 << 10,
            cpus: 2,
            processes: 3,
            threads: 4,
            name_part: "",
        };
        crate::kernel_trace::write(&path, layout).unwrap();
        let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
        let index = view.index();
        let end = index.end();
        for (number, process) in (0_u32..).zip(&index.threads.processes) {
            let window = Window { from: 0, to: end, pixel_ns: end.unsigned_abs().div_ceil(1000) };
            let busy: u64 = merge_process(&index, number, window).iter().map(|s| s.busy_ns).sum();
            // Shares of a cell are rounded down.
            let expected = process.running_ns;
            assert!(busy <= expected && busy >= expected - expected / 100, "{busy} of {expected}");
            for window in [
                Window { from: i64::MIN, to: i64::MAX, pixel_ns: 1 },
                Window { from: i64::MIN, to: i64::MAX, pixel_ns: u64::MAX },
                Window { from: end, to: end, pixel_ns: 1 },
                Window { from: end, to: 0, pixel_ns: 0 },
            ] {
                assert!(merge_process(&index, number, window).len() <= MAX_CELLS);
            }
        }
    }
}
