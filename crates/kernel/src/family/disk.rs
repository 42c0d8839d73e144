//! Disk requests: issue to the driver, completion, and splits.
//!
//! ```text
//!   block:block_getrq        dev, rwbs with a flush   ──▶ the requesting thread ──▶ Flushes
//!                            (a worker issues the flush to the driver)
//!   block:block_rq_issue     dev, sector, bytes, rwbs ──▶ 0x010C, 0x010D, 0x010F
//!                            start of a read, write, flush ──▶ PendingRequests
//!   block:block_rq_requeue   dev, sector, rwbs        ──▶ (issued again later: same request)
//!   block:block_rq_complete  dev, sector, nr_sector   ──▶ 0x010A, 0x010B, 0x010E
//!                            response time, thread, Irp ◀── PendingRequests
//!   block:block_split        dev, sector, new_sector  ──▶ 0x1B20
//!
//!   rwbs   [F: flush before] operation: R, W, D, F, N or Z… [F: forced unit access]
//!          [A: read ahead] [S: synchronous] [M: metadata]
//! ```
//!
//! 1. A start and its end have the same `Irp`: a number that the request gets when it is issued
//!    or split off, and that no other request of the session gets.
//! 2. The response time is that of driver and disk: from the first issue to the completion of the
//!    last byte.
//! 3. A request issued before the capture began has no start event: its `Irp` and response time are
//!    0, its thread is [`UNKNOWN_THREAD`].
//! 4. Only requests with a documented event are written: reads, writes and flushes.
//! 5. The number of a disk is the kernel's device number, major << 20 | minor. Requests have the
//!    number of the entire disk, never that of a partition. The configuration events use the same
//!    number.
//! 6. A completion of 0 bytes of a read or write that was not issued is ignored: the kernel reports
//!    the end of a flush a second time, for the empty write that requested the flush.
//! 7. With a scope, all events of a request belong to the process that issued it or, for a flush,
//!    requested it. Requests that kernel threads issue (write-back) and requests whose issue was
//!    not captured cannot be attributed to a process.
//! 8. After lost records all pending requests are dropped: if the end of a request was lost, the
//!    next request at its sector would be taken for it.

mod flushes;
mod requests;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use self::flushes::Flushes;
use self::requests::{
    DiskRequest, PendingRequests, RequestCompletion, RequestKey, RequestKind, SECTOR_SHIFT,
};
use super::{Context, EventFamily, Row};
use crate::groups::Group;
use crate::out::Out;
use crate::scope;
use crate::spec::SampleEvent;
use crate::tasks::TaskIds;

/// The disk family: requests and flushes that are pending.
#[derive(Debug, Default)]
pub(crate) struct DiskFamily {
    requests: PendingRequests,
    flushes: Flushes,
}

/// The thread of a request whose issue was not captured.
const UNKNOWN_THREAD: u32 = u32::MAX;

const START_HOOKS: &[u16] = &[hook::DISK_READ_INIT, hook::DISK_WRITE_INIT, hook::DISK_FLUSH_INIT];
const START_LAYOUT: PayloadLayout = PayloadLayout::shared(START_HOOKS, 3);
const TRANSFER_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::DISK_READ, hook::DISK_WRITE], 3);
const FLUSH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::DISK_FLUSH, 3);
const SPLIT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SPLIT_IO, 2);

// Indexes of the fields of issues, requeues and completions.
const DEV_FIELD: usize = 0;
const SECTOR_FIELD: usize = 1;
const NR_SECTOR_FIELD: usize = 2;
const RWBS_FIELD: usize = 3;
const IOPRIO_FIELD: usize = 4;
/// Index of a field of an issue.
const BYTES_FIELD: usize = 5;
/// Index of a field of a completion.
const ERROR_FIELD: usize = 5;
/// Index of a field of a split.
const NEW_SECTOR_FIELD: usize = 2;

/// Index of a field of `block_getrq`.
const GETRQ_RWBS_FIELD: usize = 1;

/// Groups whose events are made from the requests of disks.
const REQUEST_GROUPS: &[Group] = &[Group::DISK_IO, Group::DISK_IO_INIT];

static ROWS: &[Row<DiskFamily>] = &[
    Row::tracepoint(("block", "block_getrq"), REQUEST_GROUPS, &[], &["dev", "rwbs"], DiskFamily::on_getrq)
        .with_filter("rwbs ~ \"F*\""),
    Row::tracepoint(
        ("block", "block_rq_issue"),
        REQUEST_GROUPS,
        START_HOOKS,
        &["dev", "sector", "nr_sector", "rwbs", "?ioprio", "bytes"],
        DiskFamily::on_issue,
    ),
    Row::tracepoint(
        ("block", "block_rq_requeue"),
        REQUEST_GROUPS,
        &[],
        &["dev", "sector", "nr_sector", "rwbs"],
        DiskFamily::on_requeue,
    ),
    Row::tracepoint(
        ("block", "block_rq_complete"),
        REQUEST_GROUPS,
        &[hook::DISK_READ, hook::DISK_WRITE, hook::DISK_FLUSH],
        &["dev", "sector", "nr_sector", "rwbs", "?ioprio", "?error"],
        DiskFamily::on_complete,
    ),
    Row::tracepoint(
        ("block", "block_split"),
        &[Group::SPLIT_IO],
        &[hook::SPLIT_IO],
        &["dev", "sector", "new_sector"],
        DiskFamily::on_split,
    ),
];

impl EventFamily for DiskFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// A request completes in the context of any process.
    fn handles_all_processes(&self) -> bool {
        true
    }

    fn forget_after_loss(&mut self) {
        self.requests.clear();
        self.flushes.clear_requests();
    }
}

/// Returns the key of the request that an event is about, and whether it is synchronous; `None` if
/// there are no events for its kind.
fn parse_key(event: &SampleEvent<'_>) -> Option<(RequestKey, bool)> {
    let (kind, is_sync) = RequestKind::parse(event.text(RWBS_FIELD))?;
    // A flush has no sector; drivers differ in what they leave there.
    let sector = if kind == RequestKind::Flush { 0 } else { event.u64(SECTOR_FIELD) };
    Some((RequestKey { dev: event.u32(DEV_FIELD), sector, kind }, is_sync))
}

impl DiskFamily {
    fn on_getrq(&mut self, event: &SampleEvent<'_>, _: &mut Context, _: &mut Out<'_>) {
        if event.text(GETRQ_RWBS_FIELD).first() == Some(&b'F') {
            self.flushes.add_request(event.u32(DEV_FIELD), event.sample.tid);
        }
    }

    fn on_issue(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let Some((key, is_sync)) = parse_key(event) else { return };
        let (time, issuer_tid) = (event.sample.time, event.sample.tid);
        let thread = if key.kind == RequestKind::Flush { self.flushes.take_requester(key.dev) } else { None };
        let thread = thread.unwrap_or(issuer_tid);
        let flags = request_flags(is_sync, event.has(IOPRIO_FIELD).then(|| event.u64(IOPRIO_FIELD)));
        let mut request = DiskRequest::new(&key, event.u32(BYTES_FIELD), flags, time, thread);
        let is_issuer = thread == issuer_tid;
        request.is_in_scope = if is_issuer { out.is_in_scope } else { context.is_thread_in_scope(thread) };
        request.is_attributed = !(is_issuer && scope::is_kernel_thread(&context.tasks, event.sample.pid));
        out.is_in_scope = request.is_in_scope;
        let Some(irp) = self.requests.issue(key, request) else { return };
        if context.groups.has(Group::DISK_IO_INIT) {
            let mut payload = out.new_payload();
            put_kernel_event!(&mut payload, START_LAYOUT, { Irp: irp, IssuingThreadId: thread });
            let issuer = TaskIds { pid: event.sample.pid, tid: issuer_tid };
            out.write_system(start_hook(key.kind), START_LAYOUT.version(), issuer, payload);
        }
    }

    fn on_requeue(&mut self, event: &SampleEvent<'_>, _: &mut Context, _: &mut Out<'_>) {
        if let Some((key, _)) = parse_key(event) {
            self.requests.requeue(&key);
        }
    }

    fn on_complete(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let Some((key, is_sync)) = parse_key(event) else { return };
        let bytes = event.u32(NR_SECTOR_FIELD).checked_shl(SECTOR_SHIFT).unwrap_or(0);
        let is_failed = event.number(ERROR_FIELD) != 0;
        let request = match self.requests.complete(&key, bytes, is_failed) {
            RequestCompletion::Done(request) => request,
            RequestCompletion::Partial => return,
            RequestCompletion::Unknown if bytes == 0 && key.kind != RequestKind::Flush => return,
            RequestCompletion::Unknown => {
                let flags = request_flags(is_sync, event.has(IOPRIO_FIELD).then(|| event.u64(IOPRIO_FIELD)));
                let mut request = DiskRequest::new(&key, bytes, flags, event.sample.time, UNKNOWN_THREAD);
                request.done_bytes = if is_failed { 0 } else { bytes };
                request
            }
        };
        out.is_in_scope = context.scope.is_none() || request.is_in_scope;
        if !out.is_in_scope && !request.is_attributed {
            context.count_unattributed();
        }
        if context.groups.has(Group::DISK_IO) {
            let response_ticks = out.clock.ticks(event.sample.time.saturating_sub(request.issued_ns));
            write_completion(&key, &request, response_ticks, out);
        }
    }

    /// Handles the split of a request that was too large: its first part (the child) is issued
    /// now; the rest (the parent) continues at `new_sector` as another request.
    fn on_split(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        let dev = event.u32(DEV_FIELD);
        let parent = self.requests.reserve_irp(dev, event.u64(NEW_SECTOR_FIELD));
        let child = self.requests.reserve_irp(dev, event.u64(SECTOR_FIELD));
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, SPLIT_LAYOUT, { ParentIrp: parent, ChildIrp: child });
        out.write_perfinfo(hook::SPLIT_IO, SPLIT_LAYOUT.version(), payload);
    }
}

const fn start_hook(kind: RequestKind) -> u16 {
    match kind {
        RequestKind::Read => hook::DISK_READ_INIT,
        RequestKind::Write => hook::DISK_WRITE_INIT,
        RequestKind::Flush => hook::DISK_FLUSH_INIT,
    }
}

/// Writes the end of a request.
fn write_completion(key: &RequestKey, request: &DiskRequest, response_ticks: u64, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    let hook = match key.kind {
        RequestKind::Flush => {
            put_kernel_event!(&mut payload, FLUSH_LAYOUT, {
                DiskNumber: key.dev,
                IrpFlags: request.flags,
                HighResResponseTime: response_ticks,
                Irp: request.irp,
                IssuingThreadId: request.thread,
            });
            return out.write_perfinfo(hook::DISK_FLUSH, FLUSH_LAYOUT.version(), payload);
        }
        RequestKind::Read => hook::DISK_READ,
        RequestKind::Write => hook::DISK_WRITE,
    };
    // The block layer does not know which file a request is for.
    put_kernel_event!(&mut payload, TRANSFER_LAYOUT, {
        DiskNumber: key.dev,
        IrpFlags: request.flags,
        TransferSize: request.done_bytes,
        ByteOffset: request.first_sector.checked_shl(SECTOR_SHIFT).unwrap_or(0),
        Irp: request.irp,
        HighResResponseTime: response_ticks,
        IssuingThreadId: request.thread,
    });
    out.write_perfinfo(hook, TRANSFER_LAYOUT.version(), payload);
}

/// Returns the flags of a request, with its priority in bits 17 to 19.
fn request_flags(is_sync: bool, priority: Option<u64>) -> u32 {
    const IRP_SYNCHRONOUS: u32 = 4;
    const PRIORITY_SHIFT: u32 = 17;
    const PRIORITY_VERY_LOW: u32 = 1;
    const PRIORITY_NORMAL: u32 = 3;
    const PRIORITY_HIGH: u32 = 4;
    // The priority class is in the highest three of 16 bits: none, real time, best effort, idle.
    let priority = match priority.map(|ioprio| (ioprio >> 13) & 7) {
        Some(0 | 2) => PRIORITY_NORMAL,
        Some(1) => PRIORITY_HIGH,
        Some(3) => PRIORITY_VERY_LOW,
        _ => 0,
    };
    (priority << PRIORITY_SHIFT) | if is_sync { IRP_SYNCHRONOUS } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::testing::{assert_written, run_row, run_row_with_numbers};
    use crate::groups::Groups;
    use crate::record::PerfSample;

    #[test]
    fn payloads_have_the_documented_layout() {
        let (mut disks, mut context) = (DiskFamily::default(), Context::default());
        context.groups = Groups::new(REQUEST_GROUPS);
        let write = |out: &mut Out<'_>| {
            let mut run = |name: &str, time, rwbs: &[u8], bytes_or_error: u32| {
                let sample = PerfSample { time, pid: 0x0A11, tid: 0x0A12, ..PerfSample::default() };
                // dev, sector; nr_sector, rwbs, ioprio (best effort), bytes or error.
                let fields = [&(8_u32 << 20).to_le_bytes()[..], &0x1234_u64.to_le_bytes()];
                let last = bytes_or_error.to_le_bytes();
                let fields = [&fields[..], &[&8_u32.to_le_bytes(), rwbs, &[0, 0x40], &last]];
                run_row(&mut disks, &mut context, name, sample, &fields.concat(), out);
            };
            for rwbs in [&b"RS\0"[..], b"W\0\0", b"FF\0"] {
                run("block:block_rq_issue", 0x0111, rwbs, 4096);
                run("block:block_rq_complete", 0x0333, rwbs, 0);
            }
            run("block:block_rq_complete", 0x0444, b"R\0\0", 0);
            let (sample, numbers) = (PerfSample::default(), [8 << 20, 0x5000, 0x6000]);
            run_row_with_numbers(&mut disks, &mut context, "block:block_split", sample, &numbers, out);
        };
        // Hook id, version, payload.
        assert_written(
            write,
            &[
                "010c 03 0100000000000000 120a0000",
                "010a 03 00008000 04000600 00100000 00000000 0068240000000000 0000000000000000 \
                 0100000000000000 2202000000000000 120a0000",
                "010d 03 0200000000000000 120a0000",
                "010b 03 00008000 00000600 00100000 00000000 0068240000000000 0000000000000000 \
                 0200000000000000 2202000000000000 120a0000",
                "010f 03 0300000000000000 120a0000",
                "010e 03 00008000 00000600 2202000000000000 0300000000000000 120a0000",
                "010a 03 00008000 00000600 00100000 00000000 0068240000000000 0000000000000000 \
                 0000000000000000 0000000000000000 ffffffff",
                "1b20 02 0400000000000000 0500000000000000",
            ],
        );
    }

    #[test]
    fn priority_follows_the_class() {
        assert_eq!(request_flags(true, Some(0)), 3 << 17 | 4);
        assert_eq!(request_flags(false, Some(1 << 13 | 4)), 4 << 17);
        assert_eq!(request_flags(false, Some(2 << 13 | 7)), 3 << 17);
        assert_eq!(request_flags(false, Some(3 << 13)), 1 << 17);
        assert_eq!(request_flags(false, None), 0);
    }
}
