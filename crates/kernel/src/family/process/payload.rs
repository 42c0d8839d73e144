//! Payloads of process and thread events in the documented layouts (`traceweir_format::kernel`,
//! `process.rs` and `thread.rs`).

use traceweir_format::kernel::hook;
use traceweir_format::security::Sid;
use traceweir_format::wire::Put;

use crate::out::Out;
use crate::tasks::facts::{self, Sizes};
use crate::tasks::{Process, Thread};

pub(super) const PROCESS_START: u16 = hook::PROCESS_START;
pub(super) const PROCESS_END: u16 = hook::PROCESS_END;
pub(super) const PROCESS_RUNDOWN_START: u16 = hook::PROCESS_DC_START;
pub(super) const PROCESS_RUNDOWN_END: u16 = hook::PROCESS_DC_END;
pub(super) const PROCESS_DEFUNCT: u16 = hook::PROCESS_DEFUNCT;
pub(super) const COUNTERS_END: u16 = hook::PROCESS_COUNTERS;
pub(super) const COUNTERS_RUNDOWN: u16 = hook::PROCESS_COUNTERS_RUNDOWN;
pub(super) const THREAD_START: u16 = hook::THREAD_START;
pub(super) const THREAD_END: u16 = hook::THREAD_END;
pub(super) const THREAD_RUNDOWN_START: u16 = hook::THREAD_DC_START;
pub(super) const THREAD_RUNDOWN_END: u16 = hook::THREAD_DC_END;
const THREAD_NAME: u16 = hook::THREAD_SET_NAME;

/// The exit status of a running process.
pub(super) const STILL_ACTIVE: i32 = 259;

/// Flags of a process: it has an application id, it belongs to a package.
const HAS_APPLICATION: u32 = 1;
const IS_PACKAGED: u32 = 8;
/// A 64-bit TOKEN_USER: the address of the SID, and its attributes. Readers skip it; a nonzero
/// value says that a SID follows.
const TOKEN_USER: [u64; 2] = [16, 0];

/// Writes the start or end of a process. `by`: the process and thread that the header names.
pub(super) fn write_process(
    hook: u16,
    by: (u32, u32),
    pid: u32,
    process: &Process,
    status: i32,
    out: &mut Out<'_>,
) {
    let mut payload = out.payload();
    put_process(pid, process, status, &mut payload);
    out.system(hook, 4, by, payload);
}

/// Writes a process of a rundown.
pub(super) fn write_process_rundown(hook: u16, pid: u32, process: &Process, status: i32, out: &mut Out<'_>) {
    let mut payload = out.payload();
    put_process(pid, process, status, &mut payload);
    out.perfinfo(hook, 4, payload);
}

fn put_process(pid: u32, process: &Process, status: i32, payload: &mut Vec<u8>) {
    let mut application = String::new();
    process.app.write_application_id(process.inner, &mut application);
    let package = process.app.package.as_str();
    let mut flags = 0;
    if !application.is_empty() {
        flags |= HAS_APPLICATION;
    }
    if !package.is_empty() {
        flags |= IS_PACKAGED;
    }
    payload.put_u64(process.key).put_u32(pid).put_u32(process.parent).put_u32(process.session);
    // The kernel does not reveal the address of the page table.
    payload.put_i32(status).put_u64(0).put_u32(flags);
    match process.user {
        Some(user) => {
            let [sid, attributes] = TOKEN_USER;
            payload.put_u64(sid).put_u64(attributes).put(&Sid::user(user).to_bytes());
        }
        None => {
            payload.put_u32(0);
        }
    }
    payload.put(&process.program.image).put_u8(0);
    payload.put_wide_z(&process.program.command_line).put_wide_z(package).put_wide_z(&application);
}

/// Writes a start, end or rundown of a thread.
pub(super) fn write_thread(hook: u16, by: (u32, u32), ids: (u32, u32), thread: &Thread, out: &mut Out<'_>) {
    let (pid, tid) = ids;
    let mut payload = out.payload();
    payload.put_u32(pid).put_u32(tid);
    // Base and limit of the kernel stack and of the user stack.
    payload.put_u64(0).put_u64(0).put_u64(0).put_u64(0);
    // The kernel knows neither the start address nor the thread environment block, which belong to
    // the C library; there are no tags.
    payload.put_u64(thread.affinity).put_u64(0).put_u64(0).put_u32(0);
    payload.put_u8(thread.priority).put_u8(0).put_u8(0).put_u8(0);
    payload.put_wide_z(&String::from_utf8_lossy(thread.name.as_bytes()));
    out.system(hook, 3, by, payload);
}

/// Writes the new name of a thread.
pub(super) fn write_thread_name(by: (u32, u32), (pid, tid): (u32, u32), name: &[u8], out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(pid).put_u32(tid).put_wide_z(&String::from_utf8_lossy(name));
    out.system(THREAD_NAME, 2, by, payload);
}

/// Writes the memory counters of a process that still has memory.
pub(super) fn write_counters(hook: u16, pid: u32, out: &mut Out<'_>) {
    let (Some(status), Some(stat)) = (facts::status(pid), facts::stat(&pid.to_string())) else { return };
    let Some(sizes) = status.sizes else { return };
    let faults = u32::try_from(stat.faults).unwrap_or(u32::MAX);
    let mut payload = out.payload();
    put_counters(pid, faults, facts::count_descriptors(pid), &sizes, &mut payload);
    out.perfinfo(hook, 2, payload);
}

fn put_counters(pid: u32, faults: u32, descriptors: u32, sizes: &Sizes, payload: &mut Vec<u8>) {
    payload.put_u32(pid).put_u32(faults);
    payload.put_u32(descriptors).put_u32(0);
    payload.put_u64(sizes.peak_virtual).put_u64(sizes.peak_resident);
    // Linux keeps no peak of private memory and has no pool quotas.
    payload.put_u64(0).put_u64(0).put_u64(0);
    payload.put_u64(sizes.virtual_size).put_u64(sizes.resident).put_u64(sizes.private);
    payload.put_u64(0).put_u64(0).put_u64(sizes.private);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::family::testing::assert_written;
    use crate::tasks::facts::{AppIdentity, Name, Program};

    #[test]
    fn payloads_have_the_documented_layout() {
        let program = Program { path: Vec::new(), image: b"sh".to_vec(), command_line: "sh ä".into() };
        let app = AppIdentity { package: "p".into(), application: "q".into(), namespace: None };
        let mut process = Process {
            start_ticks: 1,
            key: 0x0111,
            parent: 0x0A10,
            session: 3,
            user: Some(1000),
            inner: None,
            program: Arc::new(program),
            app: Arc::new(app),
            threads: Default::default(),
            seen: 0,
            early: None,
        };
        let name = Name::new(b"main");
        let thread = Thread { name, priority: 8, affinity: 3, ..Thread::default() };
        let write = |out: &mut Out<'_>| {
            write_process(PROCESS_START, (0x0A10, 0x0A10), 0x0A11, &process, STILL_ACTIVE, out);
            (process.user, process.app) = (None, Arc::default());
            write_process_rundown(PROCESS_DEFUNCT, 0x0A11, &process, 0x0100, out);
            write_thread(THREAD_START, (0x0A10, 0x0A10), (0x0A11, 0x0A12), &thread, out);
            write_thread_name((0x0A11, 0x0A12), (0x0A11, 0x0A12), b"x", out);
            let (peak_virtual, peak_resident, virtual_size) = (0x0111, 0x0222, 0x0333);
            let sizes =
                Sizes { peak_virtual, peak_resident, virtual_size, resident: 0x0444, private: 0x0555 };
            let mut payload = out.payload();
            put_counters(0x0A11, 7, 5, &sizes, &mut payload);
            out.perfinfo(COUNTERS_END, 2, payload);
        };
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
}
