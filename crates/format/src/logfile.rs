//! TRACE_LOGFILE_HEADER: the payload of a file's first event.
//!
//! ```text
//! off32 off64
//!  00    00  u32 BufferSize          1C    1C  u32 MaximumFileSize   30    30  u32 EventsLost        F0    F8  FILETIME BootTime
//!  04    04  u8 × 4 versions         20    20  u32 LogFileMode       34    34  u32 CpuSpeedInMHz     F8   100  i64 PerfFreq
//!  08    08  u32 ProviderVersion     24    24  u32 BuffersWritten    38    38  ptr, ptr: unused     100   108  FILETIME StartTime
//!  0C    0C  u32 NumberOfProcessors  28    28  u32 StartBuffers      40    48  TIME_ZONE (172)      108   110  u32 clock type
//!  10    10  FILETIME EndTime        2C    2C  u32 PointerSize       EC    F4  padding              10C   114  u32 BuffersLost
//!  18    18  u32 TimerResolution                                                                   110   118  wz session, wz file
//! ```
//!
//! The header type of the event decides which column applies. `EndTime` 0 means that the file was never finalised. Source:
//! Documented ("TRACE_LOGFILE_HEADER"), the 64-bit column Observed on real traces.

use alloc::string::String;
use alloc::vec::Vec;

use crate::header::Record;
use crate::text::{until_nul16, utf16};
use crate::time::{Clock, ClockKind, FileTime, UNITS_PER_SECOND};
use crate::wire::{Put, i64_at, u8_at, u16_at, u32_at};
use crate::{Error, Result};

/// Hook id of the log-file header event.
pub const HOOK: u16 = 0x0000;

const TIME_ZONE_SIZE: usize = 172;

/// The log-file header and the two names behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFileHeader {
    /// Session buffer size in bytes.
    pub buffer_size: u32,
    /// OS major and minor version, then layout version and sub-version.
    pub versions: [u8; 4],
    /// OS build.
    pub provider_version: u32,
    /// Processors of the machine; 1 without per-processor buffering.
    pub processors: u32,
    /// When the file was finalised; 0 if it was not.
    pub end_time: FileTime,
    /// Timer tick in 100 ns.
    pub timer_resolution: u32,
    /// Limit in MB, or KB by the mode; 0 = none.
    pub maximum_file_size: u32,
    /// `EVENT_TRACE_…_MODE` bits.
    pub log_file_mode: u32,
    /// Buffers written, the header buffer included.
    pub buffers_written: u32,
    /// Buffers at the start that a circular log never overwrites.
    pub start_buffers: u32,
    /// Default pointer size, 4 or 8.
    pub pointer_size: u32,
    /// Events lost.
    pub events_lost: u32,
    /// Processor speed.
    pub cpu_speed_mhz: u32,
    /// The time zone of the machine.
    pub time_zone: TimeZone,
    /// When the machine started.
    pub boot_time: FileTime,
    /// Ticks a second of the performance counter.
    pub perf_freq: i64,
    /// Wall time of the clock anchor.
    pub start_time: FileTime,
    /// 1 performance counter, 2 system time, 3 CPU cycles.
    pub clock_type: u32,
    /// Buffers lost.
    pub buffers_lost: u32,
    /// Session name.
    pub session_name: String,
    /// Log-file name.
    pub file_name: String,
}

/// TIME_ZONE_INFORMATION, for display only: all times in a file are UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeZone {
    /// Minutes: UTC = local time + bias.
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
    /// From the first event of a file.
    pub fn parse(record: &Record<'_>) -> Result<Self> {
        let wide = record.pointer_size() == 8;
        let p = record.payload();
        let fixed = if wide { 0x118_usize } else { 0x110 };
        if p.len() < fixed {
            let (needed, available) = (fixed as u64, p.len() as u64);
            return Err(Error::Truncated { what: "log-file header", offset: 0x68, needed, available });
        }
        // Behind the two pointers the 64-bit column lies eight bytes further on.
        let late = |off32: usize| if wide { off32.saturating_add(8) } else { off32 };
        let names = p.get(fixed..).unwrap_or_default();
        let session = until_nul16(names);
        let file = names.get(session.len().saturating_add(2)..).map_or(&[][..], until_nul16);
        let pointer_size = match u32_at(p, 0x2C) {
            size @ (4 | 8) => size,
            _ if wide => 8,
            _ => 4,
        };
        Ok(Self {
            buffer_size: u32_at(p, 0x00),
            versions: [u8_at(p, 4), u8_at(p, 5), u8_at(p, 6), u8_at(p, 7)],
            provider_version: u32_at(p, 0x08),
            processors: u32_at(p, 0x0C),
            end_time: FileTime(i64_at(p, 0x10)),
            timer_resolution: u32_at(p, 0x18),
            maximum_file_size: u32_at(p, 0x1C),
            log_file_mode: u32_at(p, 0x20),
            buffers_written: u32_at(p, 0x24),
            start_buffers: u32_at(p, 0x28),
            pointer_size,
            events_lost: u32_at(p, 0x30),
            cpu_speed_mhz: u32_at(p, 0x34),
            time_zone: TimeZone::parse(p.get(late(0x40)..).unwrap_or_default()),
            boot_time: FileTime(i64_at(p, late(0xF0))),
            perf_freq: i64_at(p, late(0xF8)),
            start_time: FileTime(i64_at(p, late(0x100))),
            clock_type: u32_at(p, late(0x108)),
            buffers_lost: u32_at(p, late(0x10C)),
            session_name: utf16(session),
            file_name: utf16(file),
        })
    }

    /// The 64-bit payload.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let mut p = Vec::with_capacity(0x200);
        p.put_u32(self.buffer_size)
            .put(&self.versions)
            .put_u32(self.provider_version)
            .put_u32(self.processors);
        p.put_i64(self.end_time.0).put_u32(self.timer_resolution).put_u32(self.maximum_file_size);
        p.put_u32(self.log_file_mode).put_u32(self.buffers_written).put_u32(self.start_buffers);
        p.put_u32(self.pointer_size).put_u32(self.events_lost).put_u32(self.cpu_speed_mhz);
        p.put_u64(0).put_u64(0);
        self.time_zone.put(&mut p);
        p.put_u32(0).put_i64(self.boot_time.0).put_i64(self.perf_freq).put_i64(self.start_time.0);
        p.put_u32(self.clock_type).put_u32(self.buffers_lost);
        p.put_wide_z(&self.session_name).put_wide_z(&self.file_name);
        p
    }

    /// The clock of the file, anchored at the stamp of its first event.
    #[must_use]
    pub fn clock(&self, anchor: i64) -> Clock {
        let before_vista = self.versions[0] < 6;
        let frequency = u64::try_from(self.perf_freq).ok().filter(|&f| f > 0);
        let (kind, rate) = match (self.clock_type, frequency) {
            (1, Some(rate)) => (ClockKind::Qpc, rate),
            (2, _) => (ClockKind::SystemTime, UNITS_PER_SECOND.unsigned_abs()),
            (0, _) if before_vista => (ClockKind::SystemTime, UNITS_PER_SECOND.unsigned_abs()),
            (3, _) if self.cpu_speed_mhz > 0 => {
                (ClockKind::CpuCycles, u64::from(self.cpu_speed_mhz).saturating_mul(1_000_000))
            }
            _ if looks_like_file_time(anchor) => (ClockKind::SystemTime, UNITS_PER_SECOND.unsigned_abs()),
            (_, rate) => (ClockKind::Qpc, rate.unwrap_or(UNITS_PER_SECOND.unsigned_abs())),
        };
        Clock { kind, rate, anchor, start: self.start_time }
    }

    /// Whether INSTANCE records have the short header (layouts before 1.1).
    #[must_use]
    pub const fn has_old_instances(&self) -> bool {
        self.versions[2] < 1 || (self.versions[2] == 1 && self.versions[3] < 1)
    }

    /// Whether buffer headers have sizes, sequence numbers, flags and types (Windows Vista and later).
    #[must_use]
    pub const fn has_modern_buffers(&self) -> bool {
        self.versions[0] >= 6 || self.versions[0] == 0
    }

    /// The session's buffer size, if a session can have it.
    #[must_use]
    pub const fn plausible_buffer_size(&self) -> Option<u32> {
        if self.buffer_size >= 1024 && self.buffer_size <= crate::buffer::MAX_BUFFER {
            Some(self.buffer_size)
        } else {
            None
        }
    }
}

/// Between the years 1980 and 2200, a range that no counter of ticks since boot reaches.
const fn looks_like_file_time(t: i64) -> bool {
    t > 119_600_064_000_000_000 && t < 189_024_192_000_000_000
}

impl TimeZone {
    fn parse(b: &[u8]) -> Self {
        let name = |at: usize| utf16(until_nul16(b.get(at..at.saturating_add(64)).unwrap_or_default()));
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
            // 31 units and a NUL at most.
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

    fn record_of(header: &LogFileHeader) -> Vec<u8> {
        let mut out = Vec::new();
        let system = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook: HOOK,
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
        let bytes = record_of(&header);
        assert_eq!(LogFileHeader::parse(&Record::parse(&bytes, 0).unwrap()), Ok(header));
    }

    #[test]
    fn the_event_of_the_sample_names_has_the_documented_size() {
        let header = LogFileHeader {
            session_name: "solar_system".into(),
            file_name: "C:\\primitive-types_000004.etl".into(),
            ..Default::default()
        };
        assert_eq!(Record::parse(&record_of(&header), 0).unwrap().bytes().len(), 0x18E);
    }

    #[test]
    fn impossible_clocks_fall_back() {
        let clock = |clock_type, perf_freq, anchor| {
            LogFileHeader { clock_type, perf_freq, versions: [10, 0, 1, 5], ..Default::default() }
                .clock(anchor)
        };
        assert_eq!(clock(1, 0, 5).rate, 10_000_000);
        assert_eq!(clock(9, 0, 132_400_000_000_000_000).kind, ClockKind::SystemTime);
        assert_eq!(clock(3, 3_000_000, 5).kind, ClockKind::Qpc, "cycles without a speed");
        assert_eq!(clock(2, 10, 5).kind, ClockKind::SystemTime);
    }
}
