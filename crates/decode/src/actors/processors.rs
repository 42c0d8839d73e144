//! Tracks the thread that runs on each processor, by context switches.
//!
//! ```text
//!   processor 0   ──?──┤ A ─▶ B ├──── B ────┤ B ─▶ C ├──── C ──▶
//!                  A: the thread that the first switch left    an event here is about C
//! ```
//!
//! Invariants:
//! 1. Before the first switch of a processor, the thread that this switch leaves was running.
//! 2. After a switch that does not name its new thread, no thread is known until the next switch.
//! 3. The memory is bounded: a few bytes for each 16-bit processor number.

use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::wire;

/// The size of two thread ids in bytes. The payload of every version of a context switch begins
/// with the ids of the new and the old thread.
const THREAD_IDS_BYTES: usize = 8;

/// A thread, and the time at which it started or stopped running.
#[derive(Clone, Copy, Debug)]
struct ThreadSwitch {
    time: i64,
    thread: u32,
}

/// The first and the last switch of one processor.
#[derive(Clone, Copy, Debug)]
struct ProcessorSwitches {
    /// The thread that the first switch left.
    first: ThreadSwitch,
    /// The thread that the last switch in time order went to.
    last: ThreadSwitch,
}

/// The processors of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Processors(Vec<Option<ProcessorSwitches>>);

impl Processors {
    /// Records a context switch and ignores other records. With `is_read_ahead`, the switch is read
    /// ahead of time order, and only the first switch of a processor is recorded.
    #[inline]
    pub(super) fn record_switch(&mut self, record: &Record<'_>, is_read_ahead: bool) {
        if record.hook() != Some(hook::CONTEXT_SWITCH) {
            return;
        }
        let Some(ids) = record.payload().first_chunk::<THREAD_IDS_BYTES>() else { return };
        let (time, cpu) = (record.time(), usize::from(record.cpu()));
        let [new, old] = [0, 4].map(|at| ThreadSwitch { time, thread: wire::u32_at(ids, at) });
        if self.0.len() <= cpu {
            self.0.resize(cpu.saturating_add(1), None);
        }
        match self.0.get_mut(cpu) {
            Some(Some(switches)) if !is_read_ahead => switches.last = new,
            Some(slot @ None) => *slot = Some(ProcessorSwitches { first: old, last: new }),
            _ => {}
        }
    }

    /// Returns the thread that runs on a processor at a time from the last switch on, or before the
    /// first switch. Returns `None` for a time between these two switches.
    pub(super) fn running_thread(&self, cpu: u16, time: i64) -> Option<u32> {
        let ProcessorSwitches { first, last } = (*self.0.get(usize::from(cpu))?)?;
        let switch = match time {
            _ if last.time <= time => last,
            _ if time < first.time => first,
            _ => return None,
        };
        Some(switch.thread).filter(|thread| *thread != NO_ID)
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::header::perfinfo::PerfInfoHeader;

    use super::*;

    fn record_test_switch(
        processors: &mut Processors,
        cpu: u16,
        time: i64,
        (old, new): (u32, u32),
        is_read_ahead: bool,
    ) {
        let mut bytes = Vec::new();
        let payload = [new.to_le_bytes(), old.to_le_bytes(), [0; 4], [0; 4], [0; 4], [0; 4]].concat();
        PerfInfoHeader { pointer_size: 8, version: 4, hook: hook::CONTEXT_SWITCH, time, counters: &[] }
            .encode(&payload, &mut bytes)
            .unwrap();
        processors.record_switch(&Record::parse(&bytes, cpu).unwrap(), is_read_ahead);
    }

    #[test]
    fn switches_give_the_running_thread() {
        let mut processors = Processors::default();
        for (cpu, time, threads) in [(0, 10, (5, 6)), (0, 20, (6, 7)), (9, 15, (1, 2))] {
            record_test_switch(&mut processors, cpu, time, threads, true);
        }
        assert_eq!(
            (processors.running_thread(0, 9), processors.running_thread(9, 14)),
            (Some(5), Some(1)),
            "before the first switch"
        );
        assert_eq!(
            (processors.running_thread(3, 9), processors.running_thread(10, 9)),
            (None, None),
            "a processor without switches"
        );
        record_test_switch(&mut processors, 0, 10, (5, 6), false);
        assert_eq!((processors.running_thread(0, 10), processors.running_thread(0, 19)), (Some(6), Some(6)));
        record_test_switch(&mut processors, 0, 20, (6, 7), false);
        assert_eq!(
            (processors.running_thread(0, 20), processors.running_thread(0, 15)),
            (Some(7), None),
            "the time lies before the last switch"
        );
        record_test_switch(&mut processors, 0, 10, (5, 6), false);
        assert_eq!(processors.running_thread(0, 11), Some(6), "a second pass over the trace");
        assert_eq!(processors.running_thread(9, 15), Some(2), "another processor");
    }

    #[test]
    fn switch_to_no_thread_leaves_no_running_thread() {
        let mut processors = Processors::default();
        record_test_switch(&mut processors, 0, 10, (NO_ID, 6), false);
        record_test_switch(&mut processors, 0, 20, (6, NO_ID), false);
        assert_eq!((processors.running_thread(0, 5), processors.running_thread(0, 21)), (None, None));
        assert_eq!((processors.0.len(), processors.running_thread(u16::MAX, 0)), (1, None));
    }
}
