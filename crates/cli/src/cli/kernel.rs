//! Command-line arguments that choose the kernel events of a session.

use clap::Args;

use super::number::parse_frequency;
use crate::grammar::{KernelSelection, StackSelection, parse_kernel, parse_stacks};
use crate::text::parse_duration;

/// Syntax of `--kernel`, for help pages.
pub(crate) const KERNEL_SYNTAX: &str = "\
--kernel WHAT chooses kernel events for the same session; presets and groups are joined by commas
  cpu                  CPU samples with call stacks, and processes, threads, images
  sched                cpu, and context switches and wakeups, with call stacks
  disk, net, file      disk requests; TCP and UDP; file operations, with call stacks
  syscall              system calls, and context switches, which show whose calls they are
  all                  everything, also interrupts and page faults
  cswitch,dispatcher   groups by published name, or profile+cswitch as in xperf:
                       process thread image_load process_counters cswitch dispatcher priority
                       profile dpc interrupt clock_interrupt ipi systemcall disk_io disk_io_init
                       disk_file_io split_io file_io file_io_init memory_page_faults
                       memory_hard_faults virtual_alloc network_tcpip; no_sysconfig
  0x10000              bits of EnableFlags
  --stacks CSwitch,DiskIo/Read,FileIo,0x0524       call stacks for these events, classes, hook ids
The whole machine needs root or CAP_PERFMON: weir doctor shows what is missing and how to fix it.";

/// Kernel events of a new session.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kernel events")]
pub(crate) struct KernelEvents {
    /// Record kernel events too: cpu, sched, disk, net, file, syscall, all, group names, or bits of
    /// EnableFlags
    #[arg(long, value_name = "WHAT", value_parser = parse_kernel)]
    pub(crate) kernel: Option<KernelSelection>,
    /// Record call stacks with these kernel events: none, default, all, or event names [default:
    /// those of WHAT]
    #[arg(long, value_name = "EVENTS", value_parser = parse_stacks)]
    pub(crate) stacks: Option<StackSelection>,
    /// Sampling interval of each processor, for all sessions: 1ms, 125us [default: unchanged,
    /// initially 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Option<u32>,
    /// Samples per second of each processor; the same as --interval 1s/HZ
    #[arg(short = 'F', long, value_name = "HZ", value_parser = parse_frequency, conflicts_with = "interval")]
    pub(crate) frequency: Option<u32>,
    /// Unwind user stacks with DWARF tables, copying SIZE bytes of stack per sample: 16K, at most
    /// 64K. Needed for programs built without frame pointers. Uses only program files that belong
    /// to root or the daemon's user and that no other user can write [default: frame pointers,
    /// which cost less]
    #[arg(long, value_name = "SIZE", value_parser = parse_stack_bytes)]
    pub(crate) unwind: Option<u32>,
}

impl KernelEvents {
    /// Returns the requested sampling interval in units of 100 ns.
    pub(crate) fn requested_interval(&self) -> Option<u32> {
        self.interval.or(self.frequency)
    }

    /// Adds the kernel events of profiles.
    pub(crate) fn add(&mut self, profile: Option<KernelSelection>) {
        self.kernel = match (self.kernel.take(), profile) {
            (Some(kernel), Some(profile)) => Some(kernel.merge(&profile)),
            (kernel, profile) => kernel.or(profile),
        };
    }

    /// Ends the program with a usage error if an option needs kernel events and none are recorded.
    pub(crate) fn check_used(&self) {
        let options = [
            ("--stacks", self.stacks.is_some()),
            ("--interval", self.interval.is_some()),
            ("-F", self.frequency.is_some()),
            ("--unwind", self.unwind.is_some()),
        ];
        if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given && self.kernel.is_none()) {
            super::exit_with_conflict(&format!(
                "{option} is for kernel events, and none are recorded: add --kernel cpu"
            ));
        }
    }
}

/// Changes to the kernel events of a running session.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Kernel events")]
pub(crate) struct KernelChange {
    /// Record these kernel events instead, as for weir start; none: stop recording kernel events
    #[arg(long, value_name = "WHAT", value_parser = parse_kernel)]
    pub(crate) kernel: Option<KernelSelection>,
    /// Record call stacks with these kernel events: none, default (the useful ones of the
    /// recorded groups), all, or event names
    #[arg(long, value_name = "EVENTS", value_parser = parse_stacks)]
    pub(crate) stacks: Option<StackSelection>,
    /// Sampling interval of each processor, for all sessions: 1ms, 125us
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Option<u32>,
}

/// Parses a stack size in kibibytes and returns it in bytes.
fn parse_stack_bytes(text: &str) -> Result<u32, String> {
    let message = || "use a size of 1K to 64K, such as 16K".to_owned();
    let kibibytes: u32 = text.trim_end_matches(['k', 'K']).parse().map_err(|_| message())?;
    if (1..=64).contains(&kibibytes) && text.ends_with(['k', 'K']) {
        Ok(kibibytes << 10)
    } else {
        Err(message())
    }
}

/// Parses a time and returns it in units of 100 ns. A bare number, which means seconds elsewhere,
/// is an error, because an interval in seconds is almost certainly a mistake.
fn parse_interval(text: &str) -> Result<u32, String> {
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!("{} has no unit: use a time such as 1ms, 125us or 0.5ms", text.trim()));
    }
    let time = parse_duration(text).map_err(|_| "use a time such as 1ms, 125us or 0.5ms".to_owned())?;
    let units = u32::try_from(time.as_nanos() / 100).ok().filter(|units| *units > 0);
    units
        .ok_or_else(|| "use a time of 100 ns to 429 s; the daemon uses the nearest possible value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_sizes_parse_as_kibibytes() {
        assert_eq!([parse_stack_bytes("16K"), parse_stack_bytes("64k")], [Ok(16 << 10), Ok(64 << 10)]);
        assert!(["0K", "65K", "16", "K", "1M", "-1K"].iter().all(|text| parse_stack_bytes(text).is_err()));
    }

    #[test]
    fn intervals_need_a_unit() {
        for (text, units) in [("1ms", 10_000), ("125us", 1_250), ("0.5ms", 5_000), ("1s", 10_000_000)] {
            assert_eq!(parse_interval(text), Ok(units), "{text}");
        }
        for wrong in ["", "0", "1", "0.001", "10ns", "1h", "fast", "-1ms"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
