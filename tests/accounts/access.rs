//! Tests of the system's daemon with clients of other users ("guests"): rights that access lists
//! grant and deny, access lists that outlive the daemon, and the daemon's log.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const SCRIPT: &str = include_str!("access.sh");

/// The outputs of the script's steps, below this folder.
struct Steps<'a>(&'a Path);

impl Steps<'_> {
    fn output(&self, step: &str) -> String {
        std::fs::read_to_string(self.0.join("out").join(step)).unwrap_or_else(|e| panic!("{step}: {e}"))
    }

    /// Fails unless the step ended with this exit code and printed all of these words.
    #[track_caller]
    fn expect(&self, step: &str, code: i32, words: &[&str]) {
        let (output, exit_code) = (self.output(step), self.output(&format!("{step}.code")));
        assert_eq!(exit_code.trim(), code.to_string(), "{step}: {output}");
        for word in words {
            assert!(output.contains(word), "{step}: no {word:?} in {output}");
        }
    }

    /// Parses the access list that the step printed: (kind and user, rights) for each entry.
    fn entries(&self, step: &str) -> Vec<(String, String)> {
        let output = self.output(step);
        // Text of standard error may come before the JSON, because the step stores both streams.
        let output: Value =
            output.find('{').map_or("", |at| &output[at..]).parse().expect("the output has no JSON");
        let text = |entry: &Value, key: &str| entry[key].as_str().expect("no string value").to_owned();
        let entries = output["entries"].as_array().expect("the output has no entries");
        entries
            .iter()
            .map(|entry| (format!("{} {}", text(entry, "kind"), text(entry, "who")), text(entry, "rights")))
            .collect()
    }
}

#[test]
fn system_daemon_serves_guests_as_access_lists_grant() {
    if !rustix::process::geteuid().is_root() {
        return crate::util::skip(
            "root",
            "switching users and mounting a private /run and /etc require root",
        );
    }
    let mount =
        Command::new("unshare").args(["-m", "mount", "--make-rprivate", "/"]).stderr(Stdio::null()).status();
    if !mount.is_ok_and(|status| status.success()) {
        return crate::util::skip("namespaces", "private mount namespaces are not allowed here");
    }
    let folder = tempfile::tempdir().expect("no temporary folder");
    let work = folder.path();
    std::fs::set_permissions(work, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("the folder cannot be opened to all users");
    let (script, weir) = (work.join("access.sh"), work.join("weir"));
    std::fs::write(&script, SCRIPT).expect("the script cannot be written");
    assert!(Command::new("cp").arg(crate::fixture::weir()).arg(&weir).status().expect("cp failed").success());
    let mut script_command = Command::new("unshare");
    script_command.args(["-m", "sh"]).arg(&script).arg(&weir).arg(work).stdin(Stdio::null());
    let script_run = script_command.output().expect("unshare did not run");
    assert!(
        script_run.status.success(),
        "the script failed: {}",
        String::from_utf8_lossy(&script_run.stderr)
    );
    let steps = Steps(work);

    // In the script, Anna has the user id 64308 and is in the group dev. Bert has 64309 and is in
    // the group traceweir. Bert runs the steps whose names begin with `member-`, root runs those
    // with `root-` and most grants, and Anna runs the others. Exit code 77 means "not permitted".
    steps.expect("list-without-rights", 77, &["may not control"]);
    steps.expect("list-without-rights", 77, &["uid 64308", "group traceweir", "weir access grant"]);
    steps.expect("list-user-and-system", 0, &["refuses you", "group traceweir", "no daemon is running"]);
    steps.expect(
        "list-with-runtime-dir",
        0,
        &["TRACEWEIR_RUNTIME_DIR is set", "nowhere", "--system is ignored"],
    );
    steps.expect(
        "list-closed-folder",
        77,
        &["may not connect to /run/traceweir/control.sock", "group traceweir"],
    );
    steps.expect("list-user-closed-folder", 0, &["refuses you", "may not connect"]);
    steps.expect("grant-live", 0, &["the default", "create-realtime", "group dev"]);
    steps.expect("start-live", 0, &[]);
    steps.expect("list-shown", 0, &["\"Live\""]);
    let remedy = ["weir access grant", "--user 64308"];
    steps.expect(
        "watch-refused",
        77,
        &["TRACELOG_ACCESS_REALTIME on the session", remedy[0], remedy[1], "consume"],
    );
    steps.expect("watch-allowed", 0, &[]);
    steps.expect("enable-refused", 77, &["TRACELOG_GUID_ENABLE on provider", remedy[0], "enable"]);
    steps.expect("grant-enable", 0, &["provider Some.Provider", "user anna"]);
    steps.expect("enable-allowed", 0, &[]);
    steps.expect(
        "file-refused",
        77,
        &["TRACELOG_CREATE_ONDISK on the default list", "access grant default", "create-file"],
    );
    assert!(!work.join("anna/file.etl").exists(), "the file of a refused session was not removed");
    steps.expect("grant-refused", 77, &["WMIGUID_SET"]);
    steps.expect("member-starts", 0, &[]);
    steps.expect("member-grants", 0, &["denied enable to user anna"]);
    steps.expect("enable-denied", 77, &["TRACELOG_GUID_ENABLE"]);
    steps.expect("stop-refused", 77, &["TRACELOG_CREATE_ONDISK"]);
    steps.expect("stop-allowed", 0, &[]);
    steps.expect("member-stops", 0, &[]);
    if work.join("out/root-has-space").exists() {
        // ERROR_DISK_FULL.
        steps.expect("member-has-no-space", 1, &["112"]);
        steps.expect("root-has-space", 0, &[]);
        steps.expect("root-stops", 0, &[]);
    } else {
        crate::util::skip("root", "a file system with reserved space cannot be mounted here");
    }

    let files = steps.output("files");
    assert!(
        files.starts_with("755 root /etc/traceweir\n755 root /etc/traceweir/security.d\n644 root "),
        "{files}"
    );
    assert_eq!(
        files.lines().count(),
        2 + 2,
        "other files are stored than the default list and the provider's list: {files}"
    );
    // The right to control all sessions does not include the right to record kernel events of the
    // whole machine. 1314 is ERROR_PRIVILEGE_NOT_HELD.
    steps.expect("member-kernel-refused", 77, &["1314", "CAP_PERFMON"]);
    assert_eq!(
        std::fs::read(work.join("bert/old.etl")).expect("the old log does not exist"),
        b"old\n",
        "a refused session changed the file"
    );
    steps.expect("member-kernel-logger", 77, &["TRACELOG_CREATE_REALTIME"]);
    steps.expect("member-kernel-list", 77, &["WMIGUID_SET"]);
    steps.expect("record-refused", 77, &["TRACELOG_GUID_ENABLE on provider", remedy[0]]);
    assert_eq!(
        std::fs::read(work.join("anna/old.etl")).expect("the old log does not exist"),
        b"old\n",
        "a refused session changed the file"
    );
    // 0x80 is TRACELOG_GUID_ENABLE. The entry that Bert added in `member-grants` comes before the
    // entry of `grant-enable`, because entries that deny come first.
    let stored = steps.entries("show-kept");
    assert_eq!(stored.first(), Some(&("deny user anna".to_owned(), "0x80".to_owned())), "{stored:?}");
    assert!(stored.contains(&("allow user anna".to_owned(), "0x80".to_owned())), "{stored:?}");
    steps.expect("remove", 0, &["the default applies again"]);
    assert!(!steps.entries("show-removed").iter().any(|(who, _)| who.contains("anna")));
    steps.expect("start-again", 0, &[]);
    steps.expect("grant-named", 0, &[]);
    steps.expect("start-damaged", 77, &["TRACELOG_CREATE_REALTIME on the default list"]);
    steps.expect("member-damaged", 77, &["TRACELOG_CREATE_REALTIME on the default list"]);
    steps.expect("root-damaged", 0, &["the built-in list applies again"]);
    steps.expect("member-again", 0, &[]);

    let log = steps.output("log");
    for word in [
        "changed by uid 0, process",
        "changed by uid 64309, process",
        "deny S-1-22-1-64308 TRACELOG_GUID_ENABLE",
        "refused uid 64308, process",
        "weir of uid 64308, process",
        "session \"Live\" started by uid 64308, process",
        "session \"Live\" is stopped by uid 64308, process",
        "enables",
        "no TRACELOG_CREATE_ONDISK on session {",
        "no WMIGUID_SET on the default list",
        "until it is replaced or removed it grants nothing",
    ] {
        assert!(log.contains(word), "no {word:?} in {log}");
    }
}
