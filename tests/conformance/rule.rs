//! Rules, their execution, and the page that lists all rules.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::helpers::Fixture;

/// One rule of the contract and the test that checks it.
pub(crate) struct Rule {
    /// Part, section and item of the written contract, as in `controller 3.2 #11`, or the number of
    /// a decision of this project. This repository has neither the contract nor the decisions.
    pub(crate) section: &'static str,
    /// Source of the rule: D documented, H public headers, O observed, P this project's decision.
    pub(crate) mark: char,
    /// The rule in one sentence. `… → 87` means that the call returns the status 87.
    pub(crate) sentence: &'static str,
    /// Name of the function `check`.
    pub(crate) test: &'static str,
    /// Panics if the rule does not hold.
    pub(crate) check: fn(&Fixture),
}

/// A rule that these tests do not check, and the reason.
pub(crate) struct UntestedRule {
    pub(crate) section: &'static str,
    pub(crate) mark: char,
    pub(crate) sentence: &'static str,
    pub(crate) reason: &'static str,
}

/// Makes a rule: section, mark, sentence, test.
macro_rules! rule {
    ($section:literal, $mark:ident, $sentence:literal, $check:path) => {
        $crate::rule::Rule {
            section: $section,
            mark: $crate::rule::mark(stringify!($mark)),
            sentence: $sentence,
            test: stringify!($check),
            check: $check,
        }
    };
}
pub(crate) use rule;

/// Makes a rule that is not tested here: section, mark, sentence, reason.
macro_rules! untested {
    ($section:literal, $mark:ident, $sentence:literal, $reason:literal) => {
        $crate::rule::UntestedRule {
            section: $section,
            mark: $crate::rule::mark(stringify!($mark)),
            sentence: $sentence,
            reason: $reason,
        }
    };
}
pub(crate) use untested;

/// Returns the mark that an identifier of one letter names.
pub(crate) const fn mark(name: &str) -> char {
    name.as_bytes()[0] as char
}

/// Result of a rule.
pub(crate) enum Outcome {
    Holds,
    Fails(String),
}

impl Rule {
    /// Returns whether the test name, the section or the sentence contains `text`.
    pub(crate) fn is_about(&self, text: &str) -> bool {
        [self.test, self.section, self.sentence].iter().any(|part| part.contains(text))
    }

    /// Runs the test. A panic, whose text becomes the reason, means that the rule does not hold.
    pub(crate) fn run(&self, fixture: &Fixture) -> Outcome {
        static PANIC: Mutex<String> = Mutex::new(String::new());
        std::panic::set_hook(Box::new(|info| {
            *PANIC.lock().expect("the panic text is poisoned") = info.to_string()
        }));
        let result = catch_unwind(AssertUnwindSafe(|| (self.check)(fixture)));
        let _ = std::panic::take_hook();
        match result {
            Ok(()) => Outcome::Holds,
            Err(_) => {
                Outcome::Fails(PANIC.lock().expect("the panic text is poisoned").replace('\n', "\n    "))
            }
        }
    }
}

fn build_page(outcomes: &[(&Rule, Outcome)], untested_rules: &[&UntestedRule]) -> String {
    let mut text = String::from(
        "# Conformance\n\nEvery rule for sessions and providers, the test that checks it, and the result. The sections group\n\
         the rules; their numbers, and those of decisions, refer to no other page. `→ 87` means that the call\n\
         returns the status 87.\n\
         `cargo test -p traceweir-cli --test conformance -- --write-docs` writes this page; the tests fail if\n\
         it differs from their results. Marks: D documented, H declared in public headers, O observed,\n\
         P decided by this project.\n\n\
         | Section | Mark | Rule | Test | Result |\n|---|---|---|---|---|\n",
    );
    for (rule, outcome) in outcomes {
        let result = if matches!(outcome, Outcome::Holds) { "holds" } else { "**fails**" };
        let Rule { section, mark, sentence, test, .. } = rule;
        writeln!(text, "| {section} | {mark} | {} | `{test}` | {result} |", escape_pipes(sentence))
            .expect("writing to a string failed");
    }
    text.push_str("\n## Not tested here\n\n| Section | Mark | Rule | Why |\n|---|---|---|---|\n");
    for UntestedRule { section, mark, sentence, reason } in untested_rules {
        writeln!(text, "| {section} | {mark} | {} | {} |", escape_pipes(sentence), escape_pipes(reason))
            .expect("writing to a string failed");
    }
    text
}

fn escape_pipes(text: &str) -> String {
    text.replace('|', "\\|")
}

fn docs_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md")
}

/// Returns whether docs/conformance.md has the results of this run. With `write`, writes the page
/// instead, and returns true.
pub(crate) fn check_docs(
    outcomes: &[(&Rule, Outcome)],
    untested_rules: &[&UntestedRule],
    write: bool,
) -> bool {
    let current = build_page(outcomes, untested_rules);
    if write {
        std::fs::write(docs_path(), current).expect("the docs cannot be written");
        return true;
    }
    let is_same = std::fs::read_to_string(docs_path()).is_ok_and(|stored| stored == current);
    if !is_same {
        eprintln!("docs/conformance.md differs from the results of this run: run with -- --write-docs");
    }
    is_same
}
