//! Facts about events that their classic records lack: the thread, and the start and parent of
//! processes.
//!
//! All tables are bounded by [`MAX_ENTRIES`]; a full table forgets everything.

use std::collections::HashMap;
use std::hash::Hash;

use traceweir_format::header::{Family, NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;
use traceweir_format::wire::{Cursor, u32_at, u64_at};
use traceweir_kernel::{QueuedRecord, now_ns};

/// Maximum number of entries of a table.
const MAX_ENTRIES: usize = 1 << 16;
const NS_PER_UNIT: u64 = 100;
const UNITS_PER_SECOND: u64 = 10_000_000;

/// Facts about one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredFacts {
    pub(super) process_id: u32,
    pub(super) thread_id: u32,
    pub(super) time: FileTime,
    pub(super) create_time: FileTime,
    pub(super) parent_key: u64,
}

/// Converts the kernel's clocks to wall time.
pub(super) struct WallClock {
    now: FileTime,
    now_ns: u64,
    boot: FileTime,
}

impl WallClock {
    pub(super) fn now() -> Self {
        let now = FileTime::now();
        let boottime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(boottime.tv_sec).unwrap_or(0).saturating_mul(UNITS_PER_SECOND);
        let since_boot = seconds.saturating_add(u64::try_from(boottime.tv_nsec).unwrap_or(0) / NS_PER_UNIT);
        let boot = FileTime(now.0.saturating_sub(i64::try_from(since_boot).unwrap_or(i64::MAX)));
        Self { now, now_ns: now_ns(), boot }
    }

    /// Converts `CLOCK_MONOTONIC` in nanoseconds.
    fn at(&self, ns: u64) -> FileTime {
        let units = |ns: u64| i64::try_from(ns / NS_PER_UNIT).unwrap_or(i64::MAX);
        FileTime(match self.now_ns.checked_sub(ns) {
            Some(ago) => self.now.0.saturating_sub(units(ago)),
            None => self.now.0.saturating_add(units(ns.saturating_sub(self.now_ns))),
        })
    }

    /// Converts clock ticks since the boot.
    fn at_ticks(&self, ticks: u64) -> FileTime {
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let units = ticks.saturating_mul(UNITS_PER_SECOND).checked_div(per_second).unwrap_or(0);
        FileTime(self.boot.0.saturating_add(i64::try_from(units).unwrap_or(i64::MAX)))
    }
}

/// A process that runs.
#[derive(Clone, Copy, Debug)]
struct RunningProcess {
    key: u64,
    create_time: FileTime,
}

/// The processes, files and disk requests that later events refer to.
#[derive(Debug, Default)]
pub(super) struct EventTable {
    processes: HashMap<u32, RunningProcess>,
    /// Process and thread that opened a file, by its key.
    file_openers: HashMap<u64, (u32, u32)>,
    /// Process and thread that issued a disk request, by its number.
    disk_issuers: HashMap<u64, (u32, u32)>,
}

fn insert_bounded<K: Hash + Eq, V>(table: &mut HashMap<K, V>, key: K, value: V) {
    if table.len() >= MAX_ENTRIES {
        table.clear();
    }
    table.insert(key, value);
}

impl EventTable {
    /// Updates the tables with a record, and returns the facts about its event.
    pub(super) fn update(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        next: &QueuedRecord,
        wall: &WallClock,
    ) -> StoredFacts {
        let payload = record.payload();
        let (process_id, thread_id) = self.find_thread(hook, record, next);
        let mut facts =
            StoredFacts { process_id, thread_id, time: wall.at(next.raw), ..StoredFacts::default() };
        match hook {
            hook::PROCESS_START | hook::PROCESS_DC_START => {
                // UniqueProcessKey, ProcessId and ParentId.
                let (key, pid, parent) = (u64_at(payload, 0), u32_at(payload, 8), u32_at(payload, 0xC));
                let start_ticks =
                    (hook == hook::PROCESS_DC_START).then(|| read_start_ticks(payload)).flatten();
                facts.create_time = start_ticks.map_or(facts.time, |ticks| wall.at_ticks(ticks));
                facts.parent_key = self.processes.get(&parent).map_or(0, |parent| parent.key);
                let process = RunningProcess { key, create_time: facts.create_time };
                insert_bounded(&mut self.processes, pid, process);
            }
            hook::PROCESS_END => {
                let ended = self.processes.remove(&u32_at(payload, 8));
                let start_ticks = || read_start_ticks(payload).map(|ticks| wall.at_ticks(ticks));
                facts.create_time = match ended {
                    Some(process) => process.create_time,
                    None => start_ticks().unwrap_or_default(),
                };
            }
            _ => {}
        }
        facts
    }

    /// Returns the process and the thread of an event.
    fn find_thread(&mut self, hook: u16, record: &Record<'_>, next: &QueuedRecord) -> (u32, u32) {
        let payload = record.payload();
        let current = (next.origin.process_id, next.origin.thread_id);
        // All headers except PERFINFO contain the ids.
        if record.family() != Family::PerfInfo {
            let ids = (record.process_id(), record.thread_id());
            if matches!(hook, hook::DISK_READ_INIT | hook::DISK_WRITE_INIT | hook::DISK_FLUSH_INIT) {
                insert_bounded(&mut self.disk_issuers, u64_at(payload, 0), ids);
            }
            return ids;
        }
        const UNKNOWN: (u32, u32) = (NO_ID, NO_ID);
        match hook {
            hook::FILE_CREATE => {
                insert_bounded(&mut self.file_openers, u64_at(payload, 8), current);
                current
            }
            hook::FILE_NAME_CREATE => self.file_openers.get(&u64_at(payload, 0)).copied().unwrap_or(UNKNOWN),
            hook::FILE_NAME_DELETE => {
                self.file_openers.remove(&u64_at(payload, 0));
                current
            }
            hook::DISK_READ | hook::DISK_WRITE => {
                // Irp and IssuingThreadId.
                self.find_issuer(u64_at(payload, 0x20), u32_at(payload, 0x30))
            }
            hook::DISK_FLUSH => self.find_issuer(u64_at(payload, 0x10), u32_at(payload, 0x18)),
            // The network may cause an event while another process runs.
            _ if is_of_connection(hook) => match u32_at(payload, 0) {
                process if process == current.0 => current,
                process => (process, NO_ID),
            },
            _ => current,
        }
    }

    /// Returns the process and thread of a disk request.
    fn find_issuer(&mut self, request: u64, thread: u32) -> (u32, u32) {
        match self.disk_issuers.remove(&request) {
            Some((process, issuer)) if issuer == thread => (process, thread),
            _ => (NO_ID, thread),
        }
    }
}

/// Returns whether a payload begins with the process of a connection.
fn is_of_connection(hook: u16) -> bool {
    const TCP_GROUP: u8 = 0x06;
    const UDP_GROUP: u8 = 0x08;
    matches!(hook::group_of(hook), TCP_GROUP | UDP_GROUP) && !matches!(hook, hook::TCP_FAIL | hook::UDP_FAIL)
}

/// Returns the start time of a process in clock ticks since the boot, from the program details.
fn read_start_ticks(payload: &[u8]) -> Option<u64> {
    // Size of the fields before the user.
    const FRONT_BYTES: usize = 0x24;
    const TOKEN_USER_BYTES: usize = 16;
    let mut cursor = Cursor::new("process event", payload);
    cursor.bytes(FRONT_BYTES).ok()?;
    // The user: four zero bytes, or a TOKEN_USER and its SID.
    if u32_at(cursor.rest(), 0) == 0 {
        cursor.u32().ok()?;
    } else {
        cursor.bytes(TOKEN_USER_BYTES).ok()?;
        let part_count = usize::from(*cursor.rest().get(1)?);
        cursor.bytes(part_count.checked_mul(4)?.checked_add(8)?).ok()?;
    }
    // The program.
    cursor.ansi_z();
    // Command line, package and application.
    (0..3).for_each(|_| _ = cursor.wide_z());
    cursor.u64().ok().filter(|ticks| *ticks != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::header::perfinfo::PerfInfoHeader;
    use traceweir_format::header::system::SystemHeader;
    use traceweir_format::wire::Put;
    use traceweir_kernel::RecordOrigin;

    const WALL: WallClock =
        WallClock { now: FileTime(1_000_000), now_ns: 50_000_000, boot: FileTime(400_000) };

    /// Passes a record with a SYSTEM header (with ids) or a PERFINFO header to the table.
    fn update(table: &mut EventTable, hook: u16, ids: Option<(u32, u32)>, payload: &[u8]) -> StoredFacts {
        let mut bytes = Vec::new();
        match ids {
            Some((process_id, thread_id)) => {
                let (time, cpu_times) = (0, Some((0, 0)));
                let header = SystemHeader {
                    pointer_size: 8,
                    version: 4,
                    hook,
                    thread_id,
                    process_id,
                    time,
                    cpu_times,
                };
                header.encode(payload, &mut bytes).unwrap();
            }
            None => {
                let header = PerfInfoHeader { pointer_size: 8, version: 3, hook, time: 0, counters: &[] };
                header.encode(payload, &mut bytes).unwrap();
            }
        }
        let record = Record::parse(&bytes, 0).unwrap();
        let origin = RecordOrigin { cpu: 1, process_id: 70, thread_id: 71 };
        let next = QueuedRecord { length: bytes.len(), raw: 40_000_000, is_stack: false, origin };
        table.update(hook, &record, &next, &WALL)
    }

    fn process(key: u64, pid: u32, parent: u32, ticks: u64) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.put_u64(key).put_u32(pid).put_u32(parent).put(&[0; 20]).put_u32(0);
        payload.put(b"x\0").put(&[0; 6]).put_u64(ticks).put_wide_z("/x");
        payload
    }

    #[test]
    fn processes_have_create_times_and_parents() {
        let mut table = EventTable::default();
        let listed = update(&mut table, hook::PROCESS_DC_START, None, &process(11, 5, 1, 3));
        let per_tick = 10_000_000 / i64::try_from(rustix::param::clock_ticks_per_second()).unwrap();
        assert_eq!(listed.create_time, FileTime(400_000 + 3 * per_tick));
        let started = update(&mut table, hook::PROCESS_START, Some((5, 5)), &process(12, 6, 5, 9));
        // 10 ms before now.
        assert_eq!((started.time, started.create_time), (FileTime(900_000), FileTime(900_000)));
        assert_eq!((started.parent_key, started.process_id, started.thread_id), (11, 5, 5));
        let ended = update(&mut table, hook::PROCESS_END, Some((6, 6)), &process(12, 6, 5, 9));
        assert_eq!(ended.create_time, FileTime(900_000));
        let unknown = update(&mut table, hook::PROCESS_END, Some((6, 6)), &process(12, 6, 5, 9));
        assert_eq!(unknown.create_time, FileTime(400_000 + 9 * per_tick), "from the details");
    }

    #[test]
    fn events_belong_to_the_thread_that_caused_them() {
        let mut table = EventTable::default();
        let ids = |facts: StoredFacts| (facts.process_id, facts.thread_id);
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(ids(update(&mut table, hook::FILE_READ, None, &[0; 44])), (70, 71));
        // The name of a file is confirmed while another thread runs.
        assert_eq!(ids(update(&mut table, hook::FILE_NAME_CREATE, None, &words(&[2]))), (NO_ID, NO_ID));
        update(&mut table, hook::FILE_CREATE, None, &words(&[1, 2]));
        assert_eq!(ids(update(&mut table, hook::FILE_NAME_CREATE, None, &words(&[2]))), (70, 71));
        // A request completes while another thread runs.
        let mut read = words(&[0, 0, 0, 0, 9, 0]);
        read.put_u32(81);
        assert_eq!(ids(update(&mut table, hook::DISK_READ, None, &read)), (NO_ID, 81));
        update(&mut table, hook::DISK_READ_INIT, Some((80, 81)), &words(&[9]));
        assert_eq!(ids(update(&mut table, hook::DISK_READ, None, &read)), (80, 81));
        assert_eq!(ids(update(&mut table, hook::TCP_SEND, None, &70_u32.to_le_bytes())), (70, 71));
        assert_eq!(ids(update(&mut table, hook::TCP_RECEIVE, None, &90_u32.to_le_bytes())), (90, NO_ID));
        assert_eq!(ids(update(&mut table, hook::TCP_FAIL, None, &90_u32.to_le_bytes())), (70, 71));
    }
}
