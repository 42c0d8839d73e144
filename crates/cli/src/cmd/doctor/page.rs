//! Formats checks as a page for people and as JSON objects.

use std::fmt::Write;

use super::check::{CheckState, DoctorCheck, blocking_checks};
use crate::cli::Need;
use crate::text::{JsonObject, Paint, TerminalStyle, escape, json_array};

/// The columns at which the descriptions of needs and the explanations of checks begin.
const NEED_INDENT: usize = 16;
/// The columns of a finding besides those of the check's name: state and spaces.
const FOUND_OFFSET: usize = 11;
const EXPLANATION_INDENT: usize = 20;

/// Formats the page: needs first, then checks. Passed checks are explained only if `shows_all`.
pub(super) fn format_page(
    checks: &[DoctorCheck],
    requested: &[Need],
    shows_all: bool,
    style: TerminalStyle,
) -> String {
    let mut text = String::new();
    for need in Need::ALL {
        let blocking: Vec<&str> = blocking_checks(checks, need).collect();
        let mark = if requested.contains(&need) { '*' } else { ' ' };
        let (answer, paint, reason) = match blocking.as_slice() {
            [] => ("yes", Paint::Good, String::new()),
            blocking => ("no", Paint::Bad, format!(" ({})", blocking.join(", "))),
        };
        let answer = style.paint(paint, &format!("{answer:<4}"));
        let description = style.wrap(&format!("{}{reason}", need.description()), NEED_INDENT);
        let _ = writeln!(text, "{mark} {:<8} {answer} {description}", need.name());
    }
    let width = checks.iter().map(|check| check.subject.name.len()).max().unwrap_or(0);
    text.push('\n');
    for check in checks {
        let name = check.subject.name;
        let paint = match check.state {
            CheckState::Fine => Paint::Good,
            CheckState::Limited => Paint::Warning,
            CheckState::Missing => Paint::Bad,
        };
        let state = style.paint(paint, &format!("{:<8}", check.state.name()));
        let found = style.wrap(&escape(&check.found), width.saturating_add(FOUND_OFFSET));
        let _ = writeln!(text, "{state} {name:<width$}  {found}");
        if shows_all || check.state != CheckState::Fine {
            write_explanation(check, style, &mut text);
        }
    }
    text
}

fn write_explanation(check: &DoctorCheck, style: TerminalStyle, text: &mut String) {
    let mut add_line = |label: &str, value: &str| {
        let _ = writeln!(text, "           {label:<8} {}", wrap_step(&escape(value), style));
    };
    add_line("for", check.subject.purpose);
    add_line("without", check.subject.works_without);
    if let Some(advice) = &check.advice {
        add_line("now", &advice.step);
        if let Some(lasting) = &advice.lasting_step {
            add_line("to last", lasting);
        }
    }
}

/// Wraps an explanation. A pipeline is divided after a `|`, so that it can be pasted into a shell.
fn wrap_step(step: &str, style: TerminalStyle) -> String {
    let is_too_wide = style.width.is_some_and(|width| step.len().saturating_add(EXPLANATION_INDENT) > width);
    match step.split_once(" | ").filter(|_| is_too_wide && step.starts_with("echo ")) {
        Some((first, second)) => {
            let second = style.wrap(second, EXPLANATION_INDENT);
            format!("{first} |\n{:EXPLANATION_INDENT$}{second}", "")
        }
        None => style.wrap(step, EXPLANATION_INDENT),
    }
}

/// Formats one JSON object per check, then one per need.
pub(super) fn format_objects(checks: &[DoctorCheck], requested: &[Need]) -> String {
    let quote = |name: &'static str| format!("\"{name}\"");
    let check_lines = checks.iter().map(|check| {
        let mut object = JsonObject::new();
        object
            .text("check", check.subject.name)
            .text("state", check.state.name())
            .text("found", &check.found);
        object.text("purpose", check.subject.purpose).text("without", check.subject.works_without);
        let advice = check.advice.as_ref();
        object.optional("now", advice.map(|advice| advice.step.as_str()));
        object.optional("lasting", advice.and_then(|advice| advice.lasting_step.as_deref()));
        object.raw("blocks", &json_array(check.blocked_needs.iter().map(|need| quote(need.name()))));
        object.finish() + "\n"
    });
    let need_lines = Need::ALL.into_iter().map(|need| {
        let blocking: Vec<String> = blocking_checks(checks, need).map(quote).collect();
        let json_bool = |value: bool| if value { "true" } else { "false" };
        let mut object = JsonObject::new();
        object.text("need", need.name()).text("about", need.description());
        object.raw("met", json_bool(blocking.is_empty())).raw("asked", json_bool(requested.contains(&need)));
        object.raw("in_the_way", &json_array(blocking));
        object.finish() + "\n"
    });
    check_lines.chain(need_lines).collect()
}
