//! Tests that two users of one machine neither see nor disturb each other's sessions.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const ANNA: u32 = 64_301;
const BERT: u32 = 64_302;

struct User<'a> {
    uid: u32,
    weir: &'a Path,
    /// The folder that contains `weir`, and the home and runtime folders of both users.
    shared: &'a Path,
}

impl User<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.weir);
        command.uid(self.uid).gid(self.uid).current_dir(self.shared.join(self.uid.to_string()));
        command
            .env_clear()
            .env("TMPDIR", self.shared)
            .env("PATH", "/usr/bin:/bin")
            .env("TRACEWEIR_DAEMON", self.weir);
        command.stdin(Stdio::null());
        command
    }

    fn weir(&self, args: &[&str]) -> Output {
        self.command().args(args).output().expect("cannot run weir")
    }
}

fn kill_processes_of_both_users() {
    // The command fails if these users have no processes.
    let _ = Command::new("pkill").args(["-KILL", "-U", &format!("{ANNA},{BERT}")]).status();
}

/// Kills all processes of the two users on drop.
struct KillUserProcessesOnDrop;

impl Drop for KillUserProcessesOnDrop {
    fn drop(&mut self) {
        kill_processes_of_both_users();
    }
}

fn combined_output(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn two_users_neither_see_nor_disturb_each_other() {
    if !rustix::process::geteuid().is_root() {
        crate::util::skip("root", "switching to two other users requires root");
        return;
    }
    let folder = tempfile::tempdir().expect("no temporary folder");
    // A run that was killed may have left processes of these users.
    kill_processes_of_both_users();
    let _kill_on_drop = KillUserProcessesOnDrop;
    let shared = folder.path();
    let weir = shared.join("weir");
    // Another process copies the file: if this process had it open for writing, a child of another
    // test could inherit the descriptor, and the copy could not be executed.
    let copied = Command::new("cp").arg(crate::fixture::weir()).arg(&weir).status().expect("cannot run cp");
    assert!(copied.success(), "cp failed: {copied}");
    std::fs::set_permissions(shared, std::fs::Permissions::from_mode(0o1777))
        .expect("the folder cannot be shared");
    for uid in [ANNA, BERT] {
        let home = shared.join(uid.to_string());
        std::fs::create_dir(&home).expect("the home folder cannot be created");
        std::os::unix::fs::chown(&home, Some(uid), Some(uid)).expect("chown failed");
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700))
            .expect("the folder cannot be made private");
    }
    let anna = User { uid: ANNA, weir: &weir, shared };
    let bert = User { uid: BERT, weir: &weir, shared };
    let started = anna.weir(&["start", "secret", "-o", "anna.etl", "-p", "Some.Provider"]);
    assert!(started.status.success(), "Anna's start failed: {}", combined_output(&started));
    let own_list = combined_output(&anna.weir(&["list"]));
    assert!(own_list.contains("secret"), "Anna's session is not listed: {own_list}");

    let bert_list = combined_output(&bert.weir(&["list"]));
    assert!(!bert_list.contains("secret"), "Bert sees Anna's session: {bert_list}");
    let bert_stop = bert.weir(&["stop", "secret"]);
    assert!(!bert_stop.status.success(), "Bert stopped Anna's session: {}", combined_output(&bert_stop));
    // Naming Anna's runtime folder does not give Bert access either.
    let runtime = shared.join(format!("traceweir-{ANNA}"));
    for args in [&["list"][..], &["stop", "secret"], &["watch", "secret"]] {
        let attempt = bert
            .command()
            .env("TRACEWEIR_RUNTIME_DIR", &runtime)
            .args(args)
            .output()
            .expect("cannot run weir");
        assert!(!attempt.status.success(), "{args:?}: {}", combined_output(&attempt));
        assert!(!combined_output(&attempt).contains("Some.Provider"), "{}", combined_output(&attempt));
    }
    // Bert may use the same session name.
    let bert_start = bert.weir(&["start", "secret", "-o", "bert.etl"]);
    assert!(bert_start.status.success(), "Bert's start failed: {}", combined_output(&bert_start));
    assert!(bert.weir(&["stop", "secret"]).status.success());
    let query = anna.weir(&["query", "secret"]);
    assert!(query.status.success(), "Anna's session has ended: {}", combined_output(&query));
    let anna_stop = anna.weir(&["stop", "secret"]);
    assert!(anna_stop.status.success(), "Anna's stop failed: {}", combined_output(&anna_stop));
    let file = shared.join(ANNA.to_string()).join("anna.etl").metadata().expect("there is no trace");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&file), ANNA);
}
