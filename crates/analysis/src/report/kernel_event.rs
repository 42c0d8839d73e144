//! The one reading of kernel events by the names of their fields, for reports, conversions and the view.
//!
//! ```text
//!   PerfInfo  samples: InstructionPointer, ThreadId, Count, Flags    intervals: Source, NewInterval
//!             system calls: SysCallAddress, SysCallNtStatus
//!   Thread    switches: New…, Old…    wakes: ThreadId    lives: ProcessId, TThreadId, ThreadName
//!   Process   ProcessId, ParentId, ImageFileName, CommandLine
//!   DiskIo    DiskNumber, TransferSize, HighResResponseTime, IssuingThreadId, FileObject
//!   TcpIp, UdpIp, FileIo ──▶ report::io
//! ```
//!
//! An event without a field that its meaning needs is not read.

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;

use super::io::{
    FileFields, is_disk_event, is_file_event, is_network_event, read_file_fields, read_network_event,
};
use super::io_event::NetworkTransfer;
use super::scheduler::ContextSwitch;

/// Bits of a sample's `Flags` field: the sample was taken in a DPC or an ISR.
const IN_INTERRUPT: u64 = 3;
/// The profile source of the sampling timer.
const TIMER_SOURCE: u64 = 0;
/// The most bytes that are kept of a name in an event.
const MAX_TEXT_BYTES: usize = 8 << 10;

/// The content of a kernel event.
#[derive(Clone, Debug)]
pub enum KernelEvent {
    /// A processor was executing at an address in a thread.
    Sample {
        /// The thread.
        thread: u32,
        /// The address.
        address: u64,
        /// Number of samples that the event stands for.
        weight: u64,
        /// Whether the processor was idle.
        is_idle: bool,
    },
    /// The sampling interval of the timer, in units of 100 ns; never 0.
    Interval(u64),
    /// A processor switched from one thread to another.
    Switch {
        /// The threads, and why the old one stops running.
        switch: ContextSwitch,
        /// Priority of the thread that runs next; 0 if the event does not contain it.
        new_priority: i8,
        /// Priority of the thread that stops running; 0 if the event does not contain it.
        old_priority: i8,
    },
    /// A thread became ready to run.
    Ready {
        /// The thread.
        thread: u32,
    },
    /// A process started, ended or exists.
    Process(ProcessEvent),
    /// A thread started, ended, exists or has a new name.
    Thread(ThreadEvent),
    /// A disk operation completed.
    Disk(DiskOperation),
    /// An event of TCP or UDP.
    Network(NetworkTransfer),
    /// A file operation began or ended.
    File(FileFields),
    /// A system call began.
    SystemCallStart {
        /// Address of the function in the kernel, or 0.
        address: u64,
    },
    /// A system call ended.
    SystemCallEnd {
        /// The result.
        status: u32,
    },
}

/// What an event reports about the life of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeChange {
    /// It started.
    Start,
    /// It ended.
    End,
    /// It exists.
    Exists,
}

/// An event about a process.
#[derive(Clone, Debug)]
pub struct ProcessEvent {
    /// What happened.
    pub change: LifeChange,
    /// The process.
    pub pid: u32,
    /// The parent, if the event contains it.
    pub parent_pid: Option<u32>,
    /// Name of the program, or an empty text.
    pub name: String,
    /// The command line, or an empty text.
    pub command_line: String,
}

/// An event about a thread.
#[derive(Clone, Debug)]
pub struct ThreadEvent {
    /// What happened.
    pub change: LifeChange,
    /// The process, if the event contains it.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: u32,
    /// Name of the thread, or an empty text.
    pub name: String,
}

/// A completed disk operation.
#[derive(Clone, Copy, Debug)]
pub struct DiskOperation {
    /// Number of the disk.
    pub disk: u32,
    /// "read", "write" or "flush".
    pub operation: &'static str,
    /// Number of transferred bytes.
    pub bytes: u64,
    /// Duration in ticks of the performance counter, if the event contains it.
    pub ticks: Option<u64>,
    /// The thread that issued the operation, if the event contains it.
    pub thread: Option<u32>,
    /// The number of the file, if the event contains it.
    pub file_key: Option<u64>,
}

impl DiskOperation {
    /// Returns the duration in nanoseconds, with the frequency of the performance counter in Hz.
    pub fn duration_ns(&self, counter_hz: u64) -> Option<u64> {
        ticks_to_ns(self.ticks?, counter_hz)
    }
}

/// Converts ticks of the performance counter to nanoseconds; `None` if its frequency is 0.
pub fn ticks_to_ns(ticks: u64, counter_hz: u64) -> Option<u64> {
    let product = u128::from(ticks).saturating_mul(1_000_000_000);
    product.checked_div(counter_hz.into()).map(|ns| u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Numbers by the names of their fields.
struct NumberFields<const N: usize> {
    names: [&'static str; N],
    values: [Option<u64>; N],
}

impl<'p, const N: usize> Visitor<'p> for NumberFields<N> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        for (name, slot) in self.names.iter().zip(&mut self.values) {
            if *field.name == **name && slot.is_none() {
                *slot = value.bits();
            }
        }
    }
}

/// Returns the bits of the fields with these names; `None` for a field that is missing or not a
/// number.
pub fn read_numbers<const N: usize>(
    walker: &mut Walker,
    record: &Record<'_>,
    schema_match: &SchemaMatch<'_, '_>,
    names: [&'static str; N],
) -> [Option<u64>; N] {
    let mut fields = NumberFields { names, values: [None; N] };
    // If the payload ends early, the fields before its end have been read.
    let _ =
        walker.walk(&schema_match.prepared.schema, schema_match.payload, record.pointer_size(), &mut fields);
    fields.values
}

/// Reads a kernel event; `None` for events of other kinds, and for those without a field that they need.
pub fn read_kernel_event(
    walker: &mut Walker,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
) -> Option<KernelEvent> {
    match record.hook()? {
        hook::SAMPLED_PROFILE => {
            let names = ["InstructionPointer", "ThreadId", "Count", "Flags"];
            let [address, thread, count, flags] = read_numbers(walker, record, schema, names);
            let thread = to_u32(thread)?;
            let is_idle = thread == 0 && flags.unwrap_or(0) & IN_INTERRUPT == 0;
            let weight = count.unwrap_or(1).max(1);
            Some(KernelEvent::Sample { thread, address: address?, weight, is_idle })
        }
        hook::PROFILE_START | hook::PROFILE_SET_INTERVAL | hook::PROFILE_END => {
            let [source, interval] = read_numbers(walker, record, schema, ["Source", "NewInterval"]);
            let is_timer = source == Some(TIMER_SOURCE);
            interval.filter(|interval| is_timer && *interval > 0).map(KernelEvent::Interval)
        }
        hook::CONTEXT_SWITCH => read_switch(walker, record, schema),
        hook::READY_THREAD => {
            let [thread] = read_numbers(walker, record, schema, ["ThreadId"]);
            Some(KernelEvent::Ready { thread: to_u32(thread)? })
        }
        hook::SYSCALL_ENTER => {
            let [address] = read_numbers(walker, record, schema, ["SysCallAddress"]);
            Some(KernelEvent::SystemCallStart { address: address? })
        }
        hook::SYSCALL_EXIT => {
            let [status] = read_numbers(walker, record, schema, ["SysCallNtStatus"]);
            Some(KernelEvent::SystemCallEnd { status: to_u32(status)? })
        }
        hook if is_disk_event(hook) => read_disk_operation(walker, hook, record, schema),
        hook if is_network_event(hook) => {
            read_network_event(walker, hook, record, schema).map(KernelEvent::Network)
        }
        hook if is_file_event(hook) => Some(KernelEvent::File(read_file_fields(walker, record, schema))),
        hook => read_life_event(walker, hook, record, schema),
    }
}

fn read_switch(
    walker: &mut Walker,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
) -> Option<KernelEvent> {
    let names = [
        "NewThreadId",
        "OldThreadId",
        "OldThreadState",
        "OldThreadWaitReason",
        "NewThreadPriority",
        "OldThreadPriority",
    ];
    let [new, old, state, reason, new_priority, old_priority] = read_numbers(walker, record, schema, names);
    let to_u8 = |number: Option<u64>| u8::try_from(number?).ok();
    let to_priority = |number: Option<u64>| to_u8(number).map_or(0, u8::cast_signed);
    let (new_priority, old_priority) = (to_priority(new_priority), to_priority(old_priority));
    let (new, old, state, reason) = (to_u32(new)?, to_u32(old)?, to_u8(state)?, to_u8(reason)?);
    let switch = ContextSwitch { cpu: record.cpu(), new, old, state, reason };
    Some(KernelEvent::Switch { switch, new_priority, old_priority })
}

fn read_disk_operation(
    walker: &mut Walker,
    hook: u16,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
) -> Option<KernelEvent> {
    let names = ["DiskNumber", "TransferSize", "HighResResponseTime", "IssuingThreadId", "FileObject"];
    let [disk, bytes, ticks, thread, file_key] = read_numbers(walker, record, schema, names);
    let operation = match hook {
        hook::DISK_READ | hook::OPTICAL_READ => "read",
        hook::DISK_WRITE | hook::OPTICAL_WRITE => "write",
        _ => "flush",
    };
    let (disk, bytes, thread) = (to_u32(disk)?, bytes.unwrap_or(0), to_u32(thread));
    Some(KernelEvent::Disk(DiskOperation { disk, operation, bytes, ticks, thread, file_key }))
}

#[derive(Default)]
struct LifeFields {
    pid: Option<u32>,
    tid: Option<u32>,
    parent_pid: Option<u32>,
    program: String,
    command_line: String,
    thread_name: String,
}

impl<'p> Visitor<'p> for LifeFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let id = || value.as_u64().and_then(|id| u32::try_from(id).ok());
        let text = || {
            let mut text = Vec::new();
            push_text(field, &value, Style::default(), &mut text);
            text.truncate(MAX_TEXT_BYTES);
            String::from_utf8_lossy(&text).into_owned()
        };
        match &*field.name {
            "ProcessId" => self.pid = id(),
            "TThreadId" | "ThreadId" => self.tid = id(),
            "ParentId" => self.parent_pid = id(),
            "ImageFileName" => self.program = text(),
            "CommandLine" => self.command_line = text(),
            "ThreadName" => self.thread_name = text(),
            _ => {}
        }
    }
}

fn read_life_event(
    walker: &mut Walker,
    hook: u16,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
) -> Option<KernelEvent> {
    let change = match hook {
        hook::PROCESS_START | hook::THREAD_START => LifeChange::Start,
        hook::PROCESS_END | hook::THREAD_END => LifeChange::End,
        _ => LifeChange::Exists,
    };
    let is_process = match hook {
        hook::PROCESS_START
        | hook::PROCESS_END
        | hook::PROCESS_DC_START
        | hook::PROCESS_DC_END
        | hook::PROCESS_DEFUNCT => true,
        hook::THREAD_START
        | hook::THREAD_END
        | hook::THREAD_DC_START
        | hook::THREAD_DC_END
        | hook::THREAD_SET_NAME => false,
        _ => return None,
    };
    let mut fields = LifeFields::default();
    // If the payload ends early, the fields before its end have been read.
    let _ = walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), &mut fields);
    let LifeFields { pid, tid, parent_pid, program, command_line, thread_name } = fields;
    Some(if is_process {
        KernelEvent::Process(ProcessEvent { change, pid: pid?, parent_pid, name: program, command_line })
    } else {
        KernelEvent::Thread(ThreadEvent { change, pid, tid: tid?, name: thread_name })
    })
}

fn to_u32(number: Option<u64>) -> Option<u32> {
    u32::try_from(number?).ok()
}
