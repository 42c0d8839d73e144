//! What was found, for people and for programs.

use std::fmt::Write;

use super::check::{Check, State, in_the_way};
use crate::cli::Need;
use crate::export::{Object, array, plain};

/// A page: needs first, then what was looked at; reasons only for what is not as it should be, unless all are wanted.
pub(super) fn page(checks: &[Check], asked: &[Need], shows_all: bool) -> String {
    let mut text = String::new();
    for need in Need::ALL {
        let ways: Vec<&str> = in_the_way(checks, need).collect();
        let mark = if asked.contains(&need) { '*' } else { ' ' };
        let (is_met, why) = match ways.as_slice() {
            [] => ("yes", String::new()),
            ways => ("no", format!(" ({})", ways.join(", "))),
        };
        let _ = writeln!(text, "{mark} {:<8} {is_met:<4} {}{why}", need.name(), need.about());
    }
    let width = checks.iter().map(|it| it.subject.name.len()).max().unwrap_or(0);
    text.push('\n');
    for check in checks {
        let name = check.subject.name;
        let _ = writeln!(text, "{:<8} {name:<width$}  {}", check.state.name(), plain(&check.found));
        if shows_all || check.state != State::Fine {
            reasons(check, &mut text);
        }
    }
    text
}

fn reasons(check: &Check, text: &mut String) {
    let mut line = |what: &str, says: &str| {
        let _ = writeln!(text, "           {what:<8} {}", plain(says));
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

/// One object a check, then one a need.
pub(super) fn objects(checks: &[Check], asked: &[Need]) -> String {
    let quoted = |name: &'static str| format!("\"{name}\"");
    let of_checks = checks.iter().map(|check| {
        let mut object = Object::new();
        object
            .text("check", check.subject.name)
            .text("state", check.state.name())
            .text("found", &check.found);
        object.text("purpose", check.subject.purpose).text("without", check.subject.without);
        let advice = check.advice.as_ref();
        object.optional("now", advice.map(|it| it.now.as_str()));
        object.optional("lasting", advice.and_then(|it| it.lasting.as_deref()));
        object.raw("blocks", &array(check.blocks.iter().map(|need| quoted(need.name()))));
        object.finish() + "\n"
    });
    let of_needs = Need::ALL.into_iter().map(|need| {
        let ways: Vec<String> = in_the_way(checks, need).map(quoted).collect();
        let word = |is_so: bool| if is_so { "true" } else { "false" };
        let mut object = Object::new();
        object.text("need", need.name()).text("about", need.about());
        object.raw("met", word(ways.is_empty())).raw("asked", word(asked.contains(&need)));
        object.raw("in_the_way", &array(ways));
        object.finish() + "\n"
    });
    of_checks.chain(of_needs).collect()
}
