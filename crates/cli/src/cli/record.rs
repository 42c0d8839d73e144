//! Command-line arguments of `weir record` and `weir profiles`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::number::{SizeLimit, parse_pid, parse_size};
use super::{DaemonChoice, KERNEL_SYNTAX, KernelEvents, ProviderArgs, ShapeArgs};
use crate::grammar::PROVIDER_SYNTAX;
use crate::signals::UserSignal;
use crate::text::parse_duration;

const RECORD_EXAMPLES: &str = "\
Examples:
  weir record -- ./app --its --flags            all providers of ./app, CPU samples and switches
  weir record --no-kernel -- ./app              all providers of ./app
  weir record --pid 1234 --duration 10s         a running process and its descendants
  weir record -p MyCompany.App -o app.etl       one provider in all processes, until Ctrl-C
  weir record -p 'MyCompany.*::warning' -- ./app
  weir record --profile cpu,net -- ./app        CPU samples and network events of ./app
  weir record -a --kernel sched --duration 5s   context switches of the whole machine
  weir record --flight 64M --until 'exit!=0' -- ./app
                                                the last 64 MiB of events, only if ./app fails";

const AFTER_RECORD: &str = "\
Without -p, --kernel and --profile, the profile app is recorded. -- CMD and --pid record these processes and their descendants; \
-a, or neither of them, records the whole machine.

--until ends the recording when its condition is met; with --flight, the events in memory are written then (also on Ctrl-C), and dropped otherwise:
  'PROVIDER/EVENT'        this event was written; EVENT is a name (wildcards * and ?) or an id
  'PROVIDER/EVENT:TEXT'   and its names, values or message contain TEXT, as for weir dump --grep
  'exit!=0'               CMD failed
  file:PATH               this file was created
  SIGUSR1                 weir received this signal, or SIGUSR2

Press Ctrl-C once to end the recording and finalise the file. Press it twice to exit at once; the daemon then finalises the file.

Exit status: the status of CMD; 126 if CMD cannot be run, 127 if it is not found, 125 if recording \
fails, 130 if Ctrl-C ended weir before CMD ended or the file was finalised. Without CMD as for other commands, for example 4 if events were lost.";

#[derive(Debug, Args)]
#[command(
    after_help = format!("{RECORD_EXAMPLES}\n\n{PROVIDER_SYNTAX}\n\n{KERNEL_SYNTAX}\n\n{AFTER_RECORD}"),
    override_usage = "weir record [OPTIONS] -- <CMD>...\n       weir record [OPTIONS] --pid <PID>\n       weir record [OPTIONS] -p <PROVIDER>",
)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Profiles: sets of providers and kernel events (weir profiles), separated by commas, or a
    /// recording profile of Windows, FILE.wprp [default: app, if neither -p nor --kernel is given]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) profile: Vec<String>,
    /// Record no kernel events of the profile
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) no_kernel: bool,
    /// Instrumentation manifest (XML), a PE or ELF file with a compiled one, or a folder of these:
    /// defines names of providers and keywords
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Trace file to write [default: weir-DATE-TIME.etl (UTC) in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; without it, an existing trace is moved to NAME.old.etl, and any
    /// other file is refused
    #[arg(long)]
    pub(crate) force: bool,
    /// Record for this long: 10s, 500ms, 2min [default: until CMD ends, or Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// End after about N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) stop_after: Option<u64>,
    /// Keep only the newest events, in memory of this size (MiB, or with K, M or G), and write them
    /// at the end
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        conflicts_with_all = ["sequential", "circular", "append", "new_file", "real_time", "buffering", "max_size"],
    )]
    pub(crate) flight: Option<SizeLimit>,
    /// End when this happens: PROVIDER/EVENT or PROVIDER/EVENT:TEXT, exit!=0, file:PATH, SIGUSR1 (see
    /// below)
    #[arg(long, value_name = "CONDITION", value_parser = UntilCondition::parse)]
    pub(crate) until: Option<UntilCondition>,
    /// Record only these running processes and their descendants, until all of them have ended;
    /// separated by commas, may be repeated
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = parse_pid, conflicts_with = "command")]
    pub(crate) pid: Vec<u32>,
    /// Record the whole machine, not only CMD or PID and their descendants
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show the trace in the browser at the end, as weir view does. A weir that was built without
    /// the cargo feature view refuses this before it records
    #[arg(long)]
    pub(crate) open: bool,
    /// Program to run while recording, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) kernel: KernelEvents,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

/// A condition that ends a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UntilCondition {
    /// An event of a provider, whose description contains a text.
    Event { provider: String, event: String, text: Option<String> },
    /// The command ended with another status than 0.
    CommandFailure,
    /// A file was created.
    File(PathBuf),
    /// A signal was received.
    Signal(UserSignal),
}

impl UntilCondition {
    fn parse(text: &str) -> Result<Self, String> {
        let compact: String = text.split_whitespace().collect();
        match compact.to_ascii_lowercase().as_str() {
            "exit!=0" => return Ok(Self::CommandFailure),
            "sigusr1" | "usr1" => return Ok(Self::Signal(UserSignal::First)),
            "sigusr2" | "usr2" => return Ok(Self::Signal(UserSignal::Second)),
            _ => {}
        }
        if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
            return Ok(Self::File(path.into()));
        }
        let expected = "use 'PROVIDER/EVENT', 'PROVIDER/EVENT:TEXT', 'exit!=0', file:PATH or SIGUSR1";
        let (provider, event) = text.split_once('/').ok_or(expected)?;
        let (event, text) = event.split_once(':').map_or((event, None), |(event, text)| (event, Some(text)));
        if provider.trim().is_empty() || event.trim().is_empty() || text.is_some_and(str::is_empty) {
            return Err(expected.to_owned());
        }
        crate::grammar::parse_provider(provider)?;
        Ok(Self::Event {
            provider: provider.to_owned(),
            event: event.trim().to_owned(),
            text: text.map(str::to_owned),
        })
    }
}

const AFTER_PROFILES: &str = "\
Your own profiles are files NAME.toml in ~/.config/traceweir/profiles (or $XDG_CONFIG_HOME/traceweir/profiles):
  description = \"Orders and payments\"
  providers = [\"Contoso.*::info\", \"Fabrikam.Pay:0x10\"]     # each as one -p
  kernel = \"cpu,cswitch\"                                     # as for --kernel

A recording profile of Windows is used in place: FILE.wprp, or FILE.wprp!NAME and FILE.wprp!NAME.Light if the file has several.
What Linux does not have is left out, with one line for each. A profile that logs to memory records as with --flight.

Examples:
  weir profiles                          list them
  weir profiles app                      explain one
  weir record --profile cpu,net -- ./app
  weir profiles net.wprp                 explain what a recording profile of Windows records here";

#[derive(Debug, Args)]
#[command(after_help = AFTER_PROFILES)]
pub(crate) struct ProfilesArgs {
    /// Profile to explain: a name, or FILE.wprp [default: list all]
    pub(crate) name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_parse() {
        let event = |provider: &str, event: &str, text: Option<&str>| UntilCondition::Event {
            provider: provider.to_owned(),
            event: event.to_owned(),
            text: text.map(str::to_owned),
        };
        for (text, condition) in [
            ("exit!=0", UntilCondition::CommandFailure),
            ("exit != 0", UntilCondition::CommandFailure),
            ("file:/tmp/x", UntilCondition::File("/tmp/x".into())),
            ("SIGUSR1", UntilCondition::Signal(UserSignal::First)),
            ("usr2", UntilCondition::Signal(UserSignal::Second)),
            ("A.B/Failed", event("A.B", "Failed", None)),
            ("A.B/7", event("A.B", "7", None)),
            (
                "A.B:0x10:error/Order/Stop:code=5: no",
                event("A.B:0x10:error", "Order/Stop", Some("code=5: no")),
            ),
        ] {
            assert_eq!(UntilCondition::parse(text), Ok(condition), "{text}");
        }
        for wrong in ["", "exit", "exit==0", "file:", "A.B", "/x", "A.B/", "A.B/x:", "{1}/x", "SIGKILL"] {
            assert!(UntilCondition::parse(wrong).is_err(), "{wrong}");
        }
    }
}
