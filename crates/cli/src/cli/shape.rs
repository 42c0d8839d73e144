//! Command-line arguments that set the mode, buffers and clock of a session.

use clap::{Args, ValueEnum};
use traceweir::{ClockKind, Guid};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_APPEND,
    EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_FILE_MODE_PREALLOCATE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_INDEPENDENT_SESSION_MODE,
    EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING, EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SECURE_MODE,
    LOG_FILE_MODES,
};

use super::number::{SizeLimit, parse_buffer_count, parse_kib, parse_seconds, parse_size};
use crate::text::parse_mask;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockName {
    /// The performance counter: CLOCK_MONOTONIC in nanoseconds
    Qpc,
    /// Wall time in units of 100 ns
    System,
    /// Processor cycles
    Cycles,
}

impl ClockName {
    /// Returns the clock of this name.
    pub(crate) const fn clock_kind(self) -> ClockKind {
        match self {
            Self::Qpc => ClockKind::Qpc,
            Self::System => ClockKind::SystemTime,
            Self::Cycles => ClockKind::CpuCycles,
        }
    }
}

/// Mode, buffers and clock of a session.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct ShapeArgs {
    /// Write a file that grows up to --max-size [the default with -o]
    #[arg(long)]
    pub(crate) sequential: bool,
    /// Keep the newest events in the file, as many as fit in --max-size
    #[arg(long)]
    pub(crate) circular: bool,
    /// Append to the file of an earlier session with the same clock (system) and buffer size
    #[arg(long)]
    pub(crate) append: bool,
    /// Write a sequence of files of --max-size each; the name contains %d for their number
    #[arg(long)]
    pub(crate) new_file: bool,
    /// Deliver events live to weir watch [the default without -o]; with -o also to a file
    #[arg(long)]
    pub(crate) real_time: bool,
    /// Run a flight recorder: keep the newest events in memory. weir flush writes them to a file;
    /// if weir start got -o, weir stop does too
    #[arg(long)]
    pub(crate) buffering: bool,
    /// Reserve --max-size on the disk at the start
    #[arg(long)]
    pub(crate) preallocate: bool,
    /// Compress the buffers in the file
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Let only users with the right "log" write to the session (weir access)
    #[arg(long)]
    pub(crate) secure: bool,
    /// Record an event even if another session that receives it has no room
    #[arg(long)]
    pub(crate) independent: bool,
    /// Use one stream of buffers for all processors, so that events of a thread stay in order when
    /// it moves
    #[arg(long)]
    pub(crate) no_per_processor: bool,
    /// Further LogFileMode flags: names (use-local-sequence) or bits (0x8000), separated by commas
    #[arg(long, value_delimiter = ',', value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Vec<u32>,
    /// Size of each buffer, 4 to 16384 [default: 64]
    #[arg(long, value_name = "KIB", value_parser = parse_kib)]
    pub(crate) buffer_size: Option<u32>,
    /// Minimum number of buffers [default: 4 MiB in all; a flight recorder has a fixed number, 16
    /// MiB in all]
    #[arg(long, value_name = "N", value_parser = parse_buffer_count)]
    pub(crate) min_buffers: Option<u32>,
    /// Maximum number of buffers [default: 32 MiB in all]
    #[arg(long, value_name = "N", value_parser = parse_buffer_count)]
    pub(crate) max_buffers: Option<u32>,
    /// Maximum size of the file, in MiB or with K, M or G; a sequential session ends there, a
    /// circular file wraps around [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_size: Option<SizeLimit>,
    /// Flush partly filled buffers after this time; each takes its full size in the file. 0 flushes
    /// only full ones [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// Flush only when this many buffers are full [default: each at once]
    #[arg(long, value_name = "N", value_parser = parse_buffer_count)]
    pub(crate) flush_threshold: Option<u32>,
    /// Clock for timestamps [default: qpc; with --append system]
    #[arg(long, value_enum, value_name = "CLOCK")]
    pub(crate) clock: Option<ClockName>,
    /// Collect each event at once, not only when buffers fill up
    #[arg(long)]
    pub(crate) low_latency: bool,
    /// GUID of the session, for access rights and for naming it [default: a new one]
    #[arg(long, value_name = "GUID")]
    pub(crate) guid: Option<Guid>,
}

impl ShapeArgs {
    /// Returns the LogFileMode bits of all flags.
    pub(crate) fn mode_bits(&self) -> u32 {
        let flags = [
            (self.sequential, EVENT_TRACE_FILE_MODE_SEQUENTIAL),
            (self.circular, EVENT_TRACE_FILE_MODE_CIRCULAR),
            (self.append, EVENT_TRACE_FILE_MODE_APPEND),
            (self.new_file, EVENT_TRACE_FILE_MODE_NEWFILE),
            (self.real_time, EVENT_TRACE_REAL_TIME_MODE),
            (self.buffering, EVENT_TRACE_BUFFERING_MODE),
            (self.preallocate, EVENT_TRACE_FILE_MODE_PREALLOCATE),
            (self.compressed, EVENT_TRACE_COMPRESSED_MODE),
            (self.secure, EVENT_TRACE_SECURE_MODE),
            (self.independent, EVENT_TRACE_INDEPENDENT_SESSION_MODE),
            (self.no_per_processor, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING),
        ];
        let set_bits = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| *bit);
        set_bits.chain(self.mode.iter().copied()).fold(0, |all, bits| all | bits)
    }
}

/// Parses LogFileMode bits: a number, or a documented name (ignoring case, hyphens and
/// underscores).
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let normalize = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    if let Some((bit, _)) = LOG_FILE_MODES.iter().find(|(_, name)| normalize(name) == normalize(text)) {
        return Ok(*bit);
    }
    let number = parse_mask(text).ok().and_then(|bits| u32::try_from(bits).ok());
    number.ok_or_else(|| {
        let names = LOG_FILE_MODES.iter().map(|(_, name)| name.to_ascii_lowercase().replace('_', "-"));
        format!("use bits (0x100) or names: {}", names.collect::<Vec<_>>().join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_parse_from_name_and_number() {
        for (text, bits) in [
            ("real-time", EVENT_TRACE_REAL_TIME_MODE),
            ("REAL_TIME", EVENT_TRACE_REAL_TIME_MODE),
            ("new-file", EVENT_TRACE_FILE_MODE_NEWFILE),
            ("newfile", EVENT_TRACE_FILE_MODE_NEWFILE),
            ("0x100", EVENT_TRACE_REAL_TIME_MODE),
            ("256", EVENT_TRACE_REAL_TIME_MODE),
            ("no-per-processor-buffering", EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING),
        ] {
            assert_eq!(parse_mode(text), Ok(bits), "{text}");
        }
        assert!(parse_mode("round").unwrap_err().contains("circular"));
        assert!(parse_mode("0x100000000").is_err());
    }

    #[test]
    fn mode_bits_combine_flags_and_modes() {
        let shape =
            ShapeArgs { compressed: true, real_time: true, mode: vec![1, 0x8000], ..ShapeArgs::default() };
        // Compressed 0x0400_0000, use-local-sequence 0x8000, real-time 0x100, sequential 1.
        assert_eq!(shape.mode_bits(), 0x0400_8101);
    }
}
