//! Two users on one machine: neither sees nor disturbs the sessions of the other.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const ANNA: u32 = 64_301;
const BERT: u32 = 64_302;

struct User<'a> {
    uid: u32,
    weir: &'a Path,
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
        self.command().args(args).output().expect("weir starts")
    }
}

fn kill_processes_of_both() {
    // The command fails where these users have no processes.
    let _ = Command::new("pkill").args(["-KILL", "-U", &format!("{ANNA},{BERT}")]).status();
}

/// Kills all processes of the two users on drop.
struct KillOnDrop;

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        kill_processes_of_both();
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn two_users_neither_see_nor_disturb_each_other() {
    if !rustix::process::geteuid().is_root() {
        crate::util::skip("root", "becoming two users takes root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // A run that was killed may have left processes of these users.
    kill_processes_of_both();
    let _kill_on_drop = KillOnDrop;
    let shared = folder.path();
    let weir = shared.join("weir");
    // Copied by another process: a descriptor open for writing in this one might be inherited by a
    // child of another test, and would keep the copy from being executed.
    assert!(Command::new("cp").arg(crate::fixture::weir()).arg(&weir).status().expect("cp runs").success());
    std::fs::set_permissions(shared, std::fs::Permissions::from_mode(0o1777)).expect("shared by all");
    for uid in [ANNA, BERT] {
        let home = shared.join(uid.to_string());
        std::fs::create_dir(&home).expect("a folder");
        std::os::unix::fs::chown(&home, Some(uid), Some(uid)).expect("chown");
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).expect("private");
    }
    let anna = User { uid: ANNA, weir: &weir, shared };
    let bert = User { uid: BERT, weir: &weir, shared };
    let started = anna.weir(&["start", "secret", "-o", "anna.etl", "-p", "Some.Provider"]);
    assert!(started.status.success(), "{}", text(&started));
    let mine = anna.weir(&["list"]);
    assert!(text(&mine).contains("secret"), "{}", text(&mine));

    let seen = bert.weir(&["list"]);
    assert!(!text(&seen).contains("secret"), "{}", text(&seen));
    let stopped = bert.weir(&["stop", "secret"]);
    assert!(!stopped.status.success(), "{}", text(&stopped));
    // Not even by naming Anna's folder.
    let runtime = shared.join(format!("traceweir-{ANNA}"));
    for args in [&["list"][..], &["stop", "secret"], &["watch", "secret"]] {
        let tried =
            bert.command().env("TRACEWEIR_RUNTIME_DIR", &runtime).args(args).output().expect("weir starts");
        assert!(!tried.status.success(), "{args:?}: {}", text(&tried));
        assert!(!text(&tried).contains("Some.Provider"), "{}", text(&tried));
    }
    // Each user may use the same name.
    let own = bert.weir(&["start", "secret", "-o", "bert.etl"]);
    assert!(own.status.success(), "{}", text(&own));
    assert!(bert.weir(&["stop", "secret"]).status.success());
    let still = anna.weir(&["query", "secret"]);
    assert!(still.status.success(), "{}", text(&still));
    let ended = anna.weir(&["stop", "secret"]);
    assert!(ended.status.success(), "{}", text(&ended));
    let file = shared.join(ANNA.to_string()).join("anna.etl").metadata().expect("the file");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&file), ANNA);
}
