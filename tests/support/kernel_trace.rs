//! Writes a kernel trace of any size: processes and threads that run, wait, wake each other, read
//! and write files, send and receive, allocate memory, with samples and call stacks.
//!
//! ```text
//!   each processor: switch ─▶ run for a while ─▶ switch …          samples every millisecond
//!   each thread:    run ─▶ wait (disk, another thread, a timer) ─▶ woken ─▶ ready ─▶ run …
//!   some waits:     begin with a disk transfer, a packet, an allocation or a page fault
//! ```
//!
//! The trace depends on the layout only, so that two runs are the same.
#![allow(dead_code)] // Programs that include this file use only some of its functions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{Error, Result};
use std::path::Path;

use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::NO_ID;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::PayloadLayout;
use traceweir_format::kernel::hook;
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;
use traceweir_format::spec::session::BUFFER_FLAG_EVENTS_LOST;
use traceweir_format::time::FileTime;

const PROCESS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROCESS_DC_START, 4);
const THREAD_LAYOUT: PayloadLayout = PayloadLayout::new(hook::THREAD_DC_START, 3);
const IMAGE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::IMAGE_DC_START, 3);
const NAME_LAYOUT: PayloadLayout = PayloadLayout::new(hook::FILE_NAME_RUNDOWN, 2);
const SWITCH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
const READY_LAYOUT: PayloadLayout = PayloadLayout::new(hook::READY_THREAD, 2);
const SAMPLE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SAMPLED_PROFILE, 2);
const STACK_LAYOUT: PayloadLayout = PayloadLayout::new(hook::STACK_WALK, 2);
const DISK_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::DISK_READ, hook::DISK_WRITE], 3);
const SEND_LAYOUT: PayloadLayout = PayloadLayout::new(hook::TCP_SEND, 2);
const RECEIVE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::TCP_RECEIVE, 2);
const MEMORY_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::VIRTUAL_ALLOC, hook::VIRTUAL_FREE], 2);
const FAULT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::DEMAND_ZERO_FAULT, 2);

/// Ticks of the clock per second.
const TICKS_PER_SECOND: i64 = 10_000_000;
/// 2023-11-14 22:13:20 UTC.
const START_TIME: FileTime = FileTime(133_444_736_000_000_000);
const SAMPLE_TICKS: i64 = 10_000;
const FIRST_PID: u32 = 100;
const FIRST_TID: u32 = 10_000;
const FILES: u64 = 40;
const LOCAL_ADDRESS: [u8; 4] = [192, 0, 2, 1];
const REMOTE_ADDRESS: [u8; 4] = [198, 51, 100, 7];
/// Ports of connections of a process; each has a connection per port.
const PORTS: u64 = 3;
const KERNEL_BASE: u64 = 0xFFFF_F800_0000_0000;
const PROGRAM_BASE: u64 = 0x7FF6_0000_0000;
/// The paths through the calls of a program: four choices of two functions.
const CALL_PATHS: u64 = 16;
const LIBRARY_BASE: u64 = 0x7FFA_0000_0000;
const HEAP_BASE: u64 = 0x1_0000_0000;
const IMAGE_BYTES: u64 = 0x40_0000;
/// Values of `OldThreadState`.
pub(crate) const READY: i8 = 1;
pub(crate) const WAITING: i8 = 5;

/// The properties of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelTraceLayout {
    /// Size of the file.
    pub(crate) bytes: u64,
    pub(crate) cpus: u16,
    pub(crate) processes: u32,
    /// Threads of each process.
    pub(crate) threads: u32,
    /// Text in the names of processes and files.
    pub(crate) name_part: &'static str,
}

/// A generator of numbers that are always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns a time that is usually short and sometimes long.
    fn ticks(&mut self, usual: u64) -> i64 {
        let factor = 1 << self.below(6);
        (1 + self.below(usual * factor / 4 + 1)).cast_signed()
    }
}

/// What a processor does.
#[derive(Clone, Copy)]
struct Processor {
    /// Index of the thread; `None` if idle.
    thread: Option<u32>,
    /// When the thread stops running.
    until: i64,
    next_sample: i64,
}

/// Writes records of kernel events to a file. The clock has 10 million ticks per second.
pub(crate) struct KernelWriter {
    writer: Writer<File>,
    record: Vec<u8>,
    /// The payload of the next event.
    pub(crate) payload: Vec<u8>,
    events: u64,
}

impl KernelWriter {
    pub(crate) fn create(path: &Path, cpus: u16) -> Result<Self> {
        let file = File::create(path)?;
        let options = Options {
            buffer_size: 256 << 10,
            session_name: "NT Kernel Logger".into(),
            processors: cpus.into(),
            perf_freq: TICKS_PER_SECOND,
            start_time: START_TIME,
            boot_time: START_TIME,
            ..Options::default()
        };
        let writer = Writer::create(file, options).map_err(Error::other)?;
        Ok(Self { writer, record: Vec::new(), payload: Vec::new(), events: 0 })
    }

    /// Writes an event without process and thread.
    pub(crate) fn put_system(&mut self, hook: u16, version: u8, cpu: u16, time: i64) -> Result<()> {
        let header = SystemHeader {
            pointer_size: 8,
            version,
            hook,
            thread_id: NO_ID,
            process_id: NO_ID,
            time,
            cpu_times: Some((0, 0)),
        };
        self.record.clear();
        header.encode(&self.payload, &mut self.record).map_err(Error::other)?;
        self.put_record(cpu, time)
    }

    pub(crate) fn put_perfinfo(&mut self, hook: u16, version: u8, cpu: u16, time: i64) -> Result<()> {
        self.record.clear();
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] };
        header.encode(&self.payload, &mut self.record).map_err(Error::other)?;
        self.put_record(cpu, time)
    }

    /// Writes an event that is not the kernel's.
    pub(crate) fn put_event(&mut self, header: &EventHeader<'_>, cpu: u16) -> Result<()> {
        self.record.clear();
        header.encode(&self.payload, &mut self.record).map_err(Error::other)?;
        self.put_record(cpu, header.time)
    }

    fn put_record(&mut self, cpu: u16, time: i64) -> Result<()> {
        self.writer.write(cpu, time, &self.record).map_err(Error::other)?;
        self.events += 1;
        Ok(())
    }

    /// Writes an event of a class without manifest.
    pub(crate) fn put_classic(&mut self, header: &ClassicHeader, cpu: u16) -> Result<()> {
        self.record.clear();
        header.encode(&self.payload, &mut self.record).map_err(Error::other)?;
        self.put_record(cpu, header.time)
    }

    /// Marks that events of a processor were lost here.
    pub(crate) fn flag_loss(&mut self, cpu: u16) -> Result<()> {
        self.writer.flag_loss(cpu, BUFFER_FLAG_EVENTS_LOST).map_err(Error::other)
    }

    /// Writes the records so far to the file.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(Error::other)
    }

    /// Ends the file and returns its number of events.
    pub(crate) fn finish(self, end: i64, lost_events: u32) -> Result<u64> {
        let end_time = FileTime(START_TIME.0 + end);
        let summary = Summary { end_time, events_lost: lost_events, ..Summary::default() };
        self.writer.finish(summary).map_err(Error::other)?;
        Ok(self.events)
    }

    pub(crate) fn put_process(&mut self, pid: u32, name: &str, command: &str) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(
            &mut self.payload,
            PROCESS_LAYOUT,
            { ProcessId: pid, ParentId: 4_u32, SessionId: 1_u32 },
            { UserSID: None::<&Sid>, ImageFileName: name, CommandLine: command, PackageFullName: "", ApplicationId: "" }
        );
        self.put_system(hook::PROCESS_DC_START, PROCESS_LAYOUT.version(), 0, 0)
    }

    pub(crate) fn put_thread(&mut self, pid: u32, tid: u32) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, THREAD_LAYOUT, { ProcessId: pid, TThreadId: tid });
        self.put_system(hook::THREAD_DC_START, THREAD_LAYOUT.version(), 0, 0)
    }

    pub(crate) fn put_image(&mut self, pid: u32, base: u64, file: &str) -> Result<()> {
        self.put_image_path(pid, base, &format!("\\Device\\HarddiskVolume1\\Windows\\{file}"))
    }

    pub(crate) fn put_image_path(&mut self, pid: u32, base: u64, path: &str) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(
            &mut self.payload,
            IMAGE_LAYOUT,
            { ImageBase: base, ImageSize: IMAGE_BYTES, ProcessId: pid },
            { FileName: path }
        );
        self.put_perfinfo(hook::IMAGE_DC_START, IMAGE_LAYOUT.version(), 0, 0)
    }

    pub(crate) fn put_file(&mut self, key: u64, name: &str) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, NAME_LAYOUT, { FileObject: key }, { FileName: name });
        self.put_perfinfo(hook::FILE_NAME_RUNDOWN, NAME_LAYOUT.version(), 0, 0)
    }

    pub(crate) fn put_ready(&mut self, cpu: u16, time: i64, tid: u32) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, READY_LAYOUT, { ThreadId: tid });
        self.put_perfinfo(hook::READY_THREAD, READY_LAYOUT.version(), cpu, time)
    }

    pub(crate) fn put_switch(&mut self, cpu: u16, time: i64, switch: Switch) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, SWITCH_LAYOUT, {
            NewThreadId: switch.new_tid,
            OldThreadId: switch.old_tid,
            OldThreadWaitReason: switch.wait_reason,
            OldThreadState: switch.old_state,
        });
        self.put_perfinfo(hook::CONTEXT_SWITCH, SWITCH_LAYOUT.version(), cpu, time)
    }

    pub(crate) fn put_transfer(&mut self, cpu: u16, time: i64, transfer: Transfer) -> Result<()> {
        let hook = if transfer.is_write { hook::DISK_WRITE } else { hook::DISK_READ };
        self.payload.clear();
        put_kernel_event!(&mut self.payload, DISK_LAYOUT, {
            DiskNumber: 0_u32,
            TransferSize: transfer.bytes,
            FileObject: transfer.file,
            HighResResponseTime: transfer.duration,
            IssuingThreadId: transfer.tid,
        });
        self.put_perfinfo(hook, DISK_LAYOUT.version(), cpu, time)
    }

    pub(crate) fn put_packet(&mut self, cpu: u16, time: i64, packet: Packet) -> Result<()> {
        let Packet { pid, bytes, local_port, is_sent } = packet;
        self.payload.clear();
        if is_sent {
            put_kernel_event!(&mut self.payload, SEND_LAYOUT, {
                PID: pid,
                size: bytes,
                daddr: REMOTE_ADDRESS,
                saddr: LOCAL_ADDRESS,
                dport: 443_u16,
                sport: local_port,
            });
            return self.put_perfinfo(hook::TCP_SEND, SEND_LAYOUT.version(), cpu, time);
        }
        put_kernel_event!(&mut self.payload, RECEIVE_LAYOUT, {
            PID: pid,
            size: bytes,
            daddr: REMOTE_ADDRESS,
            saddr: LOCAL_ADDRESS,
            dport: 443_u16,
            sport: local_port,
        });
        self.put_perfinfo(hook::TCP_RECEIVE, RECEIVE_LAYOUT.version(), cpu, time)
    }

    pub(crate) fn put_memory(&mut self, cpu: u16, time: i64, change: MemoryChange) -> Result<()> {
        let hook = if change.is_freed { hook::VIRTUAL_FREE } else { hook::VIRTUAL_ALLOC };
        self.payload.clear();
        put_kernel_event!(&mut self.payload, MEMORY_LAYOUT, {
            BaseAddress: HEAP_BASE,
            RegionSize: change.bytes,
            ProcessId: change.pid,
        });
        self.put_perfinfo(hook, MEMORY_LAYOUT.version(), cpu, time)
    }

    /// Writes the first use of a page by the thread that runs.
    pub(crate) fn put_fault(&mut self, cpu: u16, time: i64) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, FAULT_LAYOUT, {
            VirtualAddress: HEAP_BASE,
            ProgramCounter: PROGRAM_BASE,
        });
        self.put_perfinfo(hook::DEMAND_ZERO_FAULT, FAULT_LAYOUT.version(), cpu, time)
    }

    pub(crate) fn put_sample(&mut self, cpu: u16, time: i64, tid: u32, address: u64) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, SAMPLE_LAYOUT, {
            InstructionPointer: address,
            ThreadId: tid,
            Count: 1_u16,
        });
        self.put_perfinfo(hook::SAMPLED_PROFILE, SAMPLE_LAYOUT.version(), cpu, time)
    }

    /// Writes the stack of the event of a thread at a time.
    pub(crate) fn put_stack(
        &mut self,
        cpu: u16,
        time: i64,
        pid: u32,
        tid: u32,
        frames: &[u64],
    ) -> Result<()> {
        self.payload.clear();
        put_kernel_event!(&mut self.payload, STACK_LAYOUT, {
            EventTimeStamp: time.cast_unsigned(),
            ProcessId: pid,
            ThreadId: tid,
        });
        frames.iter().for_each(|frame| self.payload.extend_from_slice(&frame.to_le_bytes()));
        self.put_perfinfo(hook::STACK_WALK, STACK_LAYOUT.version(), cpu, time + 1)
    }
}

/// A processor turns from one thread to another; 0 is idle.
#[derive(Clone, Copy)]
pub(crate) struct Switch {
    pub(crate) new_tid: u32,
    pub(crate) old_tid: u32,
    pub(crate) old_state: i8,
    pub(crate) wait_reason: i8,
}

/// A disk request.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) tid: u32,
    /// Key of the file.
    pub(crate) file: u64,
    pub(crate) bytes: u32,
    pub(crate) is_write: bool,
    /// Ticks.
    pub(crate) duration: u64,
}

/// Data that a process sends or receives by TCP.
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) pid: u32,
    pub(crate) bytes: u32,
    pub(crate) local_port: u16,
    pub(crate) is_sent: bool,
}

/// An allocation of virtual memory, or its end.
#[derive(Clone, Copy)]
pub(crate) struct MemoryChange {
    pub(crate) pid: u32,
    pub(crate) bytes: u64,
    pub(crate) is_freed: bool,
}

struct Machine {
    layout: KernelTraceLayout,
    numbers: Numbers,
    output: KernelWriter,
    processors: Vec<Processor>,
    ready: VecDeque<u32>,
    /// Waiting threads by the time of their wake.
    waiting: BinaryHeap<Reverse<(i64, u32)>>,
}

/// Writes the trace and returns its number of events.
pub(crate) fn write(path: &Path, layout: KernelTraceLayout) -> Result<u64> {
    let processor = |number: u16| Processor { thread: None, until: 0, next_sample: i64::from(number) * 100 };
    let mut machine = Machine {
        layout,
        numbers: Numbers(0x9E37_79B9_7F4A_7C15),
        output: KernelWriter::create(path, layout.cpus)?,
        processors: (0..layout.cpus.max(1)).map(processor).collect(),
        ready: VecDeque::new(),
        waiting: BinaryHeap::new(),
    };
    machine.write_rundown()?;
    let end = machine.run()?;
    machine.output.finish(end, 0)
}

impl Machine {
    fn thread_count(&self) -> u32 {
        self.layout.processes * self.layout.threads
    }

    fn pid_of(&self, thread: u32) -> u32 {
        FIRST_PID + thread / self.layout.threads.max(1)
    }

    fn write_rundown(&mut self) -> Result<()> {
        let part = self.layout.name_part;
        for process in 0..self.layout.processes {
            let pid = FIRST_PID + process;
            let name = format!("program-{process}{part}.exe");
            self.output.put_process(pid, &name, &format!("{name} --number {process}"))?;
            self.output.put_image(pid, PROGRAM_BASE, &name)?;
            self.output.put_image(pid, LIBRARY_BASE, "library.dll")?;
        }
        self.output.put_image(0, KERNEL_BASE, "ntoskrnl.exe")?;
        for thread in 0..self.thread_count() {
            self.output.put_thread(self.pid_of(thread), FIRST_TID + thread)?;
            let wake = self.numbers.ticks(2000);
            self.waiting.push(Reverse((wake, thread)));
        }
        for file in 0..FILES {
            let name = format!("\\Device\\HarddiskVolume1\\data\\file-{file}{part}.db");
            self.output.put_file(file_key(file), &name)?;
        }
        Ok(())
    }

    /// Lets the machine run until the file has its size. Returns the time at the end.
    fn run(&mut self) -> Result<i64> {
        let limit = self.layout.bytes;
        let mut time = 1;
        while self.output.writer.position() < limit {
            let (cpu, at) = self.next_processor();
            let wake = self.waiting.peek().map_or(i64::MAX, |Reverse((wake, _))| *wake);
            if wake <= at {
                time = time.max(wake);
                self.wake(time)?;
                continue;
            }
            time = time.max(at);
            let sample = self.processors[usize::from(cpu)].next_sample;
            if sample <= at {
                self.processors[usize::from(cpu)].next_sample = sample + SAMPLE_TICKS;
                self.sample(cpu, time)?;
            } else {
                self.switch(cpu, time)?;
            }
        }
        Ok(time)
    }

    /// Returns the processor on which something happens first, and when.
    fn next_processor(&self) -> (u16, i64) {
        let time_of = |processor: &Processor| match processor.thread {
            Some(_) => processor.until.min(processor.next_sample),
            None => processor.next_sample,
        };
        let times = (0_u16..).zip(&self.processors).map(|(cpu, processor)| (time_of(processor), cpu));
        times.min().map_or((0, i64::MAX), |(time, cpu)| (cpu, time))
    }

    /// Wakes the thread whose wait ends first.
    fn wake(&mut self, time: i64) -> Result<()> {
        let Some(Reverse((_, thread))) = self.waiting.pop() else { return Ok(()) };
        let cpu = (thread % u32::from(self.layout.cpus.max(1))) as u16;
        self.output.put_ready(cpu, time, FIRST_TID + thread)?;
        self.ready.push_back(thread);
        let idle = self.processors.iter().position(|processor| processor.thread.is_none());
        if let Some(idle) = idle {
            self.switch(idle as u16, time + 1)?;
        }
        Ok(())
    }

    fn switch(&mut self, cpu: u16, time: i64) -> Result<()> {
        let old = self.processors[usize::from(cpu)].thread;
        let new = self.ready.pop_front();
        let mut state = WAITING;
        let mut reason = 0_i8;
        if let Some(old) = old {
            let is_preempted = new.is_some() && self.numbers.below(4) == 0;
            if is_preempted {
                state = READY;
                self.ready.push_back(old);
            } else {
                reason = if self.numbers.below(3) == 0 { 4 } else { 6 };
                let wait = self.numbers.ticks(8000);
                self.waiting.push(Reverse((time + wait, old)));
                match self.numbers.below(64) {
                    0..8 => self.transfer(cpu, time, old)?,
                    8..10 => self.packet(cpu, time, old)?,
                    10..12 => self.memory(cpu, time, old)?,
                    12 => self.output.put_fault(cpu, time)?,
                    _ => {}
                }
            }
        }
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        let id = |thread: Option<u32>| thread.map_or(0, |thread| FIRST_TID + thread);
        let switch = Switch { new_tid: id(new), old_tid: id(old), old_state: state, wait_reason: reason };
        self.output.put_switch(cpu, time, switch)?;
        if let Some(new) = new {
            self.stack(cpu, time, new, None)?;
        }
        let run = self.numbers.ticks(700);
        let processor = &mut self.processors[usize::from(cpu)];
        (processor.thread, processor.until) = (new, time + run);
        Ok(())
    }

    fn transfer(&mut self, cpu: u16, time: i64, thread: u32) -> Result<()> {
        let file = self.numbers.below(FILES * FILES).isqrt();
        let is_write = self.numbers.below(3) == 0;
        let bytes = 4096 << (self.numbers.next() & 7) as u32;
        let duration = 100 + self.numbers.below(5000);
        let tid = FIRST_TID + thread;
        self.output.put_transfer(
            cpu,
            time,
            Transfer { tid, file: file_key(file), bytes, is_write, duration },
        )?;
        if self.numbers.below(20_000) == 0 {
            self.output.flag_loss(cpu)?;
        }
        Ok(())
    }

    fn packet(&mut self, cpu: u16, time: i64, thread: u32) -> Result<()> {
        let pid = self.pid_of(thread);
        let local_port = (50_000 + u64::from(pid) * PORTS % 10_000 + self.numbers.below(PORTS)) as u16;
        let bytes = 1 + self.numbers.below(16_384) as u32;
        let is_sent = self.numbers.below(3) == 0;
        self.output.put_packet(cpu, time, Packet { pid, bytes, local_port, is_sent })
    }

    fn memory(&mut self, cpu: u16, time: i64, thread: u32) -> Result<()> {
        let bytes = 4096 << self.numbers.below(9);
        let is_freed = self.numbers.below(3) == 0;
        self.output.put_memory(cpu, time, MemoryChange { pid: self.pid_of(thread), bytes, is_freed })
    }

    fn sample(&mut self, cpu: u16, time: i64) -> Result<()> {
        let Some(thread) = self.processors[usize::from(cpu)].thread else { return Ok(()) };
        let address = LIBRARY_BASE + self.numbers.below(32) * 0x1000 + 0x10;
        self.output.put_sample(cpu, time, FIRST_TID + thread, address)?;
        self.stack(cpu, time, thread, Some(address))
    }

    /// Writes the stack of an event. One in four begins in the kernel.
    fn stack(&mut self, cpu: u16, time: i64, thread: u32, innermost: Option<u64>) -> Result<()> {
        // Programs spend most of their time in few of the paths.
        let path = self.numbers.below(CALL_PATHS).min(self.numbers.below(CALL_PATHS));
        let mut frames: Vec<u64> = innermost.into_iter().collect();
        if innermost.is_none() {
            frames.extend((0..3).map(|frame| KERNEL_BASE + frame * 0x2000 + 0x40));
        }
        frames.extend((0..6 + path % 10).rev().map(|frame| {
            let choice = if frame < 3 { 0 } else { (path >> (frame % 4)) % 2 };
            PROGRAM_BASE + ((frame + 1) * 8 + choice) * 0x400 + 0x20
        }));
        self.output.put_stack(cpu, time, self.pid_of(thread), FIRST_TID + thread, &frames)
    }
}

fn file_key(file: u64) -> u64 {
    0xFFFF_8000_0000_1000 + file * 0x100
}
