//! Generates the traces under `fixtures/etl`, byte for byte the same each time.
//!
//! ```text
//!   TraceMaker ──write_event(cpu, header, payload)──▶ records, 100 µs apart ──finish()──▶ the file
//! ```
//!
//! All traces describe one machine: a session of two CPUs that starts on 2024-05-01 at 10:00 UTC,
//! an hour after boot, with a counter of 10 MHz. Nothing depends on the clock, the machine or
//! chance.

mod eventsource;
mod files;
pub(crate) mod kernel;
mod manifest;
mod merged;
mod narrow;
mod tracelogging;
mod undecodable;
mod wpp;

use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};

/// The name and the bytes of a trace.
pub(crate) type Fixture = (&'static str, Vec<u8>);

/// Generates every fixture.
pub(crate) fn make_fixtures() -> Vec<Fixture> {
    vec![
        ("tracelogging", tracelogging::make()),
        ("eventsource", eventsource::make()),
        ("manifest", manifest::make()),
        ("kernel", kernel::make()),
        ("wpp", wpp::make()),
        ("merged", merged::make()),
        ("narrow", narrow::make()),
        ("undecodable", undecodable::make()),
        ("compressed", files::make_compressed()),
        ("crashed", files::make_crashed()),
    ]
}

const LEVEL_INFORMATION: u8 = 4;

pub(crate) const TICKS_PER_MICROSECOND: i64 = 10;
/// Time stamp of the start of the session, in ticks: an hour after boot.
pub(crate) const ANCHOR: i64 = 3600 * 1_000_000 * TICKS_PER_MICROSECOND;
/// The default process id of events.
pub(crate) const WRITER_PROCESS: u32 = 1200;
/// The default thread id of events.
pub(crate) const WRITER_THREAD: u32 = 1204;

/// Returns the start of the session: 2024-05-01 10:00 UTC.
pub(crate) fn start_time() -> FileTime {
    FileTime::from_unix(1_714_557_600, 0)
}

/// Returns the options that all sessions share.
pub(crate) fn session_options(name: &str) -> Options {
    Options {
        buffer_size: 0x1000,
        session_name: format!("fixture-{name}"),
        file_name: format!("C:\\traces\\{name}.etl"),
        processors: 2,
        cpu_speed_mhz: 2400,
        anchor: ANCHOR,
        start_time: start_time(),
        boot_time: FileTime(start_time().0 - 36_000_000_000),
        starter: (904, 900),
        ..Options::default()
    }
}

/// Makes a trace file from records.
pub(crate) struct TraceMaker {
    writer: Writer<Vec<u8>>,
    time: i64,
    record: Vec<u8>,
}

impl TraceMaker {
    pub(crate) fn new(options: Options) -> Self {
        let time = options.anchor;
        Self { writer: Writer::create(Vec::new(), options).unwrap(), time, record: Vec::new() }
    }

    /// Advances the clock by 100 µs and returns the time stamp of the next record.
    pub(crate) fn next_time(&mut self) -> i64 {
        self.time += 100 * TICKS_PER_MICROSECOND;
        self.time
    }

    /// Returns the time stamp of the last record.
    pub(crate) fn last_time(&self) -> i64 {
        self.time
    }

    fn write_record(&mut self, cpu: u16) {
        self.writer.write(cpu, self.time, &self.record).unwrap();
        self.record.clear();
    }

    /// Adds an event, and fills in its time. If its process id is 0, also fills in
    /// [`WRITER_PROCESS`] and [`WRITER_THREAD`].
    pub(crate) fn write_event(&mut self, cpu: u16, header: EventHeader<'_>, payload: &[u8]) {
        let time = self.next_time();
        let (process_id, thread_id) = if header.process_id == 0 {
            (WRITER_PROCESS, WRITER_THREAD)
        } else {
            (header.process_id, header.thread_id)
        };
        EventHeader { time, process_id, thread_id, ..header }.encode(payload, &mut self.record).unwrap();
        self.write_record(cpu);
    }

    /// Adds a kernel event that names its process and thread.
    pub(crate) fn write_system(&mut self, cpu: u16, hook: u16, version: u8, ids: (u32, u32), payload: &[u8]) {
        let header = SystemHeader {
            pointer_size: 8,
            version,
            hook,
            process_id: ids.0,
            thread_id: ids.1,
            time: self.next_time(),
            cpu_times: Some((3, 5)),
        };
        header.encode(payload, &mut self.record).unwrap();
        self.write_record(cpu);
    }

    /// Adds a kernel event without process and thread ids.
    pub(crate) fn write_perf(&mut self, cpu: u16, hook: u16, version: u8, payload: &[u8]) {
        let time = self.next_time();
        self.write_perf_at(cpu, hook, version, time, payload);
    }

    /// Adds a kernel event without ids at this time.
    pub(crate) fn write_perf_at(&mut self, cpu: u16, hook: u16, version: u8, time: i64, payload: &[u8]) {
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] };
        header.encode(payload, &mut self.record).unwrap();
        self.write_record(cpu);
    }

    /// Adds a classic event.
    pub(crate) fn write_classic(&mut self, cpu: u16, class: Guid, opcode: u8, version: u16, payload: &[u8]) {
        let header = ClassicHeader {
            pointer_size: 8,
            opcode,
            level: 0,
            version,
            process_id: WRITER_PROCESS,
            thread_id: WRITER_THREAD,
            time: self.next_time(),
            class,
            cpu_times: (0, 0),
            instance: None,
        };
        self.write_classic_with(cpu, header, payload);
    }

    /// Adds a classic event with this header.
    pub(crate) fn write_classic_with(&mut self, cpu: u16, header: ClassicHeader, payload: &[u8]) {
        header.encode(payload, &mut self.record).unwrap();
        self.write_record(cpu);
    }

    /// Adds a WPP message.
    pub(crate) fn write_message(&mut self, cpu: u16, header: MessageHeader, arguments: &[u8]) {
        header.encode(arguments, &mut self.record).unwrap();
        self.write_record(cpu);
    }

    /// Adds a record of arbitrary bytes.
    pub(crate) fn write_raw(&mut self, cpu: u16, record: &[u8]) {
        self.record.extend_from_slice(record);
        self.record.resize(self.record.len().next_multiple_of(8), 0);
        self.write_record(cpu);
    }

    /// Returns the finalised file, which ends a second after its last event.
    pub(crate) fn finish(self) -> Vec<u8> {
        let end_time = FileTime(start_time().0 + self.time - ANCHOR + 10_000_000);
        self.finish_with(Summary { end_time, ..Summary::default() })
    }

    /// Returns the file, finalised with this summary.
    pub(crate) fn finish_with(self, summary: Summary) -> Vec<u8> {
        self.writer.finish(summary).unwrap()
    }

    /// Returns the file as a crash leaves it: the buffers are complete, the header is not updated.
    pub(crate) fn finish_as_after_crash(mut self) -> Vec<u8> {
        self.writer.flush().unwrap();
        let mut file = self.writer.finish(Summary { end_time: FileTime(1), ..Summary::default() }).unwrap();
        // `finish` sets EndTime, BuffersWritten and the flush marker of the last buffer. Clear
        // them.
        file[0x78..0x80].fill(0);
        file[0x8C..0x90].fill(0);
        let last_buffer = file.len() - 0x1000;
        file[last_buffer + 0x34] &= !1;
        file
    }
}

/// A TraceLogging event to be written.
pub(crate) struct SelfDescribing {
    pub(crate) provider: &'static str,
    pub(crate) group: Option<Guid>,
    pub(crate) header: EventHeader<'static>,
}

impl SelfDescribing {
    pub(crate) fn new(provider: &'static str) -> Self {
        let descriptor = EventDescriptor {
            channel: CHANNEL_TRACELOGGING,
            level: LEVEL_INFORMATION,
            keyword: 0x8,
            ..EventDescriptor::default()
        };
        let header = EventHeader {
            provider: Guid::from_provider_name(provider),
            descriptor,
            ..EventHeader::default()
        };
        Self { provider, group: None, header }
    }

    /// Writes the event with its traits and metadata, followed by `further_items`.
    pub(crate) fn write(
        &self,
        maker: &mut TraceMaker,
        cpu: u16,
        metadata: &mut MetadataBuilder,
        payload: &[u8],
        further_items: &[Item<'_>],
    ) {
        let traits = self.traits();
        let mut items = vec![
            Item { kind: ExtType::PROV_TRAITS, data: &traits },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish().unwrap() },
        ];
        items.extend_from_slice(further_items);
        maker.write_event(cpu, EventHeader { items: &items, ..self.header }, payload);
    }

    pub(crate) fn traits(&self) -> Vec<u8> {
        let mut traits = TraitsBuilder::new(self.provider);
        if let Some(group) = &self.group {
            traits.group(group);
        }
        traits.finish().unwrap().to_vec()
    }
}

/// The SID S-1-5-21-1-2-3-1001.
pub(crate) const SID: [u8; 28] =
    [1, 5, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0xE9, 3, 0, 0];

/// 2024-05-01 10:00:00.250, a Wednesday, as a SYSTEMTIME.
pub(crate) const SYSTEM_TIME: [u16; 8] = [2024, 5, 3, 1, 10, 0, 0, 250];

/// The IPv4 SOCKADDR 192.0.2.7:443.
pub(crate) const SOCKET_4: [u8; 16] = [2, 0, 1, 0xBB, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0];

/// The IPv6 address 2001:db8::1.
pub(crate) const ADDRESS_6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Encodes text as UTF-16 without a terminator.
pub(crate) fn utf16_bytes(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}
