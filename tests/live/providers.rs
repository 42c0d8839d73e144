//! Tests of providers on the command line: names, enables, filters, state capture and lists.

use serde_json::Value;

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, shop_events_in, start_shop};
use crate::util::{Daemon, Process, eventually, root, weir};

/// The provider of `fixtures/manifests/everything.man`.
const EVERYTHING_GUID: &str = "6f0a4d5e-3c41-4a53-9c0b-1f2e3d4c5b6a";

/// Waits until a provider listed by this command has the process, and returns the provider's entry.
fn wait_for_provider_of(daemon: &Daemon, arguments: &[&str], process: &Process) -> Value {
    eventually("the provider is listed", || {
        let entries = daemon.weir(arguments).expect(0).json();
        let has_process = |entry: &Value| {
            entry["pids"].as_array().is_some_and(|pids| pids.iter().any(|pid| pid == process.id()))
        };
        entries.into_iter().find(has_process)
    })
}

#[test]
fn providers_are_listed_with_their_processes_and_sessions() {
    let daemon = Daemon::start();
    assert!(daemon.weir(["providers"]).expect(0).stderr.contains("no provider"));
    daemon.weir(["start", "Live", "--real-time", "-p", &format!("{SHOP}:0x1:info")]).expect(0);
    let shop = start_shop(&daemon);
    for arguments in [
        &["list", "--providers", "--json"][..],
        &["providers", "--json"],
        &["providers", "*coffee*", "--json"],
    ] {
        let entry = wait_for_provider_of(&daemon, arguments, &shop);
        assert_eq!((&entry["name"], &entry["kind"]), (&SHOP.into(), &"modern".into()));
        assert_eq!(entry["sessions"][0]["name"], "Live");
        let shown = (&entry["sessions"][0]["any"], &entry["sessions"][0]["level"]);
        assert_eq!(shown, (&"0x1".into(), &4.into()));
    }
    let run = daemon.weir(["providers", "Tea.*"]).expect(0);
    assert!(run.stdout.is_empty() && run.stderr.contains("Tea.*"), "{}", run.stderr);
    let table = daemon.weir(["providers"]).expect(0).text();
    assert!(table.contains(SHOP) && table.contains("Live:0x1:4"), "{table}");
    assert_eq!(daemon.weir(["list", "--providers"]).expect(0).text(), table);
    let page = daemon.weir(["query", "Live"]).expect(0).text();
    assert!(page.contains(SHOP) && page.contains("Level:                  4 (Information)"), "{page}");
    let session = &daemon.weir(["query", "Live", "--json"]).expect(0).json()[0];
    assert_eq!(
        (&session["providers"][0]["name"], &session["providers"][0]["any"]),
        (&SHOP.into(), &"0x1".into())
    );
    daemon.weir(["enable", "Live", SHOP]).expect(0);
    let table = daemon.weir(["providers"]).expect(0).text();
    assert!(table.contains("Live:all"), "{table}");
}

#[test]
fn providers_are_read_from_lists_files_and_repeated_flags() {
    let daemon = Daemon::start();
    let list = daemon.path("providers.txt");
    let list_text =
        "# ours\nOne:0x1:warning\n{b3864c38-4273-58c5-545b-8b3608343471} (0x1,0x2) 0x5 # theirs\n";
    std::fs::write(&list, list_text).unwrap();
    daemon.weir(["start", "Many", "-pf", arg(&list), "-p", "Two+Three::4", "-p", "*Four@all=0x3"]).expect(0);
    let enabled_settings = |name: &str| {
        let sessions = daemon.weir(["query", name, "--json"]).expect(0).json();
        let settings_of = |provider: &Value| {
            (provider["level"].as_u64().unwrap(), provider["any"].to_string(), provider["all"].to_string())
        };
        let providers = sessions[0]["providers"].as_array().unwrap();
        let mut settings: Vec<_> = providers.iter().map(settings_of).collect();
        settings.sort();
        settings
    };
    let settings = |level, any: &str, all: &str| (level, format!("\"{any}\""), format!("\"{all}\""));
    let all_settings = [
        settings(0, "0x0", "0x0"),
        settings(0, "0x0", "0x3"),
        settings(3, "0x1", "0x0"),
        settings(4, "0x0", "0x0"),
        settings(5, "0x3", "0x0"),
    ];
    assert_eq!(enabled_settings("Many"), all_settings);
    daemon.weir(["disable", "Many", "-pf", arg(&list), "-p", "Two;Three"]).expect(0);
    assert_eq!(enabled_settings("Many"), [settings(0, "0x0", "0x3")]);
    daemon.weir(["enable", "Many", "Four", "Five", "--level", "2"]).expect(0);
    assert_eq!(
        enabled_settings("Many"),
        [settings(2, "0x0", "0x0"), settings(2, "0x0", "0x0")],
        "an enable does not replace the earlier enable"
    );
}

#[test]
fn manifest_names_providers_and_keywords() {
    let daemon = Daemon::start();
    let manifest = root().join("fixtures/manifests/everything.man");
    daemon.weir(["start", "Named"]).expect(0);
    let provider = "Traceweir-Example-Everything:Network|disk:4";
    daemon.weir(["enable", "Named", provider, "--manifest", arg(&manifest)]).expect(0);
    let session = &daemon.weir(["query", "Named", "--json"]).expect(0).json()[0];
    assert_eq!(session["providers"][0]["any"], "0x9");
    let guid = EVERYTHING_GUID;
    assert_eq!(session["providers"][0]["guid"], guid, "the GUID is not that of the manifest");
    let run =
        daemon.weir(["enable", "Named", &format!("{{{guid}}}:Nett"), "--manifest", arg(&manifest)]).expect(2);
    assert!(run.stderr.contains("Network (0x1)") && run.stderr.contains("^^^^"), "{}", run.stderr);
}

#[test]
fn flags_accept_the_names_of_a_manifest() {
    let daemon = Daemon::start();
    let manifest = root().join("fixtures/manifests/everything.man");
    daemon.weir(["start", "Flags"]).expect(0);
    let enable = |flags: &[&str]| {
        let mut arguments =
            vec!["enable", "Flags", "Traceweir-Example-Everything", "--manifest", arg(&manifest)];
        arguments.extend(flags);
        daemon.weir(&arguments)
    };
    enable(&["--keywords", "Network|disk", "--level", "Chatty", "--all", "0x8"]).expect(0);
    let entry = &daemon.weir(["query", "Flags", "--json"]).expect(0).json()[0]["providers"][0];
    assert_eq!((&entry["any"], &entry["all"], &entry["level"]), (&"0x9".into(), &"0x8".into(), &16.into()));
    enable(&["--level", "talkative"]).expect(0);
    let run = enable(&["--level", "loud"]).expect(2);
    assert!(run.stderr.contains("Chatty (16)") && run.stderr.contains("^^^^"), "{}", run.stderr);
    let run = enable(&["--keywords", "Net"]).expect(2);
    assert!(run.stderr.contains("Network (0x1)"), "{}", run.stderr);
}

#[test]
fn payload_conditions_and_provider_filters_reach_the_session() {
    let daemon = Daemon::start();
    let manifest = root().join("fixtures/manifests/everything.man");
    daemon.weir(["start", "Deep"]).expect(0);
    let provider =
        "Traceweir-Example-Everything@payload=\"TypesEvent: U16 == 443 and Unicode contains 'a b'\"";
    let run = daemon.weir(["enable", "Deep", provider]).expect(2);
    assert!(run.stderr.contains("--manifest FILE"), "{}", run.stderr);
    let provider = format!("{provider}@schematized=7:00ff");
    daemon.weir(["enable", "Deep", &provider, "--manifest", arg(&manifest)]).expect(0);
    let session = daemon.weir(["query", "Deep", "--json"]).expect(0).json().remove(0);
    let mut filters: Vec<_> = session["providers"][0]["filters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|filter| filter.as_str().unwrap())
        .collect();
    filters.sort_unstable();
    // The types SCHEMATIZED and PAYLOAD.
    assert_eq!(filters, ["0x80000000", "0x80000100"]);
}

/// The program that [`only_events_with_matching_fields_are_recorded`] runs. It writes one event of
/// the manifest for each pair of state and version.
#[test]
#[ignore = "another test runs this one as a separate program"]
fn writes_events_of_a_manifest() {
    let provider = traceweir::Provider::register(EVERYTHING_GUID.parse().unwrap(), None).unwrap();
    // MapsEvent, whose fields are State, Access and Version.
    let event = traceweir::EventDescriptor { id: 3, opcode: 41, ..Default::default() };
    eventually("a session enables the provider", || {
        provider.enabled(event.level, event.keyword).then_some(())
    });
    for (state, version) in [(1_u32, "Ver1.0"), (2, "Ver1.1"), (2, "Ver2.0"), (3, "ver2.1")] {
        let version: Vec<u8> = version.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        provider.write(&event, &[&state.to_le_bytes(), &0_u32.to_le_bytes(), &version]).unwrap();
    }
}

#[test]
fn only_events_with_matching_fields_are_recorded() {
    let daemon = Daemon::start();
    let (manifest, file) = (root().join("fixtures/manifests/everything.man"), daemon.path("a.etl"));
    for (condition, expected) in [
        ("MapsEvent: State == 2", &["Ver1.1", "Ver2.0"][..]),
        ("3: State > 1 and Version contains VER2", &["Ver2.0", "ver2.1"]),
        ("3: State == 1 or Version == 'ver2.1'", &["Ver1.0", "ver2.1"]),
        ("3: State not in 2..3", &["Ver1.0"]),
        // A condition on event 1 does not affect event 3.
        ("1: U8 == 1", &["Ver1.0", "Ver1.1", "Ver2.0", "ver2.1"]),
    ] {
        let provider = format!("Traceweir-Example-Everything@payload=\"{condition}\"");
        let manifest_options = ["--manifest", arg(&manifest)];
        let start =
            ["start", "Deep", "-o", arg(&file), "-p", &provider, manifest_options[0], manifest_options[1]];
        daemon.weir(start).expect(0);
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "live::providers::writes_events_of_a_manifest", "--ignored"]);
        let run = program.env("TRACEWEIR_RUNTIME_DIR", daemon.folder()).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        daemon.weir(["stop", "Deep"]).expect(0);
        let dump = [
            "dump",
            "--format",
            "jsonl",
            "--event",
            "3",
            "--provider",
            "Traceweir-Example-Everything",
            arg(&file),
            manifest_options[0],
            manifest_options[1],
        ];
        let events = weir(dump).expect(0).json();
        // Type 3 is also that of the event with which the session describes the process.
        let is_of_process = |event: &&Value| event["event"] == "Process/DCStart";
        let events = events.iter().filter(|event| !is_of_process(event));
        let versions: Vec<_> = events.map(|event| event["fields"]["Version"].as_str().unwrap()).collect();
        assert_eq!(versions, expected, "{condition}");
    }
}

#[test]
fn filters_without_a_match_are_reported() {
    let daemon = Daemon::start();
    let provider = "*Traceweir.Test.Idle@ids=1@exe=traceweir-nobody-runs-this@pid=4194304";
    let run = daemon.weir(["start", "Idle Hands", "-p", provider]).expect(0);
    for words in [
        "@ids does not apply to TraceLogging",
        "there is no process 4194304",
        "no program called traceweir-nobody-runs-this",
        "weir stop 'Idle Hands'",
    ] {
        assert!(run.stderr.contains(words), "no {words} in {}", run.stderr);
    }
    let run = daemon.weir(["enable", "Idle Hands", "*Traceweir.Test.Idle@names=A"]).expect(0);
    assert!(!run.stderr.contains("note:"), "{}", run.stderr);
}

#[test]
fn one_provider_is_shown_with_its_programs_under_the_requested_name() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Ahead", "-p", SHOP, "-p", "*Traceweir.Test.Ahead"]).expect(0);
    let page = daemon.weir(["providers", "Traceweir.Test.Ahead"]).expect(0).text();
    assert!(
        page.contains("Provider    Traceweir.Test.Ahead {") && page.contains("Enabled by  Ahead:all"),
        "{page}"
    );
    let shop = start_shop(&daemon);
    wait_for_provider_of(&daemon, &["providers", "--json"], &shop);
    let page = daemon.weir(["providers", SHOP]).expect(0).text();
    let process = page.lines().find(|line| line.contains(&shop.id().to_string())).unwrap();
    assert!(process.starts_with("Processes") && process.ends_with("/weir"), "{page}");
}

#[test]
fn only_listed_processes_are_enabled() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let (chosen, _other) = (start_shop(&daemon), start_shop(&daemon));
    wait_for_provider_of(&daemon, &["providers", "--json"], &chosen);
    daemon.weir(["start", "Some", "-o", arg(&file), "-p", &format!("{SHOP}@pid={}", chosen.id())]).expect(0);
    eventually("the session has events", || {
        (daemon.weir(["query", "Some", "--json"]).json()[0]["events"] != 0).then_some(())
    });
    daemon.weir(["stop", "Some"]).expect(0);
    let pids: std::collections::BTreeSet<_> =
        shop_events_in(&file).iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids, [u64::from(chosen.id())].into());
}

/// Checks how many of the six events of two orders are recorded with each filter after the
/// provider's name. The events of an order are called Order, Brew and Order.
#[test]
fn events_are_filtered_by_name_and_processes_by_program() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    for (options, expected) in [
        ("@names=Brew", 2),
        ("@not-names=Brew", 4),
        ("@names=\"Brew,Order\"", 6),
        ("@names=Brew@names=Other", 2),
        ("@exe=weir", 6),
        ("@exe=\"other;WEIR\"", 6),
        ("@exe=other", 0),
        ("@exe=weir@names=Order", 4),
        // Events of this provider have names and no ids, so a filter by id is ignored.
        ("@ids=77", 6),
        ("@all=0x1", 6),
        ("@all=0x2", 0),
        ("::4@any=0x1@ignore-keyword-0", 6),
    ] {
        let provider = format!("{SHOP}{options}");
        daemon.weir(["start", "Choosing", "-o", arg(&file), "-p", &provider]).expect(0);
        run_shop(&daemon, 2);
        daemon.weir(["stop", "Choosing"]).expect(0);
        assert_eq!(shop_events_in(&file).len(), expected, "{options}");
    }
}

#[test]
fn capture_state_reaches_the_provider() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "Asking", "-o", arg(&file), "-p", SHOP]).expect(0);
    let shop = daemon.spawn_weir(["demo-shop", "--pause", "0", "--orders", "2", "--linger", "60000"]);
    wait_for_provider_of(&daemon, &["providers", "--json"], &shop);
    let has_all_orders = |session: &Value| session["events"] == 2 * EVENTS_PER_ORDER;
    eventually("the session has the events of all orders", || {
        daemon.weir(["flush", "Asking"]).expect(0);
        has_all_orders(&daemon.weir(["query", "Asking", "--json"]).expect(0).json()[0]).then_some(())
    });
    daemon.weir(["enable", "Asking", SHOP, "--capture-state"]).expect(0);
    let state = eventually("the file has the state event", || {
        daemon.weir(["flush", "Asking"]).expect(0);
        let events = weir(["dump", "--format", "jsonl", "--event", "State", arg(&file)]).json();
        events.into_iter().next()
    });
    assert_eq!(state["fields"]["served"], 2);
    daemon.weir(["stop", "Asking"]).expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER + 1);
}

#[test]
fn provider_that_is_not_enabled_is_reported() {
    let daemon = Daemon::start();
    daemon.weir(["start", "None"]).expect(0);
    daemon.weir(["start", "Some", "-p", &format!("{SHOP}@sid@stack@ids=1,2")]).expect(0);
    let enable = ["enable", "None", SHOP, "--capture-state"];
    for arguments in [&["disable", "None", SHOP][..], &["capture-state", "None", SHOP], &enable] {
        let run = daemon.weir(arguments).expect(0);
        assert!(run.stderr.contains("is not enabled in session None"), "{arguments:?}: {}", run.stderr);
    }
    daemon.weir([&enable[..], &["--pid", "1"]].concat()).expect(2);
    let page = daemon.weir(["query", "Some"]).expect(0).text();
    assert!(page.contains("0x5 (sid stack)") && page.contains("0x80000200 (ids=1,2)"), "{page}");
    let session = daemon.weir(["query", "Some", "--json"]).expect(0).json().remove(0);
    assert_eq!(session["providers"][0]["property"], "0x5");
    assert_eq!(session["providers"][0]["filters"][0], "0x80000200");
    let run = daemon.weir(["disable", "Some", SHOP]).expect(0);
    assert!(!run.stderr.contains("not enabled"), "{}", run.stderr);
    let empty = daemon.path("empty.txt");
    std::fs::write(&empty, "# nothing\n").unwrap();
    let run = daemon.weir(["enable", "Some", "-pf", arg(&empty)]).expect(2);
    assert!(run.stderr.contains("contains no provider"), "{}", run.stderr);
    for invalid_provider in ["12", "0x10", "f=list.txt"] {
        daemon.weir(["enable", "Some", "-p", invalid_provider]).expect(2);
    }
}

#[test]
fn user_id_and_session_id_of_an_event_are_shown() {
    let daemon = Daemon::start();
    let file = daemon.path("who.etl");
    let provider = format!("{SHOP}@sid@tsid@start-key@event-key");
    daemon.weir(["start", "Who", "-o", arg(&file), "-p", &provider]).expect(0);
    run_shop(&daemon, 1);
    daemon.weir(["stop", "Who"]).expect(0);
    let sid = format!("S-1-22-1-{}", rustix::process::geteuid().as_raw());
    let events = shop_events_in(&file);
    assert_eq!(events.len(), EVENTS_PER_ORDER);
    for event in &events {
        assert_eq!(event["sid"], sid.as_str());
        assert!(event["session"].is_number(), "{event}");
        assert!(event["start_key"].as_str().is_some_and(|key| key.starts_with("0x")), "{event}");
        assert!(event["event_key"].as_str().is_some_and(|key| key.starts_with("0x")), "{event}");
    }
    let page = daemon.weir(["dump", arg(&file)]).expect(0).text();
    assert!(page.contains(&format!("{{sid={sid} session=")), "{page}");
    let page = daemon.weir(["dump", arg(&file), "--format", "xml"]).expect(0).text();
    assert!(page.contains(&format!("<Security UserID=\"{sid}\" />")), "{page}");
}

#[test]
fn capture_state_of_an_unknown_provider_is_refused() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Asking"]).expect(0);
    let run = daemon.weir(["capture-state", "Asking", "Nobody.Has.It"]).expect(1);
    assert!(run.stderr.contains("Nobody.Has.It"), "{}", run.stderr);
}

#[test]
fn invalid_providers_are_refused_without_effect() {
    let absent = Daemon::not_started();
    for (provider, word) in
        [("#12", "GUID"), ("A:1:loud", "critical"), ("A@names=B,C", "quote a list"), ("A:Net", "--manifest")]
    {
        for arguments in [
            &["record", "-o", "/nowhere/x.etl", "-p", provider][..],
            &["enable", "X", provider],
            &["watch", "-p", provider],
        ] {
            let run = absent.weir(arguments).expect(2);
            assert!(run.stderr.contains(word) && run.stderr.contains('^'), "{provider}: {}", run.stderr);
        }
    }
    let list = absent.path("providers.txt");
    std::fs::write(&list, "A\nB:1:loud\n").unwrap();
    let run = absent.weir(["start", "X", "-pf", arg(&list)]).expect(2);
    assert!(run.stderr.contains("providers.txt:2: ") && run.stderr.contains("^^^^"), "{}", run.stderr);
    let run = absent.weir(["start", "X", "-pf", arg(&absent.path("missing.txt"))]).expect(1);
    assert!(run.stderr.contains("missing.txt"), "{}", run.stderr);
    let run = absent.weir(["watch", "X", "-p", "A@exe=b"]).expect(2);
    assert!(run.stderr.contains("events contain no program"), "{}", run.stderr);
    for verb in ["enable", "disable", "capture-state"] {
        assert!(absent.weir([verb, "X"]).expect(2).stderr.contains("PROVIDER"));
    }
    assert!(!absent.is_answering(), "a daemon was started");
    run_shop(&absent, 1);
}
