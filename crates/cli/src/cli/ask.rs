//! The flags of `weir ask`.

use clap::Args;
use traceweir::controller::info::InfoClass;

use super::Whose;

const AFTER_HELP: &str = "\
Classes of the system:
   5 TraceSampledProfileIntervalInfo   how often profile sources sample
   7 TraceProfileSourceListInfo        what can be sampled: the timer, counters
  11 TraceVersionInfo                  version of trace processing
  12 TraceGroupQueryList               provider groups that are joined or enabled
  17 TracePeriodicCaptureStateInfo     bounds of periodic capture state
  19 TraceMaxLoggersQuery              sessions at most
  22 TraceMaxPmcCounterQuery           counters at a time
  25 TracePmcCounterOwners             who uses the counters of each processor
  27 TracePmcSessionInformation        sessions that read counters
Classes of a session (--session):
   3 TraceStackTracingInfo             kernel events that are followed by a call stack
   4 TraceSystemTraceEnableFlagsInfo   groups of kernel events
  14 TraceDisallowListQuery            providers that a group does not enable in it
  23 TraceStreamCount                  streams of buffers

Examples:
  weir ask                             all that is about the system
  weir ask --session App               all that is about a session
  weir ask 7 MaxLoggersQuery           these only, by number or name
  weir ask ProfileSourceListInfo --json | jq -r '.answer[].name'";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ask {
    /// Classes: number, or name with or without Trace in front; none: all
    #[arg(value_name = "CLASS", value_parser = parse)]
    pub(crate) classes: Vec<InfoClass>,
    /// About this session
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// One JSON object for each class; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// A class that can be asked about.
fn parse(text: &str) -> Result<InfoClass, String> {
    let is_it = |class: &InfoClass| {
        let names = [class.name(), class.name().trim_start_matches("Trace")];
        names.iter().any(|name| name.eq_ignore_ascii_case(text))
    };
    let found = match text.parse() {
        Ok(number) => InfoClass::from_number(number),
        Err(_) => InfoClass::ALL.into_iter().find(is_it),
    };
    match found {
        Some(class) if class.rules().queries || class == InfoClass::TraceGroupQueryList => Ok(class),
        Some(class) => Err(match class {
            InfoClass::TraceGuidQueryList | InfoClass::TraceGuidQueryInfo => {
                "weir providers lists providers and tells about one".to_owned()
            }
            InfoClass::TraceGroupQueryInfo => "weir providers GUID tells about a group".to_owned(),
            class => format!("{} can be set, and not asked about, or is for programs only", class.name()),
        }),
        None => Err("no number or name of an information class".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_understood_by_number_and_name() {
        for (text, want) in [
            ("7", Some(7)),
            ("TraceProfileSourceListInfo", Some(7)),
            ("profilesourcelistinfo", Some(7)),
            ("12", Some(12)),
            ("0", None),
            ("18", None),
            ("15", None),
            ("29", None),
            ("-1", None),
            ("", None),
            ("Trace", None),
        ] {
            assert_eq!(parse(text).ok().map(InfoClass::number), want, "{text:?}");
        }
    }
}
