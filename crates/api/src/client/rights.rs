//! Whose rights this process has, and for whom it therefore opens files.
//!
//! ```text
//!   who asks                              the daemon that says so    files are opened
//!   root                                  root's                     yes
//!   the user of this process              root's, or his own         yes, unless this process has more rights than he
//!   anybody else, or root by his word     any                        no
//! ```
//!
//! A process has more rights than its user's others where its program file gave it some when it was started (set-user-id, set-group-id, capabilities of the
//! file: `AT_SECURE`), where its users or groups are not all the same one, where it may use a capability, or where it is in a group that the daemon who speaks
//! for the user is not in. All but the first are looked at when somebody asks: a process may gain and drop rights while it runs. What a daemon of root's tells of
//! a user was compared by that daemon, by the groups of both connections.
//!
//! A program with rights of its file is found by the system's daemon only, and believes nobody but root: its user could be a daemon himself.

use rustix::process::{getegid, geteuid, getgid, getuid};
use traceweir_format::spec::status::Status;
use traceweir_transport::runtime::is_privileged_by_file;
use traceweir_transport::socket::Connection;

use crate::error::{Error, Result};

/// Whether a daemon of this user may trace this process at all, where the folder is not his.
pub(super) fn believes(daemon: u32) -> bool {
    daemon == 0 || (daemon == geteuid().as_raw() && !is_privileged_by_file())
}

/// A daemon at the other end of a connection: for whom it can speak.
#[derive(Clone, Debug)]
pub(super) struct Voice {
    uid: u32,
    /// All its groups.
    groups: Vec<u32>,
}

impl Voice {
    /// By what the kernel keeps with the connection.
    pub(super) fn of(connection: &Connection) -> Self {
        let peer = connection.peer();
        let mut groups = connection.peer_groups().unwrap_or_default();
        groups.push(peer.gid);
        Self { uid: peer.uid, groups }
    }

    /// Whether a user may, by this daemon's word, have us open files with our rights.
    pub(super) fn check(&self, user: u32) -> Result<()> {
        let denied = |why: String| Err(Error::refused(Status::ERROR_ACCESS_DENIED, why));
        if user == 0 && self.uid == 0 {
            return Ok(());
        }
        let own = Own::now();
        if user != own.effective_user || (self.uid != 0 && self.uid != user) {
            return denied(format!("user {user} may not have files written by a process of another user"));
        }
        match own.exceeds(self) {
            None => Ok(()),
            Some(what) => denied(format!(
                "this process has rights that user {user} lacks ({what}): only root may have files written by it"
            )),
        }
    }
}

/// The rights of the calling thread, which opens files or starts the one that does.
#[derive(Clone, Debug)]
struct Own {
    by_file: bool,
    effective_user: u32,
    /// Real, saved and of the file system, where they are told.
    users: Vec<u32>,
    /// The group that files are opened with, and the others of the same kind.
    group: u32,
    groups: Vec<u32>,
    /// Groups beside these.
    others: Vec<u32>,
    has_capabilities: bool,
}

impl Own {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let (mut users, mut groups) = (numbers("Uid:"), numbers("Gid:"));
        users.push(getuid().as_raw());
        groups.push(getgid().as_raw());
        let permitted = rustix::thread::capabilities(None).map(|it| it.permitted);
        Self {
            by_file: is_privileged_by_file(),
            effective_user: geteuid().as_raw(),
            users,
            group: getegid().as_raw(),
            groups,
            others: rustix::process::getgroups().unwrap_or_default().iter().map(|it| it.as_raw()).collect(),
            // What cannot be told may be anything.
            has_capabilities: permitted.map_or(true, |it| !it.is_empty()),
        }
    }

    /// What it has that the user for whom this daemon speaks has not.
    fn exceeds(&self, voice: &Voice) -> Option<&'static str> {
        // Root's daemon has every group, and has compared them.
        let is_foreign = |group: &u32| voice.uid != 0 && !voice.groups.contains(group);
        if self.by_file {
            Some("those of its program file")
        } else if self.users.iter().any(|user| *user != self.effective_user) {
            Some("those of another user")
        } else if self.has_capabilities {
            Some("capabilities")
        } else if self.groups.iter().any(|group| *group != self.group)
            || is_foreign(&self.group)
            || self.others.iter().any(is_foreign)
        {
            Some("those of another group")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Own {
        Own {
            by_file: false,
            effective_user: 1000,
            users: vec![1000; 4],
            group: 100,
            groups: vec![100; 4],
            others: vec![100, 27],
            has_capabilities: false,
        }
    }

    #[test]
    fn more_rights_than_the_asker_are_found_wherever_they_come_from() {
        let his = Voice { uid: 1000, groups: vec![27, 100, 200] };
        let roots = Voice { uid: 0, groups: vec![0] };
        for voice in [&his, &roots] {
            assert_eq!(plain().exceeds(voice), None);
            for more in [
                Own { by_file: true, ..plain() },
                Own { users: vec![1000, 1000, 0, 1000], ..plain() },
                Own { groups: vec![100, 42, 42, 42], ..plain() },
                Own { group: 42, ..plain() },
                Own { has_capabilities: true, ..plain() },
            ] {
                assert!(more.exceeds(voice).is_some(), "{more:?} by {voice:?}");
            }
        }
        let in_another_group = Own { others: vec![100, 42], ..plain() };
        assert!(in_another_group.exceeds(&his).is_some());
        assert_eq!(in_another_group.exceeds(&roots), None, "the daemon has compared them");
    }

    #[test]
    fn nobody_is_root_by_the_word_of_another() {
        let own = geteuid().as_raw();
        let voice = |uid| Voice { uid, groups: vec![getegid().as_raw()] };
        assert!(voice(0).check(0).is_ok());
        assert!(voice(own + 1).check(0).is_err(), "says that root asks");
        assert!(voice(own + 1).check(own).is_err(), "says that we ask");
        assert!(voice(0).check(own + 1).is_err(), "another user");
    }

    /// Run by the test below, as another user.
    #[test]
    #[ignore = "a part of another test"]
    fn speak_as_a_child() {
        let me = geteuid().as_raw();
        let mut groups: Vec<u32> =
            std::env::var("GROUPS_OF_USER").unwrap().split(',').map(|it| it.parse().unwrap()).collect();
        groups.sort_unstable();
        let outcome = |uid| Voice { uid, groups: groups.clone() }.check(me).is_ok();
        println!("outcome {} {} {}", outcome(me), outcome(0), believes(me));
    }

    #[test]
    fn a_program_with_rights_of_its_file_opens_files_for_nobody_but_root() {
        use std::os::unix::fs::{PermissionsExt, chown};
        use std::os::unix::process::CommandExt;
        const USER: u32 = 64_123;
        if geteuid().as_raw() != 0 {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = dir.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let run = |mode: u32, group: u32| {
            chown(&program, Some(0), Some(group)).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
            let mut command = std::process::Command::new(&program);
            command.args(["--ignored", "--nocapture", "client::rights::tests::speak_as_a_child"]);
            command.env("GROUPS_OF_USER", USER.to_string()).uid(USER).gid(USER).current_dir(dir.path());
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split("outcome ")
                .nth(1)
                .unwrap_or_else(|| panic!("{text}"))
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(run(0o755, USER), "true true true", "a plain program");
        if !is_on_nosuid(dir.path()) {
            assert_eq!(run(0o2755, 64_124), "false false false", "set-group-id");
        }
    }

    fn is_on_nosuid(path: &std::path::Path) -> bool {
        rustix::fs::statvfs(path).is_ok_and(|it| it.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
    }
}
