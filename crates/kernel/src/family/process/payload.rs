//! Payloads of process and thread events.

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;
use traceweir_format::wire::Put;

use crate::out::Out;
use crate::tasks::facts::{self, MemorySizes};
use crate::tasks::{LiveProcess, LiveThread, TaskIds};

/// The layout of a process, whether it starts, runs, ends or has ended.
const PROCESS_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[
        hook::PROCESS_START,
        hook::PROCESS_END,
        hook::PROCESS_DC_START,
        hook::PROCESS_DC_END,
        hook::PROCESS_DEFUNCT,
    ],
    4,
);
const COUNTERS_LAYOUT: PayloadLayout =
    PayloadLayout::shared(&[hook::PROCESS_COUNTERS, hook::PROCESS_COUNTERS_RUNDOWN], 2);
const THREAD_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[hook::THREAD_START, hook::THREAD_END, hook::THREAD_DC_START, hook::THREAD_DC_END],
    3,
);
const THREAD_NAME_LAYOUT: PayloadLayout = PayloadLayout::new(hook::THREAD_SET_NAME, 2);

/// The exit status of a running process.
pub(super) const STILL_ACTIVE: i32 = 259;

// Flags of a process: it has an application id, it belongs to a package.
const HAS_APPLICATION: u32 = 1;
const IS_PACKAGED: u32 = 8;

/// Writes the start or end of a process. `header_ids` are the process and thread that the header
/// of the event names.
pub(super) fn write_process(
    hook: u16,
    header_ids: TaskIds,
    pid: u32,
    process: &LiveProcess,
    status: i32,
    out: &mut Out<'_>,
) {
    let mut payload = out.new_payload();
    put_process(pid, process, status, &mut payload);
    put_details(process, &mut payload, out);
    out.write_system(hook, PROCESS_LAYOUT.version(), header_ids, payload);
}

/// Writes a process of a rundown. The header of this event names no process.
pub(super) fn write_process_rundown(
    hook: u16,
    pid: u32,
    process: &LiveProcess,
    status: i32,
    out: &mut Out<'_>,
) {
    let mut payload = out.new_payload();
    put_process(pid, process, status, &mut payload);
    put_details(process, &mut payload, out);
    out.write_perfinfo(hook, PROCESS_LAYOUT.version(), payload);
}

fn put_process(pid: u32, process: &LiveProcess, status: i32, payload: &mut Vec<u8>) {
    let mut application = String::new();
    process.app.write_application_id(process.inner_pid, &mut application);
    let package = process.app.package.as_str();
    let mut flags = 0;
    if !application.is_empty() {
        flags |= HAS_APPLICATION;
    }
    if !package.is_empty() {
        flags |= IS_PACKAGED;
    }
    let user = process.user.map(Sid::user);
    // Left out, and so 0: `DirectoryTableBase`, because the kernel does not reveal the address.
    put_kernel_event!(
        payload,
        PROCESS_LAYOUT,
        {
            UniqueProcessKey: process.key,
            ProcessId: pid,
            ParentId: process.parent,
            SessionId: process.session,
            ExitStatus: status,
            Flags: flags,
        },
        {
            UserSID: user.as_ref(),
            ImageFileName: process.program.image.as_slice(),
            CommandLine: process.program.command_line.as_str(),
            PackageFullName: package,
            ApplicationId: application.as_str(),
        }
    );
}

/// Appends the program details, if the capture requests them: the start time of the process in
/// clock ticks, and the path of the program.
fn put_details(process: &LiveProcess, payload: &mut Vec<u8>, out: &Out<'_>) {
    if out.extras.has_program_details {
        let program = &process.program;
        let path = if program.path.is_empty() { &program.image } else { &program.path };
        payload.put_u64(process.start_ticks).put_wide_z(&String::from_utf8_lossy(path));
    }
}

/// Writes a start, end or rundown of a thread.
pub(super) fn write_thread(
    hook: u16,
    header_ids: TaskIds,
    ids: TaskIds,
    thread: &LiveThread,
    out: &mut Out<'_>,
) {
    let TaskIds { pid, tid } = ids;
    let mut payload = out.new_payload();
    // Left out, and so 0: the four stack fields, because the kernel does not reveal them;
    // `Win32StartAddr` and `TebBase`, which only the C library knows; `SubProcessTag`, which Linux
    // does not have.
    put_kernel_event!(
        &mut payload,
        THREAD_LAYOUT,
        { ProcessId: pid, TThreadId: tid, Affinity: thread.affinity, BasePriority: thread.priority },
        { ThreadName: &*String::from_utf8_lossy(thread.name.as_bytes()) }
    );
    out.write_system(hook, THREAD_LAYOUT.version(), header_ids, payload);
}

pub(super) fn write_thread_name(
    header_ids: TaskIds,
    TaskIds { pid, tid }: TaskIds,
    name: &[u8],
    out: &mut Out<'_>,
) {
    let mut payload = out.new_payload();
    put_kernel_event!(
        &mut payload,
        THREAD_NAME_LAYOUT,
        { ProcessId: pid, ThreadId: tid },
        { ThreadName: &*String::from_utf8_lossy(name) }
    );
    out.write_system(hook::THREAD_SET_NAME, THREAD_NAME_LAYOUT.version(), header_ids, payload);
}

/// Writes the memory counters of a process. A process without memory (a kernel thread or a zombie)
/// gets no event.
pub(super) fn write_counters(hook: u16, pid: u32, out: &mut Out<'_>) {
    let (Some(status), Some(stat)) = (facts::read_status(pid), facts::read_stat(&pid.to_string())) else {
        return;
    };
    let Some(sizes) = status.sizes else { return };
    let faults = u32::try_from(stat.faults).unwrap_or(u32::MAX);
    let mut payload = out.new_payload();
    put_counters(pid, faults, facts::count_descriptors(pid), &sizes, &mut payload);
    out.write_perfinfo(hook, COUNTERS_LAYOUT.version(), payload);
}

fn put_counters(pid: u32, faults: u32, descriptors: u32, sizes: &MemorySizes, payload: &mut Vec<u8>) {
    // Left out, and so 0: `PeakPagefileUsage`, because Linux keeps no peak of private memory, and
    // the four `Quota…` fields, because it has no pool quotas.
    put_kernel_event!(payload, COUNTERS_LAYOUT, {
        ProcessId: pid,
        PageFaultCount: faults,
        HandleCount: descriptors,
        PeakVirtualSize: sizes.peak_virtual,
        PeakWorkingSetSize: sizes.peak_resident,
        VirtualSize: sizes.virtual_size,
        WorkingSetSize: sizes.resident,
        PagefileUsage: sizes.private,
        PrivatePageCount: sizes.private,
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::NanosecondClock;
    use crate::family::testing::{assert_queued, assert_written};
    use crate::out::RecordQueue;
    use crate::settings::EventExtras;
    use crate::tasks::facts::{AppIdentity, RunningProgram, ThreadName};

    #[test]
    fn payloads_have_the_documented_layout() {
        let program =
            RunningProgram { path: Vec::new(), image: b"sh".to_vec(), command_line: "sh ä".into() };
        let app = AppIdentity { package: "p".into(), application: "q".into(), namespace: None };
        let mut process = LiveProcess {
            start_ticks: 1,
            key: 0x0111,
            parent: 0x0A10,
            session: 3,
            user: Some(1000),
            inner_pid: None,
            program: Arc::new(program),
            app: Arc::new(app),
            threads: Default::default(),
            seen_in_scan: 0,
            unconfirmed_poll: None,
        };
        let name = ThreadName::new(b"main");
        let thread = LiveThread { name, priority: 8, affinity: 3, ..LiveThread::default() };
        let (parent, ids) = (TaskIds { pid: 0x0A10, tid: 0x0A10 }, TaskIds { pid: 0x0A11, tid: 0x0A12 });
        let write = |out: &mut Out<'_>| {
            write_process(hook::PROCESS_START, parent, 0x0A11, &process, STILL_ACTIVE, out);
            (process.user, process.app) = (None, Arc::default());
            write_process_rundown(hook::PROCESS_DEFUNCT, 0x0A11, &process, 0x0100, out);
            write_thread(hook::THREAD_START, parent, ids, &thread, out);
            write_thread_name(ids, ids, b"x", out);
            let (peak_virtual, peak_resident, virtual_size) = (0x0111, 0x0222, 0x0333);
            let sizes =
                MemorySizes { peak_virtual, peak_resident, virtual_size, resident: 0x0444, private: 0x0555 };
            let mut payload = out.new_payload();
            put_counters(0x0A11, 7, 5, &sizes, &mut payload);
            out.write_perfinfo(hook::PROCESS_COUNTERS, COUNTERS_LAYOUT.version(), payload);
        };
        // Hook id, version, payload.
        assert_written(
            write,
            &[
                "0301 04 1101000000000000 110a0000 100a0000 03000000 03010000 0000000000000000 \
                 09000000 1000000000000000 0000000000000000 010200000000001601000000e8030000 \
                 736800730068002000e40000007000000071000000",
                "0327 04 1101000000000000 110a0000 100a0000 03000000 00010000 0000000000000000 \
                 00000000 00000000 736800730068002000e400000000000000",
                "0501 03 110a0000 120a0000 0000000000000000 0000000000000000 0000000000000000 \
                 0000000000000000 0300000000000000 0000000000000000 0000000000000000 00000000 08 00 \
                 00 00 6d00610069006e000000",
                "0548 02 110a0000 120a0000 78000000",
                "0320 02 110a0000 07000000 05000000 00000000 1101000000000000 2202000000000000 \
                 0000000000000000 0000000000000000 0000000000000000 3303000000000000 4404000000000000 \
                 5505000000000000 0000000000000000 0000000000000000 5505000000000000",
            ],
        );
    }

    #[test]
    fn program_details_follow_the_published_fields() {
        let program = |path: &[u8]| {
            let (path, image) = (path.to_vec(), b"x".to_vec());
            Arc::new(RunningProgram { path, image, command_line: String::new() })
        };
        let mut process = LiveProcess {
            start_ticks: 0x0123,
            key: 1,
            parent: 2,
            session: 3,
            user: None,
            inner_pid: None,
            program: program(b"/x"),
            app: Arc::default(),
            threads: Default::default(),
            seen_in_scan: 0,
            unconfirmed_poll: None,
        };
        let (mut queues, mut lost_records) = ([RecordQueue::default()], 0);
        let extras = EventExtras { has_program_details: true, ..EventExtras::default() };
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
        out.current = Some(TaskIds { pid: 7, tid: 8 });
        write_process(hook::PROCESS_START, TaskIds { pid: 2, tid: 2 }, 5, &process, STILL_ACTIVE, &mut out);
        process.program = program(b"");
        out.set_origin(3, 9);
        write_process_rundown(hook::PROCESS_DC_START, 5, &process, STILL_ACTIVE, &mut out);
        let origin = queues[0].peek().expect("no record").origin;
        assert_eq!((origin.cpu, origin.process_id, origin.thread_id), (0, 7, 8));
        let front = "0100000000000000 05000000 02000000 03000000 03010000 0000000000000000 00000000 \
                     00000000 7800 0000 0000 0000";
        assert_queued(
            &mut queues[0],
            &[
                &format!("0301 04 {front} 2301000000000000 2f0078000000"),
                &format!("0303 04 {front} 2301000000000000 78000000"),
            ],
        );
    }

    #[test]
    fn record_without_a_perf_record_has_no_thread() {
        let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
        out.current = Some(TaskIds { pid: 7, tid: 8 });
        out.set_origin(3, 9);
        write_thread_name(TaskIds::default(), TaskIds::default(), b"x", &mut out);
        let origin = queues[0].peek().expect("no record").origin;
        assert_eq!((origin.cpu, origin.process_id, origin.thread_id), (3, u32::MAX, u32::MAX));
    }
}
