//! What users learn about the event filters of the command line.

use traceweir_analysis::filter::EventFilter;

use crate::cli::exit_with_conflict;
use crate::text::suggest_names;

/// Exits with a usage error if no time can pass. `end_option` is the option for the end of the time
/// span.
pub(crate) fn check_times(filter: &EventFilter, end_option: &str) {
    let (from, to) = filter.time_span();
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        exit_with_conflict(&format!("--from is later than {end_option}, so no event can match"));
    }
}

/// Explains what the filters take, to follow "no event matched".
pub(crate) fn no_match_hint(filter: &EventFilter) -> &'static str {
    if filter.provider_patterns().any(|name| name.contains([':', ',', '@'])) {
        "; --provider takes one name or GUID and may be repeated; --keyword and --level select further"
    } else if filter.has_events() {
        "; weir stats lists the names of events"
    } else if filter.time_span() != (None, None) {
        "; weir info shows the times of the first and last event"
    } else {
        ""
    }
}

/// Suggests names for providers that the filter selects by name, without wildcards.
pub(crate) fn suggest_providers(filter: &EventFilter, names: &[String]) -> Option<String> {
    let mut plain_names = filter.provider_patterns().filter(|name| !name.contains(['*', '?']));
    plain_names.find_map(|name| suggest_names(name, names))
}
