//! How providers are named on the command line.
//!
//! ```text
//!   PROVIDER  =  name [ ":" keywords [ ":" level ] ]
//!   name      =  NAME      the id is the hash of the name, as EventSource and TraceLogging make it
//!             |  *NAME     the same, said outright
//!             |  {GUID}    the id itself, also without braces
//!             |  #GUID     the same
//!   keywords  =  0x… or decimal; empty: all
//!   level     =  0 to 255, critical, error, warning, info, verbose; absent: all
//! ```

use traceweir::Guid;
use traceweir::controller::{EnableParams, Filter};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_PID;

use crate::filter::{parse_level, parse_mask};

/// The grammar, for help pages.
pub(crate) const GRAMMAR: &str = "\
PROVIDER is NAME[:KEYWORDS[:LEVEL]]:
  MyCompany.App               by name; the id is its hash, as EventSource and TraceLogging make it
  *MyCompany.App              the same
  {b3864c38-…}, #b3864c38-…   by id
  MyCompany.App:0x10          only events with any of these keyword bits; 0 or nothing: all
  MyCompany.App:0x10:warning  and of this level or more severe: 0 to 255, or critical, error,
                              warning, info, verbose";

/// A provider and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// As typed, without keywords and level.
    pub(crate) name: String,
    pub(crate) guid: Guid,
    /// Any of these bits; 0: all.
    pub(crate) keywords: u64,
    /// Highest level; 0: all.
    pub(crate) level: u8,
}

impl Wanted {
    /// What an enable call is given; only these processes, where any are named.
    pub(crate) fn params(&self, pids: &[u32]) -> EnableParams {
        let pid_filter = || Filter {
            kind: EVENT_FILTER_TYPE_PID,
            data: pids.iter().flat_map(|pid| pid.to_le_bytes()).collect(),
        };
        let filters = if pids.is_empty() { Vec::new() } else { vec![pid_filter()] };
        EnableParams { level: self.level, match_any: self.keywords, filters, ..EnableParams::default() }
    }
}

impl Wanted {
    /// Whether an event is one that an enable call like this would have let through.
    pub(crate) fn covers(&self, record: &Record<'_>) -> bool {
        let d = record.descriptor();
        let level = self.level == 0 || d.level <= self.level;
        let keywords = self.keywords == 0 || d.keyword == 0 || d.keyword & self.keywords != 0;
        record.provider() == self.guid && level && keywords
    }
}

/// A provider, as typed.
pub(crate) fn parse_provider(text: &str) -> Result<Wanted, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default().trim();
    let keywords = parts.next().filter(|k| !k.is_empty()).map_or(Ok(0), parse_mask)?;
    let level = parts.next().filter(|l| !l.is_empty()).map_or(Ok(0), parse_level)?;
    if parts.next().is_some() {
        return Err("there is more than NAME:KEYWORDS:LEVEL".to_owned());
    }
    let guid = parse_name(name)?;
    Ok(Wanted { name: name.to_owned(), guid, keywords, level })
}

fn parse_name(name: &str) -> Result<Guid, String> {
    if let Some(guid) = name.strip_prefix('#') {
        return guid.parse().map_err(|_| format!("{guid:?} is not a GUID"));
    }
    if let Ok(guid) = name.parse() {
        return Ok(guid);
    }
    if name.starts_with('{') {
        return Err(format!("{name:?} is not a GUID"));
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    if name.is_empty() {
        return Err("a provider needs a name or a GUID".to_owned());
    }
    if name.contains(['*', '?']) {
        return Err(
            "a provider is enabled by its whole name: wildcards choose only among recorded events".to_owned()
        );
    }
    Ok(Guid::from_provider_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hashed_and_guids_taken_as_they_are() {
        let hashed = Guid::from_u128(0xb386_4c38_4273_58c5_545b_8b36_0834_3471);
        for text in [
            "MyProvider",
            "*MyProvider",
            "myprovider",
            "b3864c38-4273-58c5-545b-8b3608343471",
            "{B3864C38-4273-58C5-545B-8B3608343471}",
            "#b3864c38-4273-58c5-545b-8b3608343471",
        ] {
            assert_eq!(parse_provider(text).unwrap().guid, hashed, "{text}");
        }
    }

    #[test]
    fn keywords_and_level_may_follow_and_may_be_empty() {
        for (text, keywords, level) in [
            ("A", 0, 0),
            ("A:0x1F", 0x1F, 0),
            ("A:12:3", 12, 3),
            ("A::verbose", 0, 5),
            ("{b3864c38-4273-58c5-545b-8b3608343471}:0x8000000000000000:Warning", 1 << 63, 3),
        ] {
            let wanted = parse_provider(text).unwrap();
            assert_eq!((wanted.keywords, wanted.level), (keywords, level), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, word) in [
            ("", "name"),
            ("*", "name"),
            ("My*", "wildcards"),
            ("#12", "GUID"),
            ("{12}", "GUID"),
            ("A:zz", "0x"),
            ("A:1:loud", "critical"),
            ("A:1:2:3", "more than"),
        ] {
            let error = parse_provider(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_process_filter_holds_little_endian_ids() {
        let wanted = parse_provider("A:1:2").unwrap();
        assert_eq!(wanted.params(&[]).filters, []);
        let params = wanted.params(&[1, 0x102]);
        assert_eq!((params.level, params.match_any), (2, 1));
        assert_eq!(
            params.filters,
            [Filter { kind: EVENT_FILTER_TYPE_PID, data: vec![1, 0, 0, 0, 2, 1, 0, 0] }]
        );
    }
}
