//! Tests of `weir completions` and `weir man`: shells accept the scripts, and each command has a
//! page.

use std::process::Command;

use super::{arg, make_folder, write_file};
use crate::util::{skip, weir};

fn script(shell: &str) -> String {
    weir(["completions", shell]).expect(0).text()
}

#[test]
fn shells_accept_the_completion_scripts() {
    let folder = make_folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = script(shell);
        let path = write_file(&folder, shell, script.as_bytes());
        match Command::new(shell).arg("-n").arg(&path).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(_) => skip(shell, &format!("{shell} is not installed")),
        }
        for word in ["record", "completions", "stop-after", "access"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        assert!(!script.contains("demo-shop"), "{shell}: hidden commands are completed");
    }
    weir(["completions", "tcsh"]).expect(2);
}

#[test]
fn bash_completes_commands_options_and_values() {
    let folder = make_folder();
    let script = write_file(&folder, "weir.bash", script("bash").as_bytes());
    let complete = |words: &[&str]| {
        let typed: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (last, previous) = (words[words.len() - 1], words[words.len() - 2]);
        let program = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _weir weir '{last}' '{previous}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            arg(&script),
            typed.join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &program]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete(&["weir", "compl"]).trim(), "completions");
    assert_eq!(complete(&["weir", "record", "--stop-a"]).trim(), "--stop-after");
    assert_eq!(complete(&["weir", "access", "gr"]).trim(), "grant");
    assert_eq!(complete(&["weir", "dump", "--format", "js"]).trim(), "jsonl");
}

#[test]
fn each_command_has_a_manual_page_that_formats_without_warnings() {
    let folder = make_folder();
    let pages = folder.path().join("man/man1");
    assert!(weir(["man", arg(&pages)]).expect(0).text().contains("pages in "));
    let help = weir(["--help"]).expect(0).text();
    let commands =
        help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with([' ', '-']));
    let commands: Vec<&str> =
        commands.filter_map(|line| line.split(' ').next()).filter(|word| *word != "weir").collect();
    assert!(commands.len() > 30, "{commands:?}");
    for command in &commands {
        let page = std::fs::read_to_string(pages.join(format!("weir-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains("\\-\\-help"), "{page}");
    }
    for page in ["weir.1", "weir-access-grant.1", "weir-report-cpu.1", "weir-autologger-add.1"] {
        assert!(pages.join(page).is_file(), "{page}");
    }
    assert!(!pages.join("weir-demo-shop.1").exists());
    if Command::new("groff").arg("--version").output().is_err() {
        skip("groff", "groff is not installed");
        return;
    }
    for entry in std::fs::read_dir(&pages).unwrap() {
        let path = entry.unwrap().path();
        let output =
            Command::new("groff").args(["-man", "-Tutf8", "-Kutf8", "-ww", "-z"]).arg(&path).output();
        let warnings = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(!warnings.contains("warning"), "{}: {warnings}", path.display());
    }
}
