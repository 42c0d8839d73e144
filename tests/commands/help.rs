//! Help pages and suggestions for typos.

use crate::golden::{differs, finish};
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
        "Examples:",
        "Exit status:",
    ] {
        assert!(run.stderr.contains(word), "{word} in {}", run.stderr);
    }
    assert_eq!(weir(["--help"]).expect(0).text(), run.stderr);
    assert!(weir(["--version"]).expect(0).text().starts_with("weir "));
}

#[test]
fn help_of_each_command_names_its_options() {
    const SCHEMAS: [&str; 3] = ["--manifest", "--tmf", "--pdb"];
    const FILTERS: [&str; 11] = [
        "--provider",
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
    for (verb, own, shares) in [
        ("info", &["--json", ".etl.zip"][..], false),
        ("dump", &["--format", "jsonl", "csv", "xml", "--output", "--numeric"], true),
        ("stats", &["--by", "--top", "--json"], true),
        ("report", &["cpu", "sched", "disk", "Examples:"], false),
        (
            "flame",
            &["--output", "--kind", "--event", "--collapsed", "--speedscope", "--nodes", "Examples:"],
            false,
        ),
        ("check", &["--json"], false),
        ("repair", &["--output", "--force"], false),
        ("relog", &["--output", "--force", "--compress", "--decompress", "--drop", "--bare"], true),
        ("demo", &["--output"], false),
    ] {
        let page = weir([verb, "--help"]).expect(0).text();
        let shared = if shares { &common[..] } else { &[] };
        for word in own.iter().chain(shared) {
            assert!(page.contains(word), "{word} in the help of {verb}:\n{page}");
        }
    }
}

#[test]
fn typo_is_answered_with_a_suggestion() {
    let run = weir(["dmup", "x.etl"]).expect(2);
    assert!(run.stderr.contains("'dump'"), "{}", run.stderr);
    let run = weir(["dump", "x.etl", "--formt", "csv"]).expect(2);
    assert!(run.stderr.contains("--format"), "{}", run.stderr);
    for verb in ["info", "dump", "stats", "check", "repair", "relog"] {
        let run = weir([verb]).expect(2);
        assert!(run.stderr.contains("FILE"), "{verb}: {}", run.stderr);
    }
}

#[test]
fn help_pages_match_their_golden_text() {
    let mut wrong = 0;
    for verb in [
        "record",
        "watch",
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
    ] {
        let page = finish(weir_command([verb, "--help"]).env_remove("COLUMNS")).expect(0).text();
        wrong += usize::from(differs(&root().join(format!("fixtures/help/{verb}.txt")), page.as_bytes()));
    }
    assert_eq!(wrong, 0, "help pages differ; BLESS=1 writes them");
}
