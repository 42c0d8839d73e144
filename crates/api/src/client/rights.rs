//! The rights of this process, and the users for which it therefore opens files.
//!
//! ```text
//!   requesting user                          daemon that reports it     files are opened
//!   root                                     root's                     yes
//!   the user of this process                 root's, or the user's own  yes, unless this process
//!                                                                       is more privileged
//!   root                                     a user's                   no
//!   the user of this process                 another user's             no
//!   another user                             any                        no
//! ```
//!
//! A process is more privileged than the other processes of its user if its program file granted
//! rights when it was started (set-user-id, set-group-id, capabilities of the file: `AT_SECURE`),
//! if its user ids or group ids are not all equal, if it may use a capability, or if it is in a
//! group that the user's daemon is not in. All but the first are checked at each request: a process
//! may gain and drop rights while it runs. A daemon of root compares the groups of the controller
//! and of this process before it forwards a user's request.
//!
//! A process whose program file granted rights uses only the system's daemon and trusts only root,
//! because its user could run a daemon too.

use rustix::process::{getegid, geteuid, getgid, getuid};
use traceweir_format::spec::status::Status;
use traceweir_transport::runtime::is_privileged_by_file;
use traceweir_transport::socket::Connection;

use crate::error::{Error, Result};

/// Returns whether this process trusts a daemon that runs as `daemon_uid`, in whichever folder its
/// socket is.
pub(super) fn is_daemon_trusted(daemon_uid: u32) -> bool {
    daemon_uid == 0 || (daemon_uid == geteuid().as_raw() && !is_privileged_by_file())
}

/// The user and groups of the daemon at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct DaemonCredentials {
    uid: u32,
    /// All groups of the daemon.
    groups: Vec<u32>,
}

impl DaemonCredentials {
    /// Reads the credentials that the kernel keeps with the connection.
    pub(super) fn from_connection(connection: &Connection) -> Self {
        let peer = connection.peer();
        let mut groups = connection.peer_groups().unwrap_or_default();
        groups.push(peer.gid);
        Self { uid: peer.uid, groups }
    }

    /// Checks whether this process may open files for `user`, who made the request according to this
    /// daemon.
    pub(super) fn check(&self, user: u32) -> Result<()> {
        let deny = |reason: String| Err(Error::refused(Status::ERROR_ACCESS_DENIED, reason));
        if user == 0 && self.uid == 0 {
            return Ok(());
        }
        let own = OwnRights::read_current();
        if user != own.effective_user && user != 0 {
            return deny(format!("user {user} may not write files through a process of another user"));
        }
        if self.uid != 0 && self.uid != user {
            return deny(format!("a daemon of user {} may not make requests for user {user}", self.uid));
        }
        match own.find_excess_right(self) {
            None => Ok(()),
            Some(right) => deny(format!(
                "this process has rights that user {user} lacks ({right}): only root may write files through it"
            )),
        }
    }
}

/// The rights of the calling thread, which opens files or starts the thread that does.
#[derive(Clone, Debug)]
struct OwnRights {
    is_privileged_by_file: bool,
    effective_user: u32,
    /// Real, effective, saved and file-system user ids, as far as they are known.
    users: Vec<u32>,
    /// The effective group id, which files are opened with.
    group: u32,
    /// Real, effective, saved and file-system group ids, as far as they are known.
    groups: Vec<u32>,
    supplementary_groups: Vec<u32>,
    has_capabilities: bool,
}

impl OwnRights {
    fn read_current() -> Self {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let read_ids = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let (mut users, mut groups) = (read_ids("Uid:"), read_ids("Gid:"));
        // Known even if `/proc` cannot be read.
        users.push(getuid().as_raw());
        groups.push(getgid().as_raw());
        let permitted = rustix::thread::capabilities(None).map(|sets| sets.permitted);
        Self {
            is_privileged_by_file: is_privileged_by_file(),
            effective_user: geteuid().as_raw(),
            users,
            group: getegid().as_raw(),
            groups,
            supplementary_groups: rustix::process::getgroups()
                .unwrap_or_default()
                .iter()
                .map(|group| group.as_raw())
                .collect(),
            // If the capabilities are unknown, assume that there are some.
            has_capabilities: permitted.map_or(true, |permitted| !permitted.is_empty()),
        }
    }

    /// Returns a right of this process that the requesting user lacks, if there is one.
    fn find_excess_right(&self, daemon: &DaemonCredentials) -> Option<&'static str> {
        // Root's daemon has every right, and has compared the groups itself.
        let is_foreign = |group: &u32| daemon.uid != 0 && !daemon.groups.contains(group);
        if self.is_privileged_by_file {
            Some("those of its program file")
        } else if self.users.iter().any(|user| *user != self.effective_user) {
            Some("those of another user")
        } else if self.has_capabilities {
            Some("capabilities")
        } else if self.groups.iter().any(|group| *group != self.group)
            || is_foreign(&self.group)
            || self.supplementary_groups.iter().any(is_foreign)
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

    fn ordinary_rights() -> OwnRights {
        OwnRights {
            is_privileged_by_file: false,
            effective_user: 1000,
            users: vec![1000; 4],
            group: 100,
            groups: vec![100; 4],
            supplementary_groups: vec![100, 27],
            has_capabilities: false,
        }
    }

    #[test]
    fn every_source_of_extra_rights_is_found() {
        let user_daemon = DaemonCredentials { uid: 1000, groups: vec![27, 100, 200] };
        let root_daemon = DaemonCredentials { uid: 0, groups: vec![0] };
        for daemon in [&user_daemon, &root_daemon] {
            assert_eq!(ordinary_rights().find_excess_right(daemon), None);
            for more in [
                OwnRights { is_privileged_by_file: true, ..ordinary_rights() },
                OwnRights { users: vec![1000, 1000, 0, 1000], ..ordinary_rights() },
                OwnRights { groups: vec![100, 42, 42, 42], ..ordinary_rights() },
                OwnRights { group: 42, ..ordinary_rights() },
                OwnRights { has_capabilities: true, ..ordinary_rights() },
            ] {
                assert!(more.find_excess_right(daemon).is_some(), "{more:?} by {daemon:?}");
            }
        }
        let in_another_group = OwnRights { supplementary_groups: vec![100, 42], ..ordinary_rights() };
        assert!(in_another_group.find_excess_right(&user_daemon).is_some());
        assert_eq!(
            in_another_group.find_excess_right(&root_daemon),
            None,
            "a daemon of root has compared the groups itself"
        );
    }

    #[test]
    fn mismatched_daemon_or_user_is_refused() {
        let own = geteuid().as_raw();
        let daemon = |uid| DaemonCredentials { uid, groups: vec![getegid().as_raw()] };
        assert!(daemon(0).check(0).is_ok());
        assert!(daemon(own + 1).check(0).is_err(), "a user's daemon must not request in the name of root");
        assert!(
            daemon(own + 1).check(own).is_err(),
            "a daemon of another user must not request in this user's name"
        );
        assert!(daemon(0).check(own + 1).is_err(), "another user must not open files through this process");
    }

    /// Run by `set_group_id_program_opens_no_files_for_its_user` in a process of another user.
    /// Prints three values: whether the user's daemon and root's daemon may request files for the
    /// user, and whether the user's daemon is trusted.
    #[test]
    #[ignore = "a part of another test"]
    fn print_checks_as_another_user() {
        let own_uid = geteuid().as_raw();
        let mut groups: Vec<u32> =
            std::env::var("GROUPS_OF_USER").unwrap().split(',').map(|group| group.parse().unwrap()).collect();
        groups.sort_unstable();
        let is_allowed = |uid| DaemonCredentials { uid, groups: groups.clone() }.check(own_uid).is_ok();
        println!("outcome {} {} {}", is_allowed(own_uid), is_allowed(0), is_daemon_trusted(own_uid));
    }

    #[test]
    fn set_group_id_program_opens_no_files_for_its_user() {
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
            command.args(["--ignored", "--nocapture", "client::rights::tests::print_checks_as_another_user"]);
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
        assert_eq!(run(0o755, USER), "true true true", "a program without extra rights");
        if !is_on_nosuid(dir.path()) {
            assert_eq!(run(0o2755, 64_124), "false false false", "a set-group-id program");
        }
    }

    fn is_on_nosuid(path: &std::path::Path) -> bool {
        rustix::fs::statvfs(path)
            .is_ok_and(|volume| volume.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
    }
}
