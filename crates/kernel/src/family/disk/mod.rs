//! Disk requests: when a driver gets one, when it has done it, and where one is split.
//!
//! ```text
//!   block:block_getrq        dev, rwbs: with a flush  ──▶ (who asks for it: the driver gets it from a worker) ──▶ Flushes
//!   block:block_rq_issue     dev, sector, bytes, rwbs ──▶ 0x010C, 0x010D, 0x010F start of a read, write, flush ──▶ Requests
//!   block:block_rq_requeue   dev, sector, rwbs        ──▶ (it will be issued again: same request)                   │
//!   block:block_rq_complete  dev, sector, nr_sector   ──▶ 0x010A, 0x010B, 0x010E  ◀── response time, thread, Irp ───┘
//!   block:block_split        dev, sector, new_sector  ──▶ 0x1B20
//!
//!   rwbs   [F: flush before] R W D F N Z… [F: unit access forced] [A: read ahead] [S: synchronous] [M: metadata]
//! ```
//!
//! 1. A start and its end have the same `Irp`: a number that is given to the request when it is issued and to no other of the session.
//! 2. The response time is that of the driver and the disk: from the first issue to the completion of the last byte.
//! 3. What was issued before the capture began has no start: its `Irp` and response time are 0, its thread [`NOBODY`].
//! 4. Only what has a published event is told: reads, writes and flushes.
//! 5. The number of a disk is the kernel's own of the device, major << 20 | minor: always that of the whole disk, as requests have it, and the one by which the
//!    configuration events name it.
//! 6. A completion of nothing that nobody has issued is no operation: the kernel tells the end of a flush twice, the second time as that of the empty write which asked for it.
//! 7. Where records were lost, all that is under way is forgotten: a request whose end was lost would be taken for the next one at its place.

mod flushes;
mod requests;

use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::out::Out;
use crate::spec::{Event, Spec};
use crate::state::State as All;

use flushes::Flushes;
use requests::{Key, Request, Requests};

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    requests: Requests,
    flushes: Flushes,
}

/// A thread that nobody told of.
const NOBODY: u32 = u32::MAX;

const READ: u16 = 0x010A;
const WRITE: u16 = 0x010B;
const READ_INIT: u16 = 0x010C;
const WRITE_INIT: u16 = 0x010D;
const FLUSH: u16 = 0x010E;
const FLUSH_INIT: u16 = 0x010F;
const SPLIT: u16 = 0x1B20;

/// Version of all of them but the split.
const VERSION: u8 = 3;
const SPLIT_VERSION: u8 = 2;
/// Sectors of the block layer have 512 bytes whatever the disk's have.
const SECTOR_SHIFT: u32 = 9;

/// Fields that all rows of requests begin with, by their place.
const DEV: usize = 0;
const SECTOR: usize = 1;
const NR_SECTOR: usize = 2;
const RWBS: usize = 3;
const IOPRIO: usize = 4;
/// Of an issue.
const BYTES: usize = 5;
/// Of a completion.
const ERROR: usize = 5;
/// Of a split.
const NEW_SECTOR: usize = 2;

/// Of a request that asks for a flush.
const ASKED_RWBS: usize = 1;

pub(crate) static SPECS: &[Spec] = &[
    Spec {
        filter: Some("rwbs ~ \"F*\""),
        ..Spec::tracepoint(
            ("block", "block_getrq"),
            &[Group::DISK_IO, Group::DISK_IO_INIT],
            &[],
            &["dev", "rwbs"],
            asked,
        )
    },
    Spec::tracepoint(
        ("block", "block_rq_issue"),
        &[Group::DISK_IO, Group::DISK_IO_INIT],
        &[READ_INIT, WRITE_INIT, FLUSH_INIT],
        &["dev", "sector", "nr_sector", "rwbs", "?ioprio", "bytes"],
        issued,
    ),
    Spec::tracepoint(
        ("block", "block_rq_requeue"),
        &[Group::DISK_IO, Group::DISK_IO_INIT],
        &[],
        &["dev", "sector", "nr_sector", "rwbs"],
        requeued,
    ),
    Spec::tracepoint(
        ("block", "block_rq_complete"),
        &[Group::DISK_IO, Group::DISK_IO_INIT],
        &[READ, WRITE, FLUSH],
        &["dev", "sector", "nr_sector", "rwbs", "?ioprio", "?error"],
        completed,
    ),
    Spec::tracepoint(
        ("block", "block_split"),
        &[Group::SPLIT_IO],
        &[SPLIT],
        &["dev", "sector", "new_sector"],
        split,
    ),
];

/// What a request does, as far as there are events for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Read,
    Write,
    Flush,
}

impl Kind {
    /// What the letters of a request say, and whether somebody waits for it.
    fn of(rwbs: &[u8]) -> Option<(Self, bool)> {
        let (first, rest) = rwbs.split_first()?;
        // A flush before something else; a bare flush may have that letter twice.
        let (first, rest) = match rest.split_first() {
            Some((next @ (b'R' | b'W' | b'D' | b'F' | b'N' | b'Z'), rest)) if *first == b'F' => (next, rest),
            _ => (first, rest),
        };
        let kind = match (first, rest.first()) {
            (b'R', _) => Self::Read,
            // A write of a zone, which is appended where the zone ends.
            (b'W', _) | (b'Z', Some(b'A')) => Self::Write,
            (b'F', _) => Self::Flush,
            _ => return None,
        };
        Some((kind, rest.contains(&b'S')))
    }

    const fn start(self) -> u16 {
        match self {
            Self::Read => READ_INIT,
            Self::Write => WRITE_INIT,
            Self::Flush => FLUSH_INIT,
        }
    }
}

/// Records were lost: what is known may be over.
pub(crate) fn forget(state: &mut All) {
    state.disks.requests.forget();
    state.disks.flushes.forget();
}

/// The request that an event is about; `None`: of a kind that is not told.
fn key_of(event: &Event<'_>) -> Option<(Key, bool)> {
    let (kind, is_sync) = Kind::of(event.text(RWBS))?;
    // A flush has no place; drivers differ in what they leave there.
    let sector = if kind == Kind::Flush { 0 } else { event.u64(SECTOR) };
    Some((Key { dev: event.u32(DEV), sector, kind }, is_sync))
}

fn asked(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    if event.text(ASKED_RWBS).first() == Some(&b'F') {
        state.disks.flushes.ask(event.u32(DEV), event.sample.tid);
    }
}

fn issued(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let Some((key, is_sync)) = key_of(event) else { return };
    let (time, driver) = (event.sample.time, event.sample.tid);
    let thread = if key.kind == Kind::Flush { state.disks.flushes.issue(key.dev) } else { None };
    let thread = thread.unwrap_or(driver);
    let flags = flags(is_sync, event.has(IOPRIO).then(|| event.u64(IOPRIO)));
    let request = Request::new(&key, event.u32(BYTES), flags, time, thread);
    let Some(irp) = state.disks.requests.issue(key, request) else { return };
    if state.groups.has(Group::DISK_IO_INIT) {
        let mut payload = out.payload();
        payload.put_u64(irp).put_u32(thread);
        out.system(key.kind.start(), VERSION, (event.sample.pid, driver), payload);
    }
}

fn requeued(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    if let Some((key, _)) = key_of(event) {
        state.disks.requests.requeue(&key);
    }
}

fn completed(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let Some((key, is_sync)) = key_of(event) else { return };
    let bytes = event.u32(NR_SECTOR).checked_shl(SECTOR_SHIFT).unwrap_or(0);
    let is_failed = event.number(ERROR) != 0;
    let request = match state.disks.requests.complete(&key, bytes, is_failed) {
        requests::Completed::Whole(request) => request,
        requests::Completed::Part => return,
        requests::Completed::Unknown if bytes == 0 && key.kind != Kind::Flush => return,
        requests::Completed::Unknown => {
            let flags = flags(is_sync, event.has(IOPRIO).then(|| event.u64(IOPRIO)));
            let mut request = Request::new(&key, bytes, flags, event.sample.time, NOBODY);
            request.done = if is_failed { 0 } else { bytes };
            request
        }
    };
    if state.groups.has(Group::DISK_IO) {
        let response = out.clock.ticks(event.sample.time.saturating_sub(request.issued));
        tell(&key, &request, response, out);
    }
}

/// Tells the end of a request.
fn tell(key: &Key, request: &Request, response: u64, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(key.dev).put_u32(request.flags);
    if key.kind == Kind::Flush {
        payload.put_u64(response).put_u64(request.irp).put_u32(request.thread);
        out.perfinfo(FLUSH, VERSION, payload);
        return;
    }
    payload.put_u32(request.done).put_u32(0);
    payload.put_u64(request.first.checked_shl(SECTOR_SHIFT).unwrap_or(0));
    // Which file a request is for, the block layer does not know.
    payload.put_u64(0).put_u64(request.irp).put_u64(response).put_u32(request.thread);
    out.perfinfo(if key.kind == Kind::Read { READ } else { WRITE }, VERSION, payload);
}

/// Flags of a request, and its priority in bits 17 to 19.
fn flags(is_sync: bool, priority: Option<u64>) -> u32 {
    const SYNCHRONOUS: u32 = 4;
    const PRIORITY_SHIFT: u32 = 17;
    const VERY_LOW: u32 = 1;
    const NORMAL: u32 = 3;
    const HIGH: u32 = 4;
    // The class is in the highest three of 16 bits: none, real time, best effort, idle.
    let priority = match priority.map(|it| (it >> 13) & 7) {
        Some(0 | 2) => NORMAL,
        Some(1) => HIGH,
        Some(3) => VERY_LOW,
        _ => 0,
    };
    (priority << PRIORITY_SHIFT) | if is_sync { SYNCHRONOUS } else { 0 }
}

/// A request was too large: its first part goes ahead, the rest follows as one of its own.
fn split(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let dev = event.u32(DEV);
    let parent = state.disks.requests.promise(dev, event.u64(NEW_SECTOR));
    let child = state.disks.requests.promise(dev, event.u64(SECTOR));
    let mut payload = out.payload();
    payload.put_u64(parent).put_u64(child);
    out.perfinfo(SPLIT, SPLIT_VERSION, payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_a_request_say_what_it_does() {
        let kind = |text: &str| Kind::of(text.as_bytes());
        assert_eq!(kind("R"), Some((Kind::Read, false)));
        assert_eq!(kind("RA"), Some((Kind::Read, false)));
        assert_eq!(kind("RSM"), Some((Kind::Read, true)));
        assert_eq!(kind("WS"), Some((Kind::Write, true)));
        assert_eq!(kind("FWFSM"), Some((Kind::Write, true)));
        assert_eq!(kind("F"), Some((Kind::Flush, false)));
        assert_eq!(kind("FF"), Some((Kind::Flush, false)));
        assert_eq!(kind("FS"), Some((Kind::Flush, true)));
        assert_eq!(kind("ZA"), Some((Kind::Write, false)));
        for nothing in ["", "D", "DE", "DS", "FD", "N", "NS", "ZR", "?"] {
            assert_eq!(kind(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn priorities_are_those_of_the_class() {
        assert_eq!(flags(true, Some(0)), 3 << 17 | 4);
        assert_eq!(flags(false, Some(1 << 13 | 4)), 4 << 17);
        assert_eq!(flags(false, Some(2 << 13 | 7)), 3 << 17);
        assert_eq!(flags(false, Some(3 << 13)), 1 << 17);
        assert_eq!(flags(false, None), 0);
    }
}
