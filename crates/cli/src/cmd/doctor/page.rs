//! Formats checks as a page for people and as JSON objects.

use std::fmt::Write;

use super::check::{Check, State, blocking_checks};
use crate::cli::Need;
use crate::text::{JsonObject, escape_line, json_array};

/// Formats the page: needs first, then checks. Passed checks are explained only if `shows_all`.
pub(super) fn page(checks: &[Check], asked: &[Need], shows_all: bool) -> String {
    let mut text = String::new();
    for need in Need::ALL {
        let blocking: Vec<&str> = blocking_checks(checks, need).collect();
        let mark = if asked.contains(&need) { '*' } else { ' ' };
        let (is_met, reason) = match blocking.as_slice() {
            [] => ("yes", String::new()),
            blocking => ("no", format!(" ({})", blocking.join(", "))),
        };
        let _ = writeln!(text, "{mark} {:<8} {is_met:<4} {}{reason}", need.name(), need.description());
    }
    let width = checks.iter().map(|check| check.subject.name.len()).max().unwrap_or(0);
    text.push('\n');
    for check in checks {
        let name = check.subject.name;
        let _ = writeln!(text, "{:<8} {name:<width$}  {}", check.state.name(), escape_line(&check.found));
        if shows_all || check.state != State::Fine {
            write_reasons(check, &mut text);
        }
    }
    text
}

fn write_reasons(check: &Check, text: &mut String) {
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "           {label:<8} {}", escape_line(value));
    };
    line("for", check.subject.purpose);
    line("without", check.subject.without);
    if let Some(advice) = &check.advice {
        line("now", &advice.now);
        if let Some(lasting) = &advice.lasting {
            line("to last", lasting);
        }
    }
}

/// Formats one JSON object per check, then one per need.
pub(super) fn objects(checks: &[Check], asked: &[Need]) -> String {
    let quoted = |name: &'static str| format!("\"{name}\"");
    let check_lines = checks.iter().map(|check| {
        let mut object = JsonObject::new();
        object
            .text("check", check.subject.name)
            .text("state", check.state.name())
            .text("found", &check.found);
        object.text("purpose", check.subject.purpose).text("without", check.subject.without);
        let advice = check.advice.as_ref();
        object.optional("now", advice.map(|advice| advice.now.as_str()));
        object.optional("lasting", advice.and_then(|advice| advice.lasting.as_deref()));
        object.raw("blocks", &json_array(check.blocks.iter().map(|need| quoted(need.name()))));
        object.finish() + "\n"
    });
    let need_lines = Need::ALL.into_iter().map(|need| {
        let blocking: Vec<String> = blocking_checks(checks, need).map(quoted).collect();
        let word = |is_so: bool| if is_so { "true" } else { "false" };
        let mut object = JsonObject::new();
        object.text("need", need.name()).text("about", need.description());
        object.raw("met", word(blocking.is_empty())).raw("asked", word(asked.contains(&need)));
        object.raw("in_the_way", &json_array(blocking));
        object.finish() + "\n"
    });
    check_lines.chain(need_lines).collect()
}
