//! Writes small traces for tests, and asks questions about them.

use std::fs::File;

use serde_json::Value;
use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::NO_ID;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::PayloadLayout;
use traceweir_format::kernel::hook;
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;

use crate::json::JsonWriter;
use crate::probe::build_view;
use crate::trace::TraceView;

const PROCESS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROCESS_DC_START, 4);
const THREAD_END_LAYOUT: PayloadLayout = PayloadLayout::new(hook::THREAD_END, 3);
const SAMPLE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SAMPLED_PROFILE, 2);
const INTERVAL_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROFILE_SET_INTERVAL, 2);
const SWITCH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
/// The name of the session, which is markup.
pub(crate) const MARKUP: &str = "</script><img src=x onerror=alert(1)>\u{202E}\"'&\u{0}\u{2028}";

/// A trace under construction.
pub(crate) struct TestTrace {
    writer: Writer<File>,
    file: File,
    record: Vec<u8>,
}

impl TestTrace {
    pub(crate) fn new(boot_time: i64) -> Self {
        let file = tempfile::tempfile().unwrap();
        let start_time = FileTime::from_unix(1_700_000_000, 0);
        let options = Options {
            buffer_size: 256 << 10,
            session_name: MARKUP.into(),
            processors: 2,
            perf_freq: 10_000_000,
            start_time,
            boot_time: FileTime(boot_time),
            ..Options::default()
        };
        let writer = Writer::create(file.try_clone().unwrap(), options).unwrap();
        Self { writer, file, record: Vec::new() }
    }

    fn write(&mut self, cpu: u16, time: i64) {
        self.writer.write(cpu, time, &self.record).unwrap();
        self.record.clear();
    }

    pub(crate) fn add_process(&mut self, time: i64, pid: u32, name: &str) {
        let mut payload = Vec::new();
        put_kernel_event!(
            &mut payload,
            PROCESS_LAYOUT,
            { ProcessId: pid, ParentId: 4_u32, SessionId: 1_u32 },
            { UserSID: None::<&Sid>, ImageFileName: name, CommandLine: "", PackageFullName: "", ApplicationId: "" }
        );
        let header = SystemHeader {
            pointer_size: 8,
            version: PROCESS_LAYOUT.version(),
            hook: hook::PROCESS_DC_START,
            thread_id: NO_ID,
            process_id: NO_ID,
            time,
            cpu_times: Some((0, 0)),
        };
        header.encode(&payload, &mut self.record).unwrap();
        self.write(0, time);
    }

    fn write_perfinfo(&mut self, time: i64, cpu: u16, layout: (u16, u8), payload: &[u8]) {
        let (hook, version) = layout;
        PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] }
            .encode(payload, &mut self.record)
            .unwrap();
        self.write(cpu, time);
    }

    pub(crate) fn add_sample(&mut self, time: i64, cpu: u16, tid: u32, count: u16) {
        let mut payload = Vec::new();
        put_kernel_event!(&mut payload, SAMPLE_LAYOUT, {
            InstructionPointer: 0x7FF6_0000_1000_u64,
            ThreadId: tid,
            Count: count,
        });
        self.write_perfinfo(time, cpu, (hook::SAMPLED_PROFILE, SAMPLE_LAYOUT.version()), &payload);
    }

    /// Adds the time between two samples, in units of 100 ns.
    pub(crate) fn add_sample_interval(&mut self, time: i64, interval: u32) {
        let mut payload = Vec::new();
        put_kernel_event!(&mut payload, INTERVAL_LAYOUT, {
            Source: 0_u32,
            NewInterval: interval,
            OldInterval: interval,
        });
        self.write_perfinfo(time, 0, (hook::PROFILE_SET_INTERVAL, INTERVAL_LAYOUT.version()), &payload);
    }

    pub(crate) fn add_thread_end(&mut self, time: i64, cpu: u16, (pid, tid): (u32, u32)) {
        let mut payload = Vec::new();
        put_kernel_event!(&mut payload, THREAD_END_LAYOUT, { ProcessId: pid, TThreadId: tid });
        let header = SystemHeader {
            pointer_size: 8,
            version: THREAD_END_LAYOUT.version(),
            hook: hook::THREAD_END,
            thread_id: tid,
            process_id: pid,
            time,
            cpu_times: Some((0, 0)),
        };
        header.encode(&payload, &mut self.record).unwrap();
        self.write(cpu, time);
    }

    pub(crate) fn add_switch(&mut self, time: i64, cpu: u16, (old, new): (u32, u32), state: i8) {
        let mut payload = Vec::new();
        put_kernel_event!(&mut payload, SWITCH_LAYOUT, {
            NewThreadId: new,
            OldThreadId: old,
            OldThreadWaitReason: 6_i8,
            OldThreadState: state,
        });
        let (version, hook) = (SWITCH_LAYOUT.version(), hook::CONTEXT_SWITCH);
        PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] }
            .encode(&payload, &mut self.record)
            .unwrap();
        self.write(cpu, time);
    }

    pub(crate) fn add_event(
        &mut self,
        time: i64,
        provider: Guid,
        (id, opcode): (u16, u8),
        ids: (u32, u32),
        payload: &[u8],
    ) {
        let descriptor = EventDescriptor { id, opcode, task: 1, level: 4, ..EventDescriptor::default() };
        let (process_id, thread_id) = ids;
        let header =
            EventHeader { provider, descriptor, process_id, thread_id, time, ..EventHeader::default() };
        header.encode(payload, &mut self.record).unwrap();
        self.write(0, time);
    }

    pub(crate) fn finish(self) -> File {
        self.writer.finish(Summary::default()).unwrap();
        self.file
    }
}

/// Returns the answer to a question.
pub(crate) fn ask(question: impl Fn(&mut JsonWriter)) -> Value {
    let mut json = JsonWriter::default();
    question(&mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

/// Builds the index of traces.
pub(crate) fn view_of(traces: Vec<TestTrace>) -> TraceView {
    build_view(traces.into_iter().map(TestTrace::finish).collect()).unwrap().0
}
