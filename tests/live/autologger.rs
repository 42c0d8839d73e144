//! Tests of autologgers, which the command line defines and the daemon starts, and of the daemon's
//! settings.

use super::{EVENTS_PER_ORDER, SHOP, arg, check_documented, run_shop, running_sessions, shop_events_in};
use crate::util::Daemon;

#[test]
fn added_autologger_runs_from_the_start_of_the_daemon() {
    let mut daemon = Daemon::not_started();
    let log = daemon.path("boot.etl");
    let added = daemon
        .weir(["autologger", "add", "Boot", "-p", SHOP, "-o", arg(&log), "--generations", "2"])
        .expect(0);
    assert!(
        added.stderr.contains("boot.etl.0001") && added.stderr.contains("weir daemon"),
        "{}",
        added.stderr
    );
    // The third start writes the first file again. Each start records as many orders as the number
    // of its generation.
    for generation in [1, 2, 1] {
        daemon.restart();
        assert_eq!(
            running_sessions(&daemon)[0]["name"],
            "Boot",
            "the autologger did not start before the first request"
        );
        run_shop(&daemon, generation);
        daemon.stop();
        let file = daemon.path(&format!("boot.etl.000{generation}"));
        assert_eq!(shop_events_in(&file).len(), generation as usize * EVENTS_PER_ORDER);
        let listed = &daemon.weir(["autologger", "list", "--json"]).expect(0).json()[0];
        check_documented(listed, "## An autologger");
        check_documented(&listed["providers"][0], "## An autologger");
        assert_eq!((&listed["status"], &listed["file_counter"]), (&0.into(), &generation.into()));
    }
}

#[test]
fn filters_that_a_definition_cannot_store_are_named() {
    let daemon = Daemon::not_started();
    for provider in ["My.App@pid=1", "My.App@schematized=1:00"] {
        let run = daemon.weir(["autologger", "add", "Boot", "-p", provider]).expect(1);
        assert!(
            run.stderr.contains("cannot contain") && run.stderr.contains("weir enable Boot"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn autologger_pages_match_their_golden_text() {
    let daemon = Daemon::not_started();
    let folder = arg(daemon.folder()).to_owned();
    let empty_list = daemon.weir(["autologger", "list"]).expect(0);
    assert_eq!(empty_list.text(), "");
    assert!(empty_list.stderr.contains("no autologger"), "{}", empty_list.stderr);
    daemon
        .weir(["autologger", "add", "Boot", "-p", "My.App:0x10:warning", "-p", "Other", "--flush-timer", "1"])
        .expect(0);
    daemon.weir(["autologger", "add", "Live", "-p", "My.App", "--real-time", "--off"]).expect(0);
    let shown = daemon.weir(["autologger", "show", "Boot"]).expect(0).text().replace(&folder, "DIR");
    assert_eq!(
        shown,
        "# DIR/autologger.d/Boot.conf\n# last start: never\n# next log: DIR/log/Boot.etl\nStart = 1\n\
         Guid = \"bb4a6a31-0399-53d9-93b2-698bcec0b31c\"\nLogFileMode = 0x1\nMaxFileSize = 100\nFlushTimer = 1\n\n[My.App]\n\
         Enabled = 1\nEnableLevel = 3\nMatchAnyKeyword = 0x10\n\n[Other]\nEnabled = 1\n"
    );
    let listed = daemon.weir(["autologger", "list"]).expect(0).text().replace(&folder, "DIR");
    let lines: Vec<_> =
        listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "AUTOLOGGER START LAST START MODE NEXT LOG PROVIDERS",
        &"-".repeat(listed.lines().nth(1).map_or(0, str::len)),
        "Boot yes never SEQUENTIAL DIR/log/Boot.etl My.App Other",
        "Live no never REAL_TIME - My.App",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn definition_that_the_daemon_would_refuse_cannot_be_added() {
    let daemon = Daemon::not_started();
    let add = |options: &[&str]| {
        let mut command = vec!["autologger", "add", "A", "-p", SHOP];
        command.extend(options);
        daemon.weir(command)
    };
    // Mode 0x3 is sequential and circular, which exclude each other. Mode 0x9 is sequential and
    // new-file, which an autologger cannot have.
    let refused = add(&["--mode", "0x3"]).expect(1);
    assert!(refused.stderr.contains("sequential"), "{}", refused.stderr);
    assert!(!daemon.path("autologger.d/A.conf").exists());
    let corrected = add(&["--mode", "0x9"]).expect(0);
    assert!(
        corrected.stderr.contains("LogFileMode 0x9 cannot be used: it becomes 0x1"),
        "{}",
        corrected.stderr
    );
    let repeated = add(&[]).expect(1);
    assert!(repeated.stderr.contains("--force"), "{}", repeated.stderr);
    add(&["--force", "--circular", "--max-size", "7"]).expect(0);
    add(&["--generations", "17"]).expect(2);
    daemon.weir(["autologger", "add", "a/b", "-p", SHOP]).expect(1);
    daemon.weir(["autologger", "remove", "A"]).expect(0);
    let by_guid = "#b3864c38-4273-58c5-545b-8b3608343471";
    daemon.weir(["autologger", "add", "B", "-p", by_guid, "-p", "*My.App"]).expect(0);
    let shown = daemon.weir(["autologger", "show", "B"]).expect(0).text();
    assert!(
        shown.contains("[{b3864c38-4273-58c5-545b-8b3608343471}]") && shown.contains("[My.App]"),
        "{shown}"
    );
    let removed = daemon.weir(["autologger", "remove", "A"]).expect(1);
    assert!(removed.stderr.contains("no autologger A"), "{}", removed.stderr);
    daemon.weir(["autologger", "show", "A"]).expect(1);
}

#[test]
fn faulty_definition_file_is_named_with_its_line() {
    let daemon = Daemon::not_started();
    daemon.weir(["autologger", "add", "A", "-p", SHOP]).expect(0);
    std::fs::write(daemon.path("autologger.d/A.conf"), "Start = 1\nColour = 2\n").unwrap();
    let listed = daemon.weir(["autologger", "list"]).expect(0);
    assert!(listed.stderr.contains("A.conf: line 2: Colour"), "{}", listed.stderr);
    let shown = daemon.weir(["autologger", "show", "A"]).expect(1);
    assert!(shown.stderr.contains("line 2"), "{}", shown.stderr);
    let json = &daemon.weir(["autologger", "list", "--json"]).expect(0).json()[0];
    assert!(json["wrong"].as_str().unwrap().contains("line 2") && json["status"].is_null());
}

#[test]
fn stored_settings_and_environment_apply_to_the_daemon() {
    let mut daemon = Daemon::not_started();
    std::fs::write(daemon.path("traceweir.conf"), "max_sessions = 32\n").unwrap();
    daemon.restart();
    for number in 0..32 {
        daemon.weir(["start", &format!("s{number}"), "--min-buffers", "2", "--max-buffers", "4"]).expect(0);
    }
    let over_limit = daemon.weir(["start", "over-limit", "--min-buffers", "2"]).expect(1);
    assert!(over_limit.stderr.contains("32 sessions"), "{}", over_limit.stderr);
    daemon.stop();
    let process = daemon.command(["daemon"]).env("TRACEWEIR_IDLE_EXIT", "0").output().unwrap();
    assert!(process.status.success(), "the daemon does not exit: {process:?}");
}
