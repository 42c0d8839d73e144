//! Tests of colours and of the width of tables, on terminals and pipes.

use std::process::Command;

use super::{arg, fixture_path};
use crate::golden::run_to_end;
use crate::util::terminal::{SMALL, TerminalSize, run_on_terminal};
use crate::util::weir_command;

const ESCAPE: &str = "\x1b[";

fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = weir_command(arguments);
    command.env("TERM", "xterm").envs(environment.iter().copied());
    command
}

/// Commands whose output has colours on a terminal.
fn coloured_commands() -> Vec<Vec<String>> {
    let (undecodable, kernel) = (fixture_path("undecodable"), fixture_path("kernel"));
    let commands: [&[&str]; 5] = [
        &["dump", arg(&undecodable)],
        &["stats", arg(&kernel)],
        &["info", arg(&kernel)],
        &["report", "cpu", arg(&kernel)],
        &["doctor"],
    ];
    commands.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect()
}

#[test]
fn colours_follow_option_environment_and_terminal() {
    const NO_COLOR: (&str, &str) = ("NO_COLOR", "1");
    const FORCE: (&str, &str) = ("CLICOLOR_FORCE", "1");
    for words in coloured_commands() {
        for (option, environment, on_terminal, piped) in [
            ("auto", &[][..], true, false),
            ("auto", &[NO_COLOR], false, false),
            ("auto", &[FORCE], true, true),
            ("auto", &[NO_COLOR, FORCE], false, false),
            ("always", &[NO_COLOR], true, true),
            ("never", &[FORCE], false, false),
        ] {
            let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
            arguments.extend(["--color", option]);
            let printed = run_on_terminal(&mut command(&arguments, environment), SMALL);
            assert_eq!(printed.contains(ESCAPE), on_terminal, "{arguments:?} {environment:?}: {printed}");
            let printed = run_to_end(&mut command(&arguments, environment)).text();
            assert_eq!(printed.contains(ESCAPE), piped, "{arguments:?} {environment:?} piped: {printed}");
        }
    }
}

#[test]
fn color_option_may_precede_the_command() {
    let trace = fixture_path("undecodable");
    let run = run_to_end(&mut command(&["--color", "always", "dump", arg(&trace)], &[])).expect(0);
    assert!(run.text().contains(ESCAPE), "{}", run.text());
    // A usage error still names the usage of the command.
    let run = run_to_end(&mut command(&["--color", "never", "dump"], &[])).expect(2);
    assert!(run.stderr.contains("Usage: weir dump"), "{}", run.stderr);
}

/// Returns the lines of tables: the heading above each rule of hyphens, the rule, and the lines up to
/// the next empty line.
fn table_lines(page: &str) -> Vec<&str> {
    let lines: Vec<&str> = page.lines().collect();
    let is_rule = |line: &str| line.len() > 3 && line.bytes().all(|byte| byte == b'-');
    let rules = lines.iter().enumerate().filter(|(_, line)| is_rule(line));
    let table = |(rule, _)| lines[rule - 1..].iter().take_while(|line| !line.is_empty()).copied();
    rules.flat_map(table).collect()
}

#[test]
fn tables_fit_the_terminal() {
    let mut shortened = 0;
    for trace in ["kernel", "tracelogging", "merged", "undecodable"] {
        let path = fixture_path(trace);
        for words in [
            &["stats", "--top", "0"][..],
            &["info"],
            &["report", "cpu"],
            &["report", "sched"],
            &["report", "disk"],
        ] {
            if words[0] == "report" && trace != "kernel" {
                continue;
            }
            let arguments = [words, &["--color", "never", arg(&path)]].concat();
            for size in [SMALL, TerminalSize { columns: 200, rows: 60 }] {
                let page = run_on_terminal(&mut command(&arguments, &[]), size);
                let lines = table_lines(&page);
                assert!(!lines.is_empty(), "{arguments:?} has no table: {page}");
                for line in &lines {
                    assert!(line.chars().count() <= usize::from(size.columns), "{size:?}: {line}");
                }
                shortened += lines.iter().filter(|line| line.ends_with('…')).count();
            }
            let page = run_to_end(&mut command(&arguments, &[])).text();
            assert!(
                !table_lines(&page).iter().any(|line| line.ends_with('…')),
                "a pipe gets a shortened table: {page}"
            );
        }
    }
    assert!(shortened > 0, "no table needed less width");
}

#[test]
fn pages_are_wrapped_at_the_width_of_the_terminal() {
    let trace = fixture_path("kernel");
    for words in [&["doctor", "--all"][..], &["doctor"], &["info", arg(&trace)]] {
        let arguments = [words, &["--color", "never"]].concat();
        let page = run_on_terminal(&mut command(&arguments, &[]), SMALL);
        // Commands to type are not divided.
        let is_command =
            |line: &&str| ["now ", "to last "].iter().any(|label| line.trim_start().starts_with(label));
        for line in page.lines().filter(|line| !is_command(line)) {
            assert!(line.chars().count() <= usize::from(SMALL.columns), "{arguments:?}: {line}");
        }
    }
    // A pipe gets each text on one line.
    let page = run_to_end(&mut command(&["doctor", "--all"], &[])).text();
    assert!(page.lines().any(|line| line.len() > 100), "{page}");
}
