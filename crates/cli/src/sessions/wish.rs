//! Properties and filters of an enable, in words.

use std::fmt::Write;

use traceweir::controller::EnableEntry;
use traceweir_format::spec::enable as spec;

use crate::grammar::property_names;

/// Types of filters, and the option that asks for each.
const FILTERS: [(u32, &str); 13] = [
    (spec::EVENT_FILTER_TYPE_SCHEMATIZED, "schematized"),
    (spec::EVENT_FILTER_TYPE_SYSTEM_FLAGS, "system-flags"),
    (spec::EVENT_FILTER_TYPE_PID, "pid"),
    (spec::EVENT_FILTER_TYPE_EXECUTABLE_NAME, "exe"),
    (spec::EVENT_FILTER_TYPE_PACKAGE_ID, "package"),
    (spec::EVENT_FILTER_TYPE_PACKAGE_APP_ID, "app"),
    (spec::EVENT_FILTER_TYPE_PAYLOAD, "payload"),
    (spec::EVENT_FILTER_TYPE_EVENT_ID, "ids"),
    (spec::EVENT_FILTER_TYPE_EVENT_NAME, "names"),
    (spec::EVENT_FILTER_TYPE_STACKWALK, "stack-ids"),
    (spec::EVENT_FILTER_TYPE_STACKWALK_NAME, "stack-names"),
    (spec::EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, "stack-level"),
    (spec::EVENT_FILTER_TYPE_CONTAINER, "container"),
];

/// The properties, as a number and by the names that the grammar has for them.
pub(super) fn properties(enable: &EnableEntry) -> String {
    match property_names(enable.property) {
        names if names.is_empty() => format!("{:#x}", enable.property),
        names => format!("{:#x} ({})", enable.property, names.join(" ")),
    }
}

/// The types of the filters, as numbers and by the names that the grammar has for them.
pub(super) fn filters(enable: &EnableEntry) -> String {
    let mut text = String::new();
    for kind in &enable.filters {
        let name = FILTERS.iter().find(|(known, _)| known == kind).map_or("provider's own", |(_, name)| name);
        let _ = write!(text, "{}{kind:#x} ({name})", if text.is_empty() { "" } else { ", " });
    }
    if text.is_empty() { "none".to_owned() } else { text }
}
