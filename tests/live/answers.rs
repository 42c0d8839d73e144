//! Tests of the results of the session commands: statuses as text and as JSON, provider names that
//! the daemon remembers, and messages.

use serde_json::Value;

use super::{
    EVENTS_PER_ORDER, SHOP, arg, check_documented, run_shop, running_sessions, shop_events_in, start_shop,
};
use crate::util::{Daemon, eventually, root};

/// The provider of `fixtures/manifests/everything.man`.
const EVERYTHING_GUID: &str = "6f0a4d5e-3c41-4a53-9c0b-1f2e3d4c5b6a";
const EVERYTHING_NAME: &str = "Traceweir-Example-Everything";

/// Runs a command with `--json` and returns the one object that it prints. Fails if the object has
/// an undocumented key.
fn json_result(daemon: &Daemon, arguments: &[&str], code: i32) -> Value {
    let objects = daemon.weir(arguments.iter().chain(&["--json"])).expect(code).json();
    assert_eq!(objects.len(), 1, "{arguments:?}");
    check_documented(&objects[0], "## Results of commands that change sessions");
    objects.into_iter().next().unwrap()
}

#[test]
fn errors_with_a_status_print_its_number_and_name() {
    let daemon = Daemon::start();
    for verb in [&["stop", "None"][..], &["query", "None"], &["flush", "None"], &["increment", "None"]] {
        let run = daemon.weir(verb).expect(1);
        assert!(run.stderr.contains("(4201 ERROR_WMI_INSTANCE_NOT_FOUND)"), "{verb:?}: {}", run.stderr);
        let object = json_result(&daemon, verb, 1);
        assert_eq!((&object["ok"], &object["status"]), (&false.into(), &4201.into()));
        assert_eq!(object["status_name"], "ERROR_WMI_INSTANCE_NOT_FOUND");
        assert!(object["error"].as_str().unwrap().contains("None"), "{object}");
    }
    daemon.weir(["start", "App"]).expect(0);
    let run = daemon.weir(["start", "app"]).expect(1);
    assert!(run.stderr.contains("(183 ERROR_ALREADY_EXISTS)"), "{}", run.stderr);
}

#[test]
fn each_changing_command_prints_one_json_object() {
    let daemon = Daemon::start();
    let (file, next_file) = (daemon.path("a.etl"), daemon.path("b.etl"));
    let started = json_result(&daemon, &["start", "App", "-o", arg(&file), "-p", SHOP], 0);
    assert_eq!((&started["ok"], &started["status"]), (&true.into(), &0.into()));
    assert_eq!(
        (&started["session"]["name"], &started["session"]["file"]),
        (&"App".into(), &arg(&file).into())
    );
    assert_eq!(started["providers"][0]["name"], SHOP);
    run_shop(&daemon, 1);
    let enabled = json_result(&daemon, &["enable", "App", "Other"], 0);
    assert_eq!(enabled["providers"][0]["name"], "Other");
    assert_eq!(json_result(&daemon, &["disable", "App", "Other"], 0)["ok"], true);
    assert_eq!(json_result(&daemon, &["flush", "App"], 0)["session"]["events"], 3);
    let updated = json_result(&daemon, &["update", "App", "-o", arg(&next_file)], 0);
    assert_eq!(updated["session"]["file"], arg(&next_file));
    assert_eq!(json_result(&daemon, &["increment", "App"], 1)["status"], 1);
    let stopped = json_result(&daemon, &["stop", "App"], 0);
    assert_eq!(
        (&stopped["session"]["status"], &stopped["session"]["events"]),
        (&"stopped".into(), &3.into())
    );
}

#[test]
fn provider_enabled_by_its_manifest_name_keeps_that_name() {
    let daemon = Daemon::start();
    let manifest = root().join("fixtures/manifests/everything.man");
    daemon.weir(["start", "App", "-p", EVERYTHING_NAME, "--manifest", arg(&manifest)]).expect(0);
    let providers = || running_sessions(&daemon)[0]["providers"].as_array().unwrap().clone();
    assert_eq!(
        (&providers()[0]["guid"], &providers()[0]["name"]),
        (&EVERYTHING_GUID.into(), &EVERYTHING_NAME.into())
    );
    let page = daemon.weir(["query", "App"]).expect(0).text();
    assert!(page.contains(&format!("Name:                   {EVERYTHING_NAME}\n")), "{page}");
    assert!(daemon.weir(["providers"]).expect(0).text().contains(EVERYTHING_NAME));
    let listed = daemon.weir(["providers", EVERYTHING_NAME, "--json"]).expect(0).json();
    assert_eq!(listed[0]["guid"], EVERYTHING_GUID);

    daemon.weir(["enable", "App", &format!("{}:0x10:4", EVERYTHING_NAME.to_lowercase())]).expect(0);
    assert_eq!(
        (providers().len(), &providers()[0]["any"]),
        (1, &"0x10".into()),
        "the second enable added a provider"
    );
    daemon.weir(["enable", "App", &format!("{{{EVERYTHING_GUID}}}")]).expect(0);
    assert_eq!(providers()[0]["name"].as_str().map(str::to_lowercase), Some(EVERYTHING_NAME.to_lowercase()));
    // `*NAME` means the GUID hashed from the name, which is another provider. When both are
    // enabled, the name alone is ambiguous.
    daemon.weir(["enable", "App", &format!("*{EVERYTHING_NAME}")]).expect(0);
    assert_eq!(providers().len(), 2);
    let run = daemon.weir(["disable", "App", EVERYTHING_NAME]).expect(2);
    assert!(
        run.stderr.contains(EVERYTHING_GUID) && run.stderr.contains("Usage: weir disable"),
        "{}",
        run.stderr
    );
    daemon.weir(["disable", "App", &format!("*{EVERYTHING_NAME}")]).expect(0);
    let run = daemon.weir(["disable", "App", EVERYTHING_NAME]).expect(0);
    assert!(!run.stderr.contains("not enabled"), "{}", run.stderr);
    assert_eq!(providers(), Vec::<Value>::new());
}

#[test]
fn stop_reports_the_events_of_the_last_file() {
    let daemon = Daemon::start();
    let (first, last) = (daemon.path("first.etl"), daemon.path("last.etl"));
    daemon.weir(["start", "App", "-o", arg(&first), "-p", SHOP]).expect(0);
    run_shop(&daemon, 3);
    daemon.weir(["update", "App", "-o", arg(&last)]).expect(0);
    run_shop(&daemon, 1);
    let run = daemon.weir(["stop", "App"]).expect(0);
    assert_eq!(shop_events_in(&last).len(), EVENTS_PER_ORDER);
    assert!(run.stderr.contains("last.etl: 3 events in"), "{}", run.stderr);
    assert!(run.stderr.contains("has collected 12 events"), "{}", run.stderr);

    let log = daemon.path("log.etl");
    let append = ["start", "More", "--append", "-o", arg(&log), "-p", SHOP];
    for (orders, expected) in [(2, "log.etl: 6 events in"), (1, "log.etl: 9 events in")] {
        daemon.weir(append).expect(0);
        run_shop(&daemon, orders);
        let run = daemon.weir(["stop", "More"]).expect(0);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        assert_eq!(run.stderr.contains("this session has added 3 events"), orders == 1, "{}", run.stderr);
    }
}

#[test]
fn private_session_needs_one_provider_and_reports_no_unwritten_file() {
    let daemon = Daemon::start();
    let file = daemon.path("old.etl");
    std::fs::write(&file, "an old file").unwrap();
    let start = ["start", "Own", "--mode", "private-logger", "--force", "-o", arg(&file), "-p", SHOP];
    let run = daemon.weir(start).expect(0);
    assert!(run.stderr.contains("no process takes part"), "{}", run.stderr);
    let run = daemon.weir(["stop", "Own"]).expect(0);
    assert!(run.stderr.contains("no process took part") && !run.stderr.contains("old.etl"), "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "an old file");

    let two_providers = ["start", "Own", "--mode", "private-logger", "-o", arg(&file), "-p", "A,B"];
    let run = daemon.weir(two_providers).expect(2);
    assert!(run.stderr.contains("--guid") && run.stderr.contains("Usage: weir start"), "{}", run.stderr);
}

#[test]
fn query_shows_the_providers_of_a_private_session() {
    let daemon = Daemon::start();
    let file = daemon.path("own.etl");
    let _shop = start_shop(&daemon);
    eventually("the shop is registered", || {
        let providers = daemon.weir(["providers", SHOP, "--json"]).expect(0).json();
        providers.iter().any(|provider| provider["pids"] != Value::Array(Vec::new())).then_some(())
    });
    let provider = format!("{SHOP}:0x3:4");
    daemon.weir(["start", "Own", "--mode", "private-logger", "-o", arg(&file), "-p", &provider]).expect(0);
    let session = &daemon.weir(["query", "Own", "--json"]).expect(0).json()[0];
    let shown = &session["providers"][0];
    assert_eq!((&shown["name"], &shown["any"], &shown["traced"]), (&SHOP.into(), &"0x3".into(), &1.into()));
    daemon.weir(["disable", "Own", SHOP]).expect(0);
    let session = &daemon.weir(["query", "Own", "--json"]).expect(0).json()[0];
    assert_eq!(session["providers"], Value::Array(Vec::new()));
    let run = daemon.weir(["stop", "Own"]).expect(0);
    assert!(run.stderr.contains("own.etl"), "{}", run.stderr);
}

#[test]
fn invalid_buffer_size_is_corrected_with_a_note() {
    let daemon = Daemon::start();
    for (requested, kib) in [("1", 4), ("20000", 16384)] {
        let run = daemon.weir(["start", "App", "--min-buffers", "2", "--buffer-size", requested]).expect(0);
        assert!(run.stderr.contains(&format!("{kib} KiB, not {requested}")), "{}", run.stderr);
        assert_eq!(running_sessions(&daemon)[0]["buffer_kib"], kib);
        daemon.weir(["stop", "App"]).expect(0);
    }
}

#[test]
fn filters_are_shown_with_their_arguments_and_excluded_processes_are_not_traced() {
    let daemon = Daemon::start();
    let shop = start_shop(&daemon);
    let other = start_shop(&daemon);
    let provider = format!("{SHOP}@ids=1,2-4@pid={}", shop.id());
    eventually("both shops are registered", || {
        let providers = daemon.weir(["providers", SHOP, "--json"]).expect(0).json();
        providers.first().filter(|provider| provider["pids"].as_array().unwrap().len() == 2).map(drop)
    });
    daemon.weir(["start", "App", "-p", &provider]).expect(0);
    let page = daemon.weir(["query", "App"]).expect(0).text();
    assert!(page.contains(&format!("(pid={})", shop.id())) && page.contains("(ids=1,2,3,4)"), "{page}");
    assert!(page.contains("2 registered, 1 traced"), "{page}");
    let session = &daemon.weir(["query", "App", "--json"]).expect(0).json()[0];
    let shown = &session["providers"][0];
    assert_eq!((&shown["traced"], shown["pids"].as_array().unwrap().len()), (&1.into(), 2));
    assert_eq!(shown["filtered"][1]["values"], serde_json::json!([1, 2, 3, 4]));
    assert_ne!(other.id(), shop.id());
}

#[test]
fn name_equal_to_the_guid_of_another_session_is_refused() {
    let daemon = Daemon::start();
    let guid = "b3864c38-4273-58c5-545b-8b3608343471";
    let braced = format!("{{{guid}}}");
    daemon.weir(["start", "App", "--guid", guid]).expect(0);
    for name in [guid, &braced] {
        let run = daemon.weir(["start", name]).expect(1);
        assert!(run.stderr.contains("(183 ERROR_ALREADY_EXISTS)"), "{}", run.stderr);
    }
    daemon.weir(["stop", &braced]).expect(0);
    daemon.weir(["start", guid]).expect(0);
    daemon.weir(["start", &braced]).expect(1);
    daemon.weir(["stop", &braced]).expect(0);
}

#[test]
fn names_with_spaces_and_the_fourth_column_of_a_provider_file_are_parsed() {
    let daemon = Daemon::start();
    let list = daemon.path("providers.txt");
    // The columns of the first line are GUID, keywords, level and name.
    let lines = format!("{{{EVERYTHING_GUID}}} 0x10 0x5 \"My Provider\"\nName With Space:1:4\n");
    std::fs::write(&list, lines).unwrap();
    daemon.weir(["start", "App", "-pf", arg(&list)]).expect(0);
    let session = &running_sessions(&daemon)[0];
    let providers = session["providers"].as_array().unwrap();
    let provider = |name: &str| providers.iter().find(|provider| provider["name"] == name).cloned().unwrap();
    let (labelled, spaced) = (provider("My Provider"), provider("Name With Space"));
    assert_eq!((&labelled["guid"], &labelled["level"]), (&EVERYTHING_GUID.into(), &5.into()));
    assert_eq!((&spaced["any"], &spaced["level"]), (&"0x1".into(), &4.into()));
    daemon.weir(["disable", "App", "\"My Provider\""]).expect(0);
    assert_eq!(running_sessions(&daemon)[0]["providers"].as_array().unwrap().len(), 1);
    let run = daemon.weir(["enable", "App", "Name With Space"]).expect(2);
    assert!(run.stderr.contains("must be quoted"), "{}", run.stderr);
}

#[test]
fn capture_state_names_a_provider_without_processes() {
    let daemon = Daemon::start();
    daemon.weir(["start", "App", "-p", "Nobody.Has.It"]).expect(0);
    let run = daemon.weir(["capture-state", "App", "Nobody.Has.It"]).expect(0);
    assert!(run.stderr.contains("no process has registered Nobody.Has.It"), "{}", run.stderr);
}

#[test]
fn impossible_requests_are_refused_or_corrected() {
    let daemon = Daemon::not_started();
    let run = daemon.weir(["start", "App", "--circular", "-o", "a.etl"]).expect(2);
    assert!(run.stderr.contains("Usage: weir start"), "{}", run.stderr);
    let run = daemon.weir(["access", "grant", "default", "--everyone", "0x80000000"]).expect(2);
    assert!(run.stderr.contains("change-access"), "{}", run.stderr);
    // Mode 0x9 is sequential (0x1) and new-file (0x8), which an autologger cannot have.
    daemon.weir(["autologger", "add", "A", "-p", SHOP, "--mode", "0x9"]).expect(0);
    let listed = &daemon.weir(["autologger", "list", "--json"]).expect(0).json()[0];
    assert_eq!(
        listed["mode"], "0x1",
        "the list does not show the mode with which the daemon starts the session"
    );
}
