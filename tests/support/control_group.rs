//! A control group for a test, named like the control groups of containers and applications.
//!
//! ```text
//!   /sys/fs/cgroup/…group of this process…/weir-test-PID-N/4f1d…/snap.traced.world-4711.scope
//!                                                          └ container      └ PACKAGE, APPLICATION
//! ```
//!
//! Making a group requires root, or a parent group delegated to this user. Drop removes the group
//! once no process is in it.
#![allow(dead_code)] // Each test program uses only some of these functions.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Package name that the path of the group implies for a process in the group.
pub(crate) const PACKAGE: &str = "snap.traced.world";
/// Application name that the path implies.
pub(crate) const APPLICATION: &str = "world";
/// Container id that the path implies.
pub(crate) const CONTAINER: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";

/// Requirement and reason of the skip if no group can be made.
pub(crate) const SKIP_ARGUMENTS: (&str, &str) = ("cgroups", "control groups cannot be made here");

/// A control group that drop removes.
pub(crate) struct ControlGroup {
    /// The outermost folder that this test made.
    top: PathBuf,
    folder: PathBuf,
}

impl ControlGroup {
    /// Makes a group. Returns `None` if this process may not make a group that processes can enter.
    pub(crate) fn make() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let membership = |prefix: &str| {
            memberships.lines().find_map(|entry| entry.strip_prefix(prefix)).map(str::to_owned)
        };
        let unified = membership("0::").unwrap_or_default();
        // If a machine also uses version 1 of control groups, version 2 is mounted at
        // `/sys/fs/cgroup/unified`.
        for (mount, own_group) in [("/sys/fs/cgroup/unified", &unified), ("/sys/fs/cgroup", &unified)] {
            let base = Path::new(mount).join(own_group.trim_start_matches('/'));
            let top = base.join(&name);
            // Outside the hierarchy, a folder could also be made, but processes cannot enter it.
            if !base.join("cgroup.procs").exists() || std::fs::create_dir(&top).is_err() {
                continue;
            }
            let folder = top.join(CONTAINER).join(format!("{PACKAGE}-4711.scope"));
            let group = Self { top, folder };
            if std::fs::create_dir_all(&group.folder).is_ok() && group.accepts_processes() {
                return Some(group);
            }
        }
        None
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether a process can enter the group. Tries it with a process that only sleeps.
    fn accepts_processes(&self) -> bool {
        let Ok(mut child) = std::process::Command::new("sleep").arg("60").spawn() else { return false };
        let entered = std::fs::write(self.folder.join("cgroup.procs"), child.id().to_string()).is_ok();
        let _ = child.kill();
        let _ = child.wait();
        entered
    }
}

/// Moves a process into the control group at `folder`.
#[track_caller]
pub(crate) fn enter(folder: &Path, pid: u32) {
    std::fs::write(folder.join("cgroup.procs"), pid.to_string()).expect("the group refused the process");
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let mut folder = self.folder.as_path();
        // Remove the innermost folder first, and only folders that this test made.
        while folder.starts_with(&self.top) {
            let is_removed = (0..100).any(|_| {
                let is_removed = std::fs::remove_dir(folder).is_ok() || !folder.exists();
                if !is_removed {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                is_removed
            });
            let Some(parent) = folder.parent().filter(|_| is_removed) else { return };
            folder = parent;
        }
    }
}
