//! `weir access` shows, changes, stores and removes access lists.

use serde_json::Value;

use super::check_documented;
use crate::util::Daemon;

const PROVIDER: &str = "Traceweir.Test.Access";

fn access_list(daemon: &Daemon, object: &str) -> Value {
    let list = daemon.weir(["access", "show", object, "--json"]).expect(0).json().remove(0);
    check_documented(&list, "## An access list");
    list["entries"].as_array().unwrap().iter().for_each(|entry| check_documented(entry, "## An access list"));
    list
}

/// Returns the kind, the trustee and the rights of each entry that the default list does not have.
fn entries_beyond_default(daemon: &Daemon, object: &str) -> Vec<String> {
    let default = access_list(daemon, "default");
    let entry_text = |entry: &Value| {
        let field = |key: &str| entry[key].as_str().unwrap().to_owned();
        format!("{} {} {}", field("kind"), field("who"), field("rights"))
    };
    let entries = access_list(daemon, object)["entries"].as_array().unwrap().clone();
    let default_entries = default["entries"].as_array().unwrap();
    entries.iter().filter(|entry| !default_entries.contains(entry)).map(entry_text).collect()
}

#[test]
fn rights_are_granted_denied_shown_and_removed() {
    let daemon = Daemon::start();
    assert_eq!(access_list(&daemon, PROVIDER)["own"], false);
    let run = daemon.weir(["access", "show", PROVIDER]).expect(0);
    assert!(run.stderr.contains("nothing is stored for Traceweir.Test.Access"), "{}", run.stderr);
    let page = daemon.weir(["access", "show", "default"]).expect(0).text();
    assert!(
        page.contains("built-in") && page.contains("everyone") && page.contains("register join-group"),
        "{page}"
    );

    let run =
        daemon.weir(["access", "grant", PROVIDER, "--user", "64377", "--group", "root", "enable", "0x20000"]);
    let run = run.expect(0);
    assert!(run.stderr.contains("granted enable 0x20000 to user 64377"), "{}", run.stderr);
    assert!(run.stderr.contains("not the system's daemon"), "{}", run.stderr);
    daemon.weir(["access", "deny", PROVIDER, "--everyone", "register"]).expect(0);
    let entries = entries_beyond_default(&daemon, PROVIDER);
    // The right `register` is 0x800, `enable` is 0x80.
    assert_eq!(entries, ["deny everyone 0x800", "allow user 64377 0x20080", "allow group root 0x20080"]);
    let run =
        daemon.weir(["access", "grant", PROVIDER, "--user", "root", "TRACELOG_REGISTER_GUIDS"]).expect(0);
    assert!(run.stderr.contains("an entry of the list denies register to everyone"), "{}", run.stderr);

    let replace_list = ["access", "grant", PROVIDER, "--user", "1", "--user", "2", "all", "--only"];
    daemon.weir(replace_list).expect(0);
    assert_eq!(access_list(&daemon, PROVIDER)["entries"].as_array().unwrap().len(), 2);
    let listed = daemon.weir(["access", "list", "--json"]).expect(0).json();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["guid"], access_list(&daemon, PROVIDER)["guid"]);

    let run = daemon.weir(["access", "remove", PROVIDER]).expect(0);
    assert!(run.stderr.contains("the default applies again"), "{}", run.stderr);
    assert_eq!(access_list(&daemon, PROVIDER)["own"], false);
    let run = daemon.weir(["access", "remove", PROVIDER]).expect(0);
    assert!(run.stderr.contains("had no list"), "{}", run.stderr);
    assert!(daemon.weir(["access", "list"]).expect(0).stderr.contains("access show default"));
}

#[test]
fn name_means_a_session_unless_the_rights_apply_to_providers() {
    let daemon = Daemon::start();
    let run = daemon.weir(["access", "grant", "App", "--everyone", "consume"]).expect(1);
    assert!(run.stderr.contains("no session App is running"), "{}", run.stderr);
    daemon.weir(["start", "App"]).expect(0);
    let run = daemon.weir(["access", "grant", "app", "--everyone", "consume"]).expect(0);
    assert!(run.stderr.contains("session app {"), "{}", run.stderr);
    let run = daemon.weir(["access", "grant", "App", "--everyone", "enable"]).expect(0);
    assert!(run.stderr.contains("provider App {"), "{}", run.stderr);
    assert_eq!(access_list(&daemon, "App")["name"], "session App");
    assert_eq!(access_list(&daemon, "*App")["name"], "provider App");
    let names = daemon.weir(["access", "list"]).expect(0).text();
    assert!(names.contains("session App"), "{names}");
    daemon.weir(["stop", "App"]).expect(0);
}

#[test]
fn flag_overridden_by_the_environment_is_reported() {
    let daemon = Daemon::start();
    let everyone = ["--everyone", "query", "--system"];
    for (command, options) in [
        (&["access", "grant", "App"][..], &everyone[..]),
        (&["access", "deny", "App"], &everyone),
        (&["access", "show", "App"], &["--system"]),
        (&["access", "list"], &["--user"]),
        (&["access", "remove", "App"], &["--user"]),
        (&["watch", "App"], &["--system"]),
    ] {
        let run = daemon.weir(command.iter().chain(options));
        let flag = format!("{} is ignored", options[options.len() - 1]);
        assert!(
            run.stderr.contains("TRACEWEIR_RUNTIME_DIR is set") && run.stderr.contains(&flag),
            "{command:?}: {}",
            run.stderr
        );
    }
    let help = daemon.weir(["access", "grant", "--help"]).expect(0).text();
    assert!(help.contains("TRACEWEIR_RUNTIME_DIR"), "{help}");
}

#[test]
fn wrong_arguments_are_explained() {
    let daemon = Daemon::start();
    for (args, code, word) in [
        (&["access", "grant", "App", "consume"][..], 2, "--everyone"),
        (&["access", "grant", "App", "--everyone"], 2, "RIGHT"),
        (&["access", "grant", "App", "--everyone", "eat"], 2, "create-realtime"),
        (&["access", "grant", "App", "--user", "no-such-user", "enable"], 1, "no user no-such-user"),
        (&["access", "show", "{12}"], 1, "GUID"),
        (&["access"], 2, "grant"),
    ] {
        let run = daemon.weir(args).expect(code);
        assert!(run.stderr.contains(word), "{args:?}: {}", run.stderr);
    }
    let help = daemon.weir(["access", "--help"]).expect(0).text();
    for word in ["create-file", "join-group", "Examples:", "default", "--only"] {
        assert!(help.contains(word), "no {word} in {help}");
    }
}
