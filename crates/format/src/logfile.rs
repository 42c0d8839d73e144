//! TRACE_LOGFILE_HEADER: the payload of a file's first event.
//!
//! ```text
//! off32 off64                           off32 off64
//!  00    00  u32 BufferSize              30    30  u32 EventsLost
//!  04    04  u8 × 4 versions             34    34  u32 CpuSpeedInMHz
//!  08    08  u32 ProviderVersion         38    38  ptr, ptr: unused
//!  0C    0C  u32 NumberOfProcessors      40    48  TIME_ZONE (172)
//!  10    10  FILETIME EndTime            EC    F4  padding
//!  18    18  u32 TimerResolution         F0    F8  FILETIME BootTime
//!  1C    1C  u32 MaximumFileSize         F8   100  i64 PerfFreq
//!  20    20  u32 LogFileMode            100   108  FILETIME StartTime
//!  24    24  u32 BuffersWritten         108   110  u32 clock type
//!  28    28  u32 StartBuffers           10C   114  u32 BuffersLost
//!  2C    2C  u32 PointerSize            110   118  wz session, wz file
//! ```
//!
//! Offsets are hexadecimal. The header type of the event decides which column applies. `EndTime` 0
//! means that the file was never finalised.
//!
//! Source: Documented ("TRACE_LOGFILE_HEADER"), the 64-bit column Observed on real traces.

use alloc::string::String;
use alloc::vec::Vec;

use crate::buffer::{MAX_BUFFER, MIN_BUFFER};
use crate::header::Record;
use crate::text::{decode_utf16, until_nul16};
use crate::time::{Clock, ClockKind, FileTime, UNITS_PER_SECOND};
use crate::wire::{Put, i64_at, u16_at, u32_at};
use crate::{Error, Result};

/// Version of the kernel events that are written: those of Windows 10, version 2004.
const KERNEL_EVENT_VERSION: u32 = 80;

/// Returns the payload of the events `GROUP_MASKS` and `END_GROUP_MASKS`: the eight words of the
/// mask, then the version of the kernel's events.
#[must_use]
pub fn group_masks(groups: &crate::info::GroupMask) -> [u8; 36] {
    let mut payload = [0; 36];
    let words = groups.iter().chain(core::iter::once(&KERNEL_EVENT_VERSION));
    for (to, word) in payload.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    payload
}

/// The major OS version of Windows Vista.
const VISTA_MAJOR: u8 = 6;

/// Size of TIME_ZONE_INFORMATION in bytes.
const TIME_ZONE_SIZE: usize = 172;

/// Offsets of the header's fields in the 32-bit column; [`in_payload`](at::in_payload) returns
/// those of the 64-bit column.
pub(crate) mod at {
    use crate::{buffer, header};

    pub(crate) const BUFFER_SIZE: usize = 0x00;
    pub(crate) const VERSIONS: usize = 0x04;
    pub(crate) const PROVIDER_VERSION: usize = 0x08;
    pub(crate) const PROCESSORS: usize = 0x0C;
    pub(crate) const END_TIME: usize = 0x10;
    pub(crate) const TIMER_RESOLUTION: usize = 0x18;
    pub(crate) const MAXIMUM_FILE_SIZE: usize = 0x1C;
    pub(crate) const LOG_FILE_MODE: usize = 0x20;
    pub(crate) const BUFFERS_WRITTEN: usize = 0x24;
    pub(crate) const START_BUFFERS: usize = 0x28;
    pub(crate) const POINTER_SIZE: usize = 0x2C;
    pub(crate) const EVENTS_LOST: usize = 0x30;
    pub(crate) const CPU_SPEED: usize = 0x34;
    pub(crate) const TIME_ZONE: usize = 0x40;
    pub(crate) const BOOT_TIME: usize = 0xF0;
    pub(crate) const PERF_FREQ: usize = 0xF8;
    pub(crate) const START_TIME: usize = 0x100;
    pub(crate) const CLOCK_TYPE: usize = 0x108;
    pub(crate) const BUFFERS_LOST: usize = 0x10C;
    /// End of the fixed part and offset of the names.
    pub(crate) const NAMES: usize = 0x110;

    /// Offset in a file of the first event's payload.
    pub(crate) const PAYLOAD_IN_FILE: u64 = (buffer::HEADER_SIZE + header::system::SIZE) as u64;

    /// Returns the offset of a field in the payload: after the two pointers, offsets in the
    /// 64-bit column are larger by eight.
    pub(crate) const fn in_payload(field: usize, is_64_bit: bool) -> usize {
        field.saturating_add(if is_64_bit && field >= TIME_ZONE { 8 } else { 0 })
    }

    /// Returns the offset of a field in the file.
    pub(crate) const fn in_file(field: usize, is_64_bit: bool) -> u64 {
        PAYLOAD_IN_FILE.saturating_add(in_payload(field, is_64_bit) as u64)
    }
}

/// The log-file header and the two names after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFileHeader {
    /// Session buffer size in bytes.
    pub buffer_size: u32,
    /// Major and minor version of the OS, then major and minor version of the layout.
    pub versions: [u8; 4],
    /// Build number of the OS.
    pub provider_version: u32,
    /// Number of processors of the machine; 1 without per-processor buffering.
    pub processors: u32,
    /// When the file was finalised; 0 if it was not.
    pub end_time: FileTime,
    /// Length of a timer tick in units of 100 ns.
    pub timer_resolution: u32,
    /// Size limit in MB, or KB depending on the mode; 0 for none.
    pub maximum_file_size: u32,
    /// The log-file mode, `EVENT_TRACE_…_MODE` bits.
    pub log_file_mode: u32,
    /// Buffers written, the header buffer included.
    pub buffers_written: u32,
    /// Buffers at the start that a circular log never overwrites.
    pub start_buffers: u32,
    /// Default pointer size: 4 or 8.
    pub pointer_size: u32,
    /// Number of lost events.
    pub events_lost: u32,
    /// Processor speed in MHz.
    pub cpu_speed_mhz: u32,
    /// The time zone of the machine.
    pub time_zone: TimeZone,
    /// When the machine started.
    pub boot_time: FileTime,
    /// Ticks per second of the performance counter.
    pub perf_freq: i64,
    /// Wall time at the clock anchor, which is the stamp of the file's first event.
    pub start_time: FileTime,
    /// Clock type: 1 performance counter, 2 system time, 3 CPU cycles.
    pub clock_type: u32,
    /// Number of lost buffers.
    pub buffers_lost: u32,
    /// Name of the session.
    pub session_name: String,
    /// Name of the log file.
    pub file_name: String,
}

/// TIME_ZONE_INFORMATION, for display only: all times in a file are UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeZone {
    /// Bias in minutes: UTC = local time + bias.
    pub bias: i32,
    /// Name of standard time, often an indirect string.
    pub standard_name: String,
    /// When standard time begins, as SYSTEMTIME words.
    pub standard_date: [u16; 8],
    /// Minutes added to the bias in standard time.
    pub standard_bias: i32,
    /// Name of daylight time.
    pub daylight_name: String,
    /// When daylight time begins.
    pub daylight_date: [u16; 8],
    /// Minutes added to the bias in daylight time.
    pub daylight_bias: i32,
}

impl LogFileHeader {
    /// Parses the first event of a file.
    pub fn parse(record: &Record<'_>) -> Result<Self> {
        let is_64_bit = record.pointer_size() == 8;
        let payload = record.payload();
        let fixed_bytes = at::in_payload(at::NAMES, is_64_bit);
        if payload.len() < fixed_bytes {
            let (needed, available) = (fixed_bytes as u64, payload.len() as u64);
            let (what, offset) = ("log-file header", at::PAYLOAD_IN_FILE);
            return Err(Error::Truncated { what, offset, needed, available });
        }
        let offset_of = |field| at::in_payload(field, is_64_bit);
        let names = payload.get(fixed_bytes..).unwrap_or_default();
        let session = until_nul16(names);
        let file = names.get(session.len().saturating_add(2)..).map_or(&[][..], until_nul16);
        let pointer_size = match u32_at(payload, at::POINTER_SIZE) {
            size @ (4 | 8) => size,
            _ if is_64_bit => 8,
            _ => 4,
        };
        Ok(Self {
            buffer_size: u32_at(payload, at::BUFFER_SIZE),
            versions: u32_at(payload, at::VERSIONS).to_le_bytes(),
            provider_version: u32_at(payload, at::PROVIDER_VERSION),
            processors: u32_at(payload, at::PROCESSORS),
            end_time: FileTime(i64_at(payload, at::END_TIME)),
            timer_resolution: u32_at(payload, at::TIMER_RESOLUTION),
            maximum_file_size: u32_at(payload, at::MAXIMUM_FILE_SIZE),
            log_file_mode: u32_at(payload, at::LOG_FILE_MODE),
            buffers_written: u32_at(payload, at::BUFFERS_WRITTEN),
            start_buffers: u32_at(payload, at::START_BUFFERS),
            pointer_size,
            events_lost: u32_at(payload, at::EVENTS_LOST),
            cpu_speed_mhz: u32_at(payload, at::CPU_SPEED),
            time_zone: TimeZone::parse(payload.get(offset_of(at::TIME_ZONE)..).unwrap_or_default()),
            boot_time: FileTime(i64_at(payload, offset_of(at::BOOT_TIME))),
            perf_freq: i64_at(payload, offset_of(at::PERF_FREQ)),
            start_time: FileTime(i64_at(payload, offset_of(at::START_TIME))),
            clock_type: u32_at(payload, offset_of(at::CLOCK_TYPE)),
            buffers_lost: u32_at(payload, offset_of(at::BUFFERS_LOST)),
            session_name: decode_utf16(session),
            file_name: decode_utf16(file),
        })
    }

    /// Returns the 64-bit payload.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(0x200);
        payload
            .put_u32(self.buffer_size)
            .put(&self.versions)
            .put_u32(self.provider_version)
            .put_u32(self.processors);
        payload.put_i64(self.end_time.0).put_u32(self.timer_resolution).put_u32(self.maximum_file_size);
        payload.put_u32(self.log_file_mode).put_u32(self.buffers_written).put_u32(self.start_buffers);
        payload.put_u32(self.pointer_size).put_u32(self.events_lost).put_u32(self.cpu_speed_mhz);
        payload.put_u64(0).put_u64(0);
        self.time_zone.put(&mut payload);
        payload.put_u32(0).put_i64(self.boot_time.0).put_i64(self.perf_freq).put_i64(self.start_time.0);
        payload.put_u32(self.clock_type).put_u32(self.buffers_lost);
        payload.put_wide_z(&self.session_name).put_wide_z(&self.file_name);
        payload
    }

    /// Returns the clock of the file, anchored at the stamp of its first event. If the clock type
    /// is unknown or has no rate, the clock is the system time if the anchor can be one, else the
    /// performance counter.
    #[must_use]
    pub fn clock(&self, anchor: i64) -> Clock {
        let is_before_vista = self.versions[0] < VISTA_MAJOR;
        let frequency = u64::try_from(self.perf_freq).ok().filter(|&f| f > 0);
        let (kind, rate) = match (ClockKind::from_number(self.clock_type), frequency) {
            (Some(ClockKind::Qpc), Some(rate)) => (ClockKind::Qpc, rate),
            (Some(ClockKind::SystemTime), _) => (ClockKind::SystemTime, UNITS_PER_SECOND.unsigned_abs()),
            (None, _) if self.clock_type == 0 && is_before_vista => {
                (ClockKind::SystemTime, UNITS_PER_SECOND.unsigned_abs())
            }
            (Some(ClockKind::CpuCycles), _) if self.cpu_speed_mhz > 0 => {
                (ClockKind::CpuCycles, u64::from(self.cpu_speed_mhz).saturating_mul(1_000_000))
            }
            _ if is_plausible_file_time(anchor) => (ClockKind::SystemTime, UNITS_PER_SECOND.unsigned_abs()),
            (_, rate) => (ClockKind::Qpc, rate.unwrap_or(UNITS_PER_SECOND.unsigned_abs())),
        };
        Clock { kind, rate, anchor, start: self.start_time }
    }

    /// Returns whether the clock type is known and has a rate.
    #[must_use]
    pub const fn has_rated_clock(&self) -> bool {
        match ClockKind::from_number(self.clock_type) {
            Some(ClockKind::Qpc) => self.perf_freq > 0,
            Some(ClockKind::SystemTime) => true,
            Some(ClockKind::CpuCycles) => self.cpu_speed_mhz > 0,
            None => self.clock_type == 0 && self.versions[0] < VISTA_MAJOR,
        }
    }

    /// Returns whether INSTANCE records have the short header (layouts before 1.1).
    #[must_use]
    pub const fn has_short_instance_headers(&self) -> bool {
        self.versions[2] < 1 || (self.versions[2] == 1 && self.versions[3] < 1)
    }

    /// Returns whether buffer headers have sizes, sequence numbers, flags and types (Windows Vista
    /// and later, or an unknown version).
    #[must_use]
    pub const fn has_modern_buffers(&self) -> bool {
        self.versions[0] >= VISTA_MAJOR || self.versions[0] == 0
    }

    /// Returns the session's buffer size, if a session can have it.
    #[must_use]
    pub const fn plausible_buffer_size(&self) -> Option<u32> {
        if self.buffer_size >= MIN_BUFFER && self.buffer_size <= MAX_BUFFER {
            Some(self.buffer_size)
        } else {
            None
        }
    }
}

/// Returns whether a value is a FILETIME between the years 1980 and 2200, a range that no counter
/// of ticks since boot reaches.
const fn is_plausible_file_time(t: i64) -> bool {
    t > 119_600_064_000_000_000 && t < 189_024_192_000_000_000
}

impl TimeZone {
    fn parse(b: &[u8]) -> Self {
        let name =
            |at: usize| decode_utf16(until_nul16(b.get(at..at.saturating_add(64)).unwrap_or_default()));
        let date = |at: usize| core::array::from_fn(|i| u16_at(b, at.saturating_add(i.saturating_mul(2))));
        let bias = |at| u32_at(b, at).cast_signed();
        Self {
            bias: bias(0),
            standard_name: name(4),
            standard_date: date(68),
            standard_bias: bias(84),
            daylight_name: name(88),
            daylight_date: date(152),
            daylight_bias: bias(168),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let end = out.len().saturating_add(TIME_ZONE_SIZE);
        out.put_i32(self.bias);
        for (name, date, bias) in [
            (&self.standard_name, &self.standard_date, self.standard_bias),
            (&self.daylight_name, &self.daylight_date, self.daylight_bias),
        ] {
            // At most 31 units and a NUL.
            for unit in name.encode_utf16().chain(core::iter::repeat(0)).take(31) {
                out.put_u16(unit);
            }
            out.put_u16(0);
            for word in date {
                out.put_u16(*word);
            }
            out.put_i32(bias);
        }
        out.resize(end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::system::SystemHeader;
    use crate::kernel;
    use crate::kernel::hook;
    use crate::spec::event::class;

    fn encode_header_record(header: &LogFileHeader) -> Vec<u8> {
        let mut out = Vec::new();
        let system = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::LOG_FILE_HEADER,
            thread_id: 1,
            process_id: 2,
            time: 3,
            cpu_times: Some((0, 0)),
        };
        system.encode(&header.to_payload(), &mut out).unwrap();
        out
    }

    #[test]
    fn headers_round_trip() {
        let header = LogFileHeader {
            buffer_size: 0x10000,
            versions: [10, 0, 1, 5],
            provider_version: 19041,
            processors: 8,
            end_time: FileTime(99),
            timer_resolution: 156_250,
            maximum_file_size: 500,
            log_file_mode: 0x1100_2009,
            buffers_written: 7,
            start_buffers: 1,
            pointer_size: 8,
            events_lost: 41,
            cpu_speed_mhz: 3592,
            time_zone: TimeZone { bias: -60, standard_name: "@tzres.dll,-302".into(), ..Default::default() },
            boot_time: FileTime(11),
            perf_freq: 10_000_000,
            start_time: FileTime(22),
            clock_type: 1,
            buffers_lost: 2,
            session_name: "Relogger".into(),
            file_name: "[multiple files]".into(),
        };
        let bytes = encode_header_record(&header);
        assert_eq!(LogFileHeader::parse(&Record::parse(&bytes, 0).unwrap()), Ok(header));
    }

    #[test]
    fn header_event_has_the_documented_size() {
        let header = LogFileHeader {
            session_name: "solar_system".into(),
            file_name: "C:\\primitive-types_000004.etl".into(),
            ..Default::default()
        };
        assert_eq!(Record::parse(&encode_header_record(&header), 0).unwrap().bytes().len(), 0x18E);
    }

    #[test]
    fn kernel_event_shape_has_the_same_offsets() {
        let (shape, _) = kernel::shape_of(&class::EVENT_TRACE, 0, 0).unwrap();
        let expected_offsets = [
            ("BufferSize", at::BUFFER_SIZE),
            ("Version", at::VERSIONS),
            ("ProviderVersion", at::PROVIDER_VERSION),
            ("NumberOfProcessors", at::PROCESSORS),
            ("EndTime", at::END_TIME),
            ("TimerResolution", at::TIMER_RESOLUTION),
            ("MaxFileSize", at::MAXIMUM_FILE_SIZE),
            ("LogFileMode", at::LOG_FILE_MODE),
            ("BuffersWritten", at::BUFFERS_WRITTEN),
            ("StartBuffers", at::START_BUFFERS),
            ("PointerSize", at::POINTER_SIZE),
            ("EventsLost", at::EVENTS_LOST),
            ("CPUSpeed", at::CPU_SPEED),
            ("TimeZoneInformation", at::TIME_ZONE),
            ("BootTime", at::BOOT_TIME),
            ("PerfFreq", at::PERF_FREQ),
            ("StartTime", at::START_TIME),
            ("ReservedFlags", at::CLOCK_TYPE),
            ("BuffersLost", at::BUFFERS_LOST),
            ("SessionNameString", at::NAMES),
        ];
        for is_64_bit in [false, true] {
            let (mut offset, mut checked) = (0, 0);
            for field in shape.fields {
                if let Some((name, expected)) = expected_offsets.iter().find(|(name, _)| *name == field.name)
                {
                    assert_eq!(offset, at::in_payload(*expected, is_64_bit), "{name}, 64-bit: {is_64_bit}");
                    checked += 1;
                }
                offset += field.size(if is_64_bit { 8 } else { 4 }).unwrap_or(0);
            }
            assert_eq!(checked, expected_offsets.len());
        }
        assert_eq!(at::in_file(at::NAMES, true), 0x68 + 0x118);
    }

    #[test]
    fn impossible_clock_is_replaced_by_a_plausible_one() {
        let clock = |clock_type, perf_freq, anchor| {
            LogFileHeader { clock_type, perf_freq, versions: [10, 0, 1, 5], ..Default::default() }
                .clock(anchor)
        };
        assert_eq!(clock(1, 0, 5).rate, 10_000_000);
        assert_eq!(clock(9, 0, 132_400_000_000_000_000).kind, ClockKind::SystemTime);
        assert_eq!(clock(3, 3_000_000, 5).kind, ClockKind::Qpc, "a cycle clock without a speed was used");
        assert_eq!(clock(2, 10, 5).kind, ClockKind::SystemTime);
    }
}
