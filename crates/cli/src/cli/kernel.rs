//! Kernel events of a session, as typed.

use clap::Args;

use crate::filter::parse_duration;
use crate::grammar::{Kernel, Stacks, parse_kernel, parse_stacks};

/// What `--kernel` understands, for help pages.
pub(crate) const KERNEL: &str = "\
KERNEL is what the system's kernel tells, into the same session; WHAT and groups are joined by commas
  cpu                  samples of all processors with call stacks, and processes, threads, images
  sched                that, and context switches and who made whom ready, with call stacks
  disk, net, file      requests to disks; TCP and UDP; operations on files, with call stacks
  all                  all of it and more: system calls, interrupts, page faults …
  cswitch,dispatcher   groups by their published names, or profile+cswitch as xperf has it:
                       process thread image_load process_counters cswitch dispatcher priority profile dpc interrupt
                       clock_interrupt ipi systemcall disk_io disk_io_init disk_file_io split_io file_io file_io_init
                       memory_page_faults memory_hard_faults virtual_alloc network_tcpip; no_sysconfig
  0x10000              EnableFlags
  --stacks CSwitch,DiskIo/Read,FileIo,0x0524       call stacks of these events, classes, hooks
The whole machine takes root or CAP_PERFMON: weir doctor says what is missing, and what to type.";

/// Which kernel events a new session has.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Kernel events")]
pub(crate) struct KernelEvents {
    /// Kernel events too: cpu, sched, disk, net, file, all, groups by name, bits of EnableFlags
    #[arg(long, value_name = "WHAT", value_parser = parse_kernel)]
    pub(crate) kernel: Option<Kernel>,
    /// Kernel events that are followed by their call stack: none, default, all, or events [default: those of WHAT]
    #[arg(long, value_name = "EVENTS", value_parser = parse_stacks, requires = "kernel")]
    pub(crate) stacks: Option<Stacks>,
    /// How often each processor is sampled, in all sessions: 1ms, 125us [default: as it is, 1ms from the start]
    #[arg(long, value_name = "TIME", value_parser = parse_interval, requires = "kernel")]
    pub(crate) interval: Option<u32>,
    /// Stacks of programs without frame pointers: so many bytes of each are unwound by the tables of programs that are root's or the daemon's user's, and that nobody else may write: 16K, at most 64K [default: frame pointers, which cost less]
    #[arg(long, value_name = "SIZE", value_parser = parse_stack_bytes, requires = "kernel")]
    pub(crate) unwind: Option<u32>,
}

/// Which kernel events a session is to have from now on.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Kernel events")]
pub(crate) struct KernelChange {
    /// Other kernel events: as for weir start; none: no more of them
    #[arg(long, value_name = "WHAT", value_parser = parse_kernel)]
    pub(crate) kernel: Option<Kernel>,
    /// Kernel events that are followed by their call stack: none, default (those worth having of its groups), all, or events
    #[arg(long, value_name = "EVENTS", value_parser = parse_stacks)]
    pub(crate) stacks: Option<Stacks>,
    /// How often each processor is sampled, in all sessions: 1ms, 125us
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Option<u32>,
}

/// Bytes of a stack.
fn parse_stack_bytes(text: &str) -> Result<u32, String> {
    let wrong = || "use a size of 1K to 64K, such as 16K".to_owned();
    let kibibytes: u32 = text.trim_end_matches(['k', 'K']).parse().map_err(|_| wrong())?;
    if (1..=64).contains(&kibibytes) && text.ends_with(['k', 'K']) {
        Ok(kibibytes << 10)
    } else {
        Err(wrong())
    }
}

/// A time in units of 100 ns. Seconds, which a number alone is elsewhere, are what nobody means here.
fn parse_interval(text: &str) -> Result<u32, String> {
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!("{} of what? Use a time such as 1ms, 125us or 0.5ms", text.trim()));
    }
    let time = parse_duration(text).map_err(|_| "use a time such as 1ms, 125us or 0.5ms".to_owned())?;
    let units = u32::try_from(time.as_nanos() / 100).ok().filter(|units| *units > 0);
    units.ok_or_else(|| {
        "use a time of 100 ns to 429 s; the daemon takes the nearest that is possible".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_stacks_are_kibibytes() {
        assert_eq!([parse_stack_bytes("16K"), parse_stack_bytes("64k")], [Ok(16 << 10), Ok(64 << 10)]);
        assert!(["0K", "65K", "16", "K", "1M", "-1K"].iter().all(|it| parse_stack_bytes(it).is_err()));
    }

    #[test]
    fn intervals_are_times() {
        for (text, units) in [("1ms", 10_000), ("125us", 1_250), ("0.5ms", 5_000), ("1s", 10_000_000)] {
            assert_eq!(parse_interval(text), Ok(units), "{text}");
        }
        for wrong in ["", "0", "1", "0.001", "10ns", "1h", "fast", "-1ms"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
