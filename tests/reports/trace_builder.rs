//! Builds kernel traces of known content. Events have their own times, and can be added in any
//! order.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use traceweir_format::Guid;
use traceweir_format::etl::{Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::stack_key::put_definition;
use traceweir_format::time::FileTime;
use traceweir_format::wire::Put;

use crate::golden::{ANCHOR, TICKS_PER_MICROSECOND, kernel, session_options, start_time};

/// Load address of the kernel.
pub(super) const KERNEL: u64 = 0xFFFF_F800_0000_0000;

// Thread states of context switches.

pub(super) const INITIALIZED: u8 = 0;
pub(super) const READY: u8 = 1;
pub(super) const RUNNING: u8 = 2;
pub(super) const TERMINATED: u8 = 4;
pub(super) const WAITING: u8 = 5;

// Wait reasons of context switches.

pub(super) const EXECUTIVE: u8 = 0;
pub(super) const PAGE_IN: u8 = 2;
pub(super) const DELAY_EXECUTION: u8 = 4;
pub(super) const USER_REQUEST: u8 = 6;

/// A trace under construction. Times are in microseconds since the start of the trace.
pub(super) struct TraceBuilder {
    folder: TempDir,
    /// Time, processor and bytes of each record.
    records: Vec<(i64, u16, Vec<u8>)>,
}

impl TraceBuilder {
    /// Makes a trace in which the kernel image and the idle process are known.
    pub(super) fn new() -> Self {
        let mut trace = Self { folder: tempfile::tempdir().unwrap(), records: Vec::new() };
        trace.add_process(0, "Idle");
        trace.add_image(0, KERNEL, 0x10_0000, "/nowhere/kernel");
        trace
    }

    fn push_record(&mut self, time: i64, cpu: u16, record: Vec<u8>) {
        self.records.push((time, cpu, record));
    }

    fn add_system_event(&mut self, hook: u16, version: u8, payload: &[u8]) {
        self.add_system_event_at(0, hook, version, payload);
    }

    fn add_system_event_at(&mut self, time: i64, hook: u16, version: u8, payload: &[u8]) {
        let header = SystemHeader {
            pointer_size: 8,
            version,
            hook,
            process_id: 4,
            thread_id: 8,
            time: stamp(time),
            cpu_times: None,
        };
        let mut record = Vec::new();
        header.encode(payload, &mut record).unwrap();
        self.push_record(time, 0, record);
    }

    /// Adds an event whose header has neither a process id nor a thread id.
    pub(super) fn add_perfinfo_event(&mut self, time: i64, cpu: u16, hook: u16, version: u8, payload: &[u8]) {
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time: stamp(time), counters: &[] };
        let mut record = Vec::new();
        header.encode(payload, &mut record).unwrap();
        self.push_record(time, cpu, record);
    }

    /// Adds a process that exists during the whole trace.
    pub(super) fn add_process(&mut self, pid: u32, name: &str) {
        let payload = kernel::process_payload((pid, pid), 1, 0, name, "");
        self.add_system_event(hook::PROCESS_DC_START, 4, &payload);
    }

    /// Adds the start or end of a process. The header of the event has the ids of another process.
    pub(super) fn add_process_event(&mut self, time: i64, hook: u16, pid: u32, name: &str) {
        self.add_system_event_at(time, hook, 4, &kernel::process_payload((pid, pid), 1, 0, name, ""));
    }

    /// Adds a thread that exists during the whole trace.
    pub(super) fn add_thread(&mut self, pid: u32, tid: u32) {
        let payload = kernel::thread_payload((pid, tid), "");
        self.add_system_event(hook::THREAD_DC_START, 3, &payload);
    }

    /// Like [`add_thread`](Self::add_thread), with a name.
    pub(super) fn add_named_thread(&mut self, pid: u32, tid: u32, name: &str) {
        let payload = kernel::thread_payload((pid, tid), name);
        self.add_system_event(hook::THREAD_DC_START, 3, &payload);
    }

    /// Adds the end of a thread.
    pub(super) fn add_thread_end(&mut self, time: i64, cpu: u16, pid: u32, tid: u32) {
        let payload = kernel::thread_payload((pid, tid), "");
        self.add_perfinfo_event(time, cpu, hook::THREAD_END, 3, &payload);
    }

    /// Adds the event of a thread that sets its name.
    pub(super) fn add_thread_name(&mut self, time: i64, pid: u32, tid: u32, name: &str) {
        let mut payload = Vec::new();
        payload.put_u32(pid).put_u32(tid).put_wide_z(name);
        self.add_perfinfo_event(time, 0, hook::THREAD_SET_NAME, 2, &payload);
    }

    /// Adds an image that is loaded during the whole trace.
    pub(super) fn add_image(&mut self, pid: u32, base: u64, size: u64, name: &str) {
        let payload = kernel::image_payload(pid, base, size, name);
        self.add_system_event(hook::IMAGE_DC_START, 3, &payload);
    }

    /// Adds the event that sets the sampling interval, in units of 100 ns.
    pub(super) fn add_sampling_interval(&mut self, time: i64, units: u32) {
        let mut payload = Vec::new();
        // Source, new and old interval, name of the source.
        payload.put_u32(0).put_u32(units).put_u32(units).put_wide_z("Timer");
        self.add_perfinfo_event(time, 0, hook::PROFILE_START, 3, &payload);
    }

    pub(super) fn add_sample(&mut self, time: i64, cpu: u16, tid: u32, address: u64) {
        let mut payload = Vec::new();
        // Address, thread, count, flags (priority 8), reserved.
        payload.put_u64(address).put_u32(tid).put_u16(1).put(&[0x40, 0]);
        self.add_perfinfo_event(time, cpu, hook::SAMPLED_PROFILE, 2, &payload);
    }

    /// Adds the stack of the event at `event_time`, written a microsecond later. `ids` are the
    /// process id and the thread id.
    pub(super) fn add_stack(&mut self, event_time: i64, cpu: u16, ids: (u32, u32), frames: &[u64]) {
        self.add_stack_at(event_time + 1, event_time, cpu, ids, frames);
    }

    /// Like [`add_stack`](Self::add_stack), written at `time`.
    pub(super) fn add_stack_at(
        &mut self,
        time: i64,
        event_time: i64,
        cpu: u16,
        ids: (u32, u32),
        frames: &[u64],
    ) {
        let mut payload = Vec::new();
        payload.put_i64(stamp(event_time)).put_u32(ids.0).put_u32(ids.1);
        frames.iter().for_each(|frame| {
            payload.put_u64(*frame);
        });
        self.add_perfinfo_event(time, cpu, hook::STACK_WALK, 2, &payload);
    }

    /// Adds the key of the kernel part or the user part of a stack.
    pub(super) fn add_stack_key(
        &mut self,
        event_time: i64,
        cpu: u16,
        ids: (u32, u32),
        is_kernel: bool,
        key: u64,
    ) {
        let mut payload = Vec::new();
        payload.put_i64(stamp(event_time)).put_u32(ids.0).put_u32(ids.1).put_u64(key);
        self.add_perfinfo_event(
            event_time + 1,
            cpu,
            if is_kernel { hook::STACK_KEY_KERNEL } else { hook::STACK_KEY_USER },
            2,
            &payload,
        );
    }

    /// Adds the definition of a stack key.
    pub(super) fn add_stack_key_definition(&mut self, time: i64, key: u64, frames: &[u64]) {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
        let mut record = Vec::new();
        put_definition(key, &bytes, stamp(time), &mut record).unwrap();
        self.push_record(time, 0, record);
    }

    /// Adds a context switch. `state` and `reason` are the thread state and wait reason of the old
    /// thread.
    pub(super) fn add_switch(&mut self, time: i64, cpu: u16, (old, new): (u32, u32), state: u8, reason: u8) {
        let mut payload = Vec::new();
        // New and old thread; the bytes: new and old priority, C-state, spare, wait reason, wait
        // mode, state, ideal processor; wait time of the new thread; reserved.
        payload.put_u32(new).put_u32(old).put(&[8, 8, 0, 0, reason, 0, state, 0]).put_u32(0).put_u32(0);
        self.add_perfinfo_event(time, cpu, hook::CONTEXT_SWITCH, 3, &payload);
    }

    pub(super) fn add_ready_thread(&mut self, time: i64, cpu: u16, tid: u32) {
        let mut payload = Vec::new();
        // Thread, AdjustReason (1: its wait is over), AdjustIncrement, flags, reserved.
        payload.put_u32(tid).put(&[1, 0, 0, 0]);
        self.add_perfinfo_event(time, cpu, hook::READY_THREAD, 2, &payload);
    }

    /// Adds a read or write of the file `key`. `hook` selects a read or a write.
    pub(super) fn add_transfer(
        &mut self,
        time: i64,
        hook: u16,
        (disk, tid): (u32, u32),
        key: u64,
        (bytes, latency_us): (u32, u64),
    ) {
        let mut payload = Vec::new();
        // Disk, flags, size, reserved, offset on the disk, file, request, response time, thread.
        payload.put_u32(disk).put_u32(0).put_u32(bytes).put_u32(0).put_u64(0).put_u64(key).put_u64(7);
        payload.put_u64(latency_us * TICKS_PER_MICROSECOND.unsigned_abs()).put_u32(tid);
        self.add_perfinfo_event(time, 0, hook, 3, &payload);
    }

    pub(super) fn add_flush(&mut self, time: i64, disk: u32, tid: u32, latency_us: u64) {
        let mut payload = Vec::new();
        // Disk, flags, response time, request, thread.
        payload
            .put_u32(disk)
            .put_u32(0)
            .put_u64(latency_us * TICKS_PER_MICROSECOND.unsigned_abs())
            .put_u64(7)
            .put_u32(tid);
        self.add_perfinfo_event(time, 0, hook::DISK_FLUSH, 3, &payload);
    }

    /// Adds the name of a disk, at the start of the trace.
    pub(super) fn add_disk_name(&mut self, number: u32, name: &str) {
        let mut payload = Vec::new();
        // Number, bytes per sector, sectors per track, tracks per cylinder, cylinders, SCSI
        // address; then the name (512 bytes), the number of partitions, and the other fields.
        payload.put_u32(number).put_u32(512).put_u32(1).put_u32(1).put_u64(9).put(&[0; 16]);
        let mut wide_name = Vec::new();
        wide_name.put_wide_z(name);
        wide_name.resize(512, 0);
        payload.put(&wide_name).put_u32(0).put(&[0; 12]);
        self.add_system_event(hook::CONFIG_PHYSICAL_DISK, 0, &payload);
    }

    /// Adds a rundown event with the name of a file.
    pub(super) fn add_file_name(&mut self, time: i64, key: u64, name: &str) {
        let mut payload = Vec::new();
        payload.put_u64(key).put_wide_z(name);
        self.add_perfinfo_event(time, 0, hook::FILE_NAME_RUNDOWN, 2, &payload);
    }

    /// Adds an event of a provider that is not the kernel.
    pub(super) fn add_provider_event(
        &mut self,
        time: i64,
        (process_id, thread_id): (u32, u32),
        (provider, id): (Guid, u16),
        payload: &[u8],
    ) {
        let descriptor = EventDescriptor { id, ..EventDescriptor::default() };
        let header = EventHeader {
            provider,
            descriptor,
            process_id,
            thread_id,
            time: stamp(time),
            ..EventHeader::default()
        };
        let mut record = Vec::new();
        header.encode(payload, &mut record).unwrap();
        self.push_record(time, 0, record);
    }

    /// Writes the file of a trace that lasts a minute. The file exists as long as this builder.
    pub(super) fn write(&mut self) -> PathBuf {
        self.write_with_summary(Summary {
            end_time: FileTime(start_time().0 + 600_000_000),
            ..Summary::default()
        })
    }

    pub(super) fn write_with_summary(&mut self, summary: Summary) -> PathBuf {
        let mut writer = Writer::create(Vec::new(), session_options("kernel")).unwrap();
        self.records.sort_by_key(|(time, ..)| *time);
        for (time, cpu, record) in &self.records {
            writer.write(*cpu, stamp(*time), record).unwrap();
        }
        let path = self.folder.path().join("kernel.etl");
        std::fs::write(&path, writer.finish(summary).unwrap()).unwrap();
        path
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Converts a time to a time stamp of the trace's clock.
fn stamp(microseconds: i64) -> i64 {
    ANCHOR + microseconds * TICKS_PER_MICROSECOND
}
