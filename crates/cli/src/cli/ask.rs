//! Command-line arguments of `weir ask`.

use clap::Args;
use traceweir::controller::info::InfoClass;

use super::DaemonChoice;

const AFTER_HELP: &str = "\
Classes about the system:
   5 TraceSampledProfileIntervalInfo   sampling interval of each profile source
   7 TraceProfileSourceListInfo        profile sources: the timer, counters
  11 TraceVersionInfo                  version of trace processing
  12 TraceGroupQueryList               provider groups that are joined or enabled
  17 TracePeriodicCaptureStateInfo     limits of periodic capture state
  19 TraceMaxLoggersQuery              maximum number of sessions
  22 TraceMaxPmcCounterQuery           maximum number of counters at a time
  25 TracePmcCounterOwners             users of the counters, for each processor
  27 TracePmcSessionInformation        sessions that read counters
Classes about a session (--session):
   3 TraceStackTracingInfo             kernel events that are followed by a call stack
   4 TraceSystemTraceEnableFlagsInfo   groups of kernel events
  14 TraceDisallowListQuery            providers that a group does not enable in the session
  23 TraceStreamCount                  streams of buffers

Examples:
  weir ask                             all classes about the system
  weir ask --session App               all classes about a session
  weir ask 7 MaxLoggersQuery           only these, by number or name
  weir ask ProfileSourceListInfo --json | jq -r '.answer[].name'";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct AskArgs {
    /// Classes to query: number, or name with or without the prefix Trace [default: all]
    #[arg(value_name = "CLASS", value_parser = parse_class)]
    pub(crate) classes: Vec<InfoClass>,
    /// Query the classes about this session
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Print one JSON object per class; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

/// Parses an information class that can be queried.
fn parse_class(text: &str) -> Result<InfoClass, String> {
    let matches_text = |class: &InfoClass| {
        let names = [class.name(), class.name().trim_start_matches("Trace")];
        names.iter().any(|name| name.eq_ignore_ascii_case(text))
    };
    let found = match text.parse() {
        Ok(number) => InfoClass::from_number(number),
        Err(_) => InfoClass::ALL.into_iter().find(matches_text),
    };
    match found {
        // The daemon has no query for the list of groups: `weir ask` takes it from the providers.
        Some(class) if class.rules().can_query || class == InfoClass::TraceGroupQueryList => Ok(class),
        Some(class) => Err(match class {
            InfoClass::TraceGuidQueryList | InfoClass::TraceGuidQueryInfo => {
                "use weir providers, which lists providers and describes one".to_owned()
            }
            InfoClass::TraceGroupQueryInfo => "use weir providers GUID, which describes a group".to_owned(),
            class => format!("{} can only be set, or queried only through the API", class.name()),
        }),
        None => Err("not the number or name of an information class".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_parse_from_number_and_name() {
        for (text, expected) in [
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
            assert_eq!(parse_class(text).ok().map(InfoClass::number), expected, "{text:?}");
        }
    }
}
