//! How a session is made, as typed.

use clap::{Args, ValueEnum};
use traceweir::Guid;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_APPEND,
    EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_FILE_MODE_PREALLOCATE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_INDEPENDENT_SESSION_MODE,
    EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING, EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SECURE_MODE,
    LOG_FILE_MODES,
};

use super::number::{buffers, kib, mib, seconds};
use crate::filter::parse_mask;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockName {
    /// The processor's time-stamp counter
    Qpc,
    /// Wall time in units of 100 ns
    System,
    /// Processor cycles
    Cycles,
}

impl ClockName {
    /// The published number (`Wnode.ClientContext`).
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Qpc => 1,
            Self::System => 2,
            Self::Cycles => 3,
        }
    }
}

/// How a session is made.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct Shape {
    /// A file that grows, up to --max-size [the default with -o]
    #[arg(long)]
    pub(crate) sequential: bool,
    /// A file that keeps the newest events, as many as fit --max-size
    #[arg(long)]
    pub(crate) circular: bool,
    /// Add to a file of an earlier session, which had the same clock (system) and buffer size
    #[arg(long)]
    pub(crate) append: bool,
    /// A row of files of --max-size each; the name has a %d for their numbers
    #[arg(long)]
    pub(crate) new_file: bool,
    /// Live, for weir watch [the default without -o]; with -o also a file
    #[arg(long)]
    pub(crate) real_time: bool,
    /// A flight recorder: the newest events stay in memory until weir flush, or weir stop where there is -o
    #[arg(long)]
    pub(crate) buffering: bool,
    /// Reserve --max-size on the disk at once
    #[arg(long)]
    pub(crate) preallocate: bool,
    /// Compress what is written
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Only who was granted it may write to the session (weir access)
    #[arg(long)]
    pub(crate) secure: bool,
    /// An event that another session has no room for reaches this one all the same
    #[arg(long)]
    pub(crate) independent: bool,
    /// One stream of buffers for all processors: events of one thread stay in order, whatever it runs on
    #[arg(long)]
    pub(crate) no_per_processor: bool,
    /// More of LogFileMode: names (use-local-sequence) or bits (0x8000), separated by commas
    #[arg(long, value_delimiter = ',', value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Vec<u32>,
    /// Size of a buffer, 4 to 16384 [default: 64]
    #[arg(long, value_name = "KIB", value_parser = kib)]
    pub(crate) buffer_size: Option<u32>,
    /// Buffers at least [default: 4 MiB of them; a flight recorder has a fixed number, 16 MiB of them]
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) min_buffers: Option<u32>,
    /// Buffers at most [default: 32 MiB of them]
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) max_buffers: Option<u32>,
    /// Size of the file at most; one that grows ends its session there, a circular one goes round [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = mib)]
    pub(crate) max_size: Option<u32>,
    /// Write out buffers after so long, full or not; each takes its whole size in the file. 0: only full ones [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// Write out buffers only when so many are full [default: each at once]
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) flush_threshold: Option<u32>,
    /// How events are stamped [default: qpc; with --append system]
    #[arg(long, value_enum, value_name = "CLOCK")]
    pub(crate) clock: Option<ClockName>,
    /// Collect each event at once instead of when room runs short
    #[arg(long)]
    pub(crate) low_latency: bool,
    /// The id of the session, by which it is granted and asked for too [default: a new one]
    #[arg(long, value_name = "GUID")]
    pub(crate) guid: Option<Guid>,
}

impl Shape {
    /// The bits of LogFileMode that were asked for.
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
        let of_flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| *bit);
        of_flags.chain(self.mode.iter().copied()).fold(0, |all, bits| all | bits)
    }
}

/// Bits of LogFileMode: by number, or by their published name without regard to case, hyphens and underscores.
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let spelled = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    if let Some((bit, _)) = LOG_FILE_MODES.iter().find(|(_, name)| spelled(name) == spelled(text)) {
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
    fn modes_have_names_and_numbers() {
        for (text, bits) in [
            ("real-time", 0x100),
            ("REAL_TIME", 0x100),
            ("new-file", 8),
            ("newfile", 8),
            ("0x100", 0x100),
            ("256", 0x100),
            ("no-per-processor-buffering", 0x1000_0000),
        ] {
            assert_eq!(parse_mode(text), Ok(bits), "{text}");
        }
        assert!(parse_mode("round").unwrap_err().contains("circular"));
        assert!(parse_mode("0x100000000").is_err());
    }

    #[test]
    fn flags_and_modes_add_up() {
        let shape = Shape { compressed: true, real_time: true, mode: vec![1, 0x8000], ..Shape::default() };
        assert_eq!(shape.mode_bits(), 0x0400_8101);
    }
}
