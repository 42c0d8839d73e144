//! Tests of help pages and of suggestions for typos.

use crate::golden::{differs, run_to_end};
use crate::util::{root, weir, weir_command};

#[test]
fn weir_without_arguments_shows_its_commands() {
    let run = weir::<&str>([]).expect(2);
    for word in [
        "record",
        "watch",
        "info",
        "dump",
        "stats",
        "check",
        "repair",
        "relog",
        "demo",
        "First steps:",
        "Record and look:",
        "Sessions:",
        "Traces:",
        "Analysis:",
        "Programs:",
        "Machine:",
        "Exit status:",
    ] {
        assert!(run.stderr.contains(word), "no {word} in {}", run.stderr);
    }
    assert_eq!(weir(["--help"]).expect(0).text(), run.stderr);
    assert!(weir(["--version"]).expect(0).text().starts_with("weir "));
}

#[test]
fn help_pages_name_the_options_of_their_command() {
    const SCHEMAS: [&str; 3] = ["--manifest", "--tmf", "--pdb"];
    const FILTERS: [&str; 11] = [
        "-p, --provider",
        "--event",
        "--level",
        "--keyword",
        "--pid",
        "--tid",
        "--cpu",
        "--from",
        "--to",
        "--head",
        "--grep",
    ];
    let common: Vec<&str> = SCHEMAS.into_iter().chain(FILTERS).collect();
    for (command, options, has_filters) in [
        ("info", &["--json", ".etl.zip"][..], false),
        (
            "dump",
            &[
                "--format",
                "jsonl",
                "csv",
                "xml",
                "--output",
                "--numeric",
                "--all",
                "--tail",
                "--follow",
                "--time",
            ],
            true,
        ),
        ("stats", &["--by", "--top", "--json"], true),
        ("report", &["cpu", "sched", "disk", "Examples:"], false),
        (
            "flame",
            &["--output", "--kind", "--event", "--collapsed", "--speedscope", "--nodes", "Examples:"],
            false,
        ),
        ("check", &["--json", "--strict"], false),
        ("repair", &["--output", "--force"], false),
        ("relog", &["--output", "--force", "--compress", "--decompress", "--drop", "--bare"], true),
        ("demo", &["--output"], false),
    ] {
        let page = weir([command, "--help"]).expect(0).text();
        let common_options = if has_filters { &common[..] } else { &[] };
        for word in options.iter().chain(common_options) {
            assert!(page.contains(word), "no {word} in the help of {command}:\n{page}");
        }
    }
}

#[test]
fn typos_get_a_suggestion_and_missing_arguments_are_named() {
    for (typed, meant) in [("dmup", "dump"), ("recrod", "record"), ("reprot", "report")] {
        let run = weir([typed, "x.etl"]).expect(2);
        let suggestion = format!("a similar subcommand exists: '{meant}'");
        assert!(run.stderr.contains(&suggestion), "{typed}: {}", run.stderr);
    }
    let run = weir(["dump", "x.etl", "--formt", "csv"]).expect(2);
    assert!(run.stderr.contains("--format"), "{}", run.stderr);
    for command in ["info", "dump", "stats", "check", "repair", "relog"] {
        let run = weir([command]).expect(2);
        assert!(run.stderr.contains("FILE"), "{command}: {}", run.stderr);
    }
}

#[test]
fn older_command_names_are_hidden_and_still_have_help() {
    let page = weir(["--help"]).expect(0).text();
    for (name, replacement) in [
        ("increment", "update --next-file"),
        ("convert-to-realtime", "update --to-real-time"),
        ("capture-state", "enable --capture-state"),
    ] {
        assert!(!page.contains(name), "{name} is listed: {page}");
        let own_page = weir([name, "--help"]).expect(0).text();
        assert!(own_page.contains(&format!("same as {replacement}")), "{own_page}");
    }
}

#[test]
fn help_pages_match_their_golden_text() {
    let mut differing_pages = 0;
    for command in [
        "record",
        "profiles",
        "watch",
        "top",
        "start",
        "stop",
        "query",
        "list",
        "providers",
        "enable",
        "disable",
        "capture-state",
        "update",
        "flush",
        "increment",
        "convert-to-realtime",
        "demo",
        "daemon",
        "relog",
        "error",
        "shims",
        "ask",
        "doctor",
        "dump",
        "convert",
        "report",
        "flame",
        "view",
        "stats",
        "info",
        "check",
    ] {
        let page = run_to_end(weir_command([command, "--help"]).env_remove("COLUMNS")).expect(0).text();
        differing_pages +=
            usize::from(differs(&root().join(format!("fixtures/help/{command}.txt")), page.as_bytes()));
    }
    assert_eq!(differing_pages, 0, "help pages differ; BLESS=1 writes them");
}
