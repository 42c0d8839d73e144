//! Converts event providers of recording profiles to the syntax of `-p`.

use std::fmt::Write;

use traceweir_format::Guid;
use traceweir_format::kernel::providers::kernel_provider_named;

use super::apply_list;
use super::tree::{Element, ProfileResult};
use crate::grammar::quote_provider_text as quote;

/// Begins the names of providers that are parts of Windows.
const WINDOWS_PREFIX: &str = "microsoft-windows-";

/// An event provider, converted.
#[derive(Debug, Default)]
pub(super) struct ResolvedProvider {
    /// The provider in the syntax of `-p`; `None` if it is only asked for its state.
    pub(super) provider: Option<String>,
    pub(super) notes: Vec<String>,
}

/// A list of event ids or names that is included or excluded.
#[derive(Default)]
struct FilterList {
    includes: bool,
    values: Vec<String>,
}

impl FilterList {
    fn apply(&mut self, element: &Element, item: &str) -> ProfileResult<()> {
        self.includes = element.is_set("FilterIn");
        apply_list(&mut self.values, element, item)
    }
}

/// Converts a provider, given with its bases, the outermost base first. Errors are at `last`, which
/// is the last of them.
pub(super) fn resolve(chain: &[&Element], last: &Element) -> ProfileResult<ResolvedProvider> {
    let mut resolved = ResolvedProvider::default();
    let attribute = |name: &str| chain.iter().rev().find_map(|element| element.attribute(name));
    let is_set =
        |name: &str| attribute(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
    let name = attribute("Name").ok_or_else(|| last.error("an event provider has no Name"))?;
    let mut note = |text: String| resolved.notes.push(text);
    if is_set("CaptureStateOnly") {
        note(format!(
            "provider {name}: CaptureStateOnly; weir enable SESSION PROVIDER --capture-state asks for its state"
        ));
        return Ok(resolved);
    }
    if is_set("NonPagedMemory") || is_set("NonPageMemory") {
        note("NonPagedMemory: Linux has no such kind of event memory".to_owned());
    }
    let (mut keywords, mut ids, mut names) = (Vec::new(), FilterList::default(), FilterList::default());
    let mut stack_ids = FilterList::default();
    for list in chain.iter().flat_map(|element| &element.children) {
        match list.name.as_str() {
            "Keywords" => apply_list(&mut keywords, list, "Keyword")?,
            "EventFilters" => ids.apply(list, "EventId")?,
            "EventNameFilters" => names.apply(list, "EventName")?,
            "StackFilters" => stack_ids.apply(list, "EventId")?,
            other => note(format!("provider {name}: weir leaves out {other}")),
        }
    }
    let mut text = format_name(name);
    let mut mask = 0_u64;
    for keyword in &keywords {
        mask |= parse_number(keyword)
            .ok_or_else(|| last.error(format!("{keyword:?} is not a keyword mask such as 0x10")))?;
    }
    let level: u8 = match attribute("Level") {
        Some(level) => {
            level.parse().map_err(|_| last.error(format!("{level:?} is not a level of 0 to 255")))?
        }
        None => 0,
    };
    // Writing to a string cannot fail.
    if mask != 0 || level != 0 {
        let _ = write!(text, ":{mask:#x}:{level}");
    }
    for (property, option) in [("SID", "sid"), ("TSID", "tsid"), ("EventKey", "event-key")] {
        if is_set(property) {
            let _ = write!(text, "@{option}");
        }
    }
    // The option stack-ids includes stack.
    if is_set("Stack") && (!stack_ids.includes || stack_ids.values.is_empty()) {
        text.push_str("@stack");
    }
    for (list, included, excluded) in [(&ids, "ids", Some("not-ids")), (&stack_ids, "stack-ids", None)] {
        let option = if list.includes { Some(included) } else { excluded };
        match option {
            _ if list.values.is_empty() => {}
            Some(option) => {
                let _ = write!(text, "@{option}={}", list.values.join(","));
            }
            None => {
                note(format!("provider {name}: stacks are recorded of all events, also of those excluded"))
            }
        }
    }
    for value in &names.values {
        let _ = write!(text, "@{}={}", if names.includes { "names" } else { "not-names" }, quote(value));
    }
    for program in attribute("ProcessExeFilter").unwrap_or_default().split(';').map(str::trim) {
        let stem = program.get(..program.len().saturating_sub(4)).unwrap_or(program);
        let is_exe = program.to_ascii_lowercase().ends_with(".exe");
        if !program.is_empty() {
            let _ = write!(text, "@exe={}", quote(if is_exe { stem } else { program }));
        }
    }
    let is_of_windows =
        name.to_ascii_lowercase().starts_with(WINDOWS_PREFIX) && kernel_provider_named(name).is_none();
    if is_of_windows {
        note(format!(
            "provider {name}: a part of Windows; it has events only if a program here registers it"
        ));
    }
    resolved.provider = Some(text);
    Ok(resolved)
}

/// Formats the name of a provider: a GUID, the name of an EventSource (`*NAME`), or another name.
fn format_name(name: &str) -> String {
    if let Ok(guid) = name.parse::<Guid>() {
        return format!("{{{guid}}}");
    }
    match name.strip_prefix('*') {
        Some(rest) if !rest.is_empty() => format!("*{}", quote(rest)),
        _ => quote(name),
    }
}

/// Parses a number, hexadecimal with 0x.
fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
