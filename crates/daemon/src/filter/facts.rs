//! Process properties that filters test: program, package, application and container.
//!
//! ```text
//!   source             content                          filter           compared name
//!   /proc/PID/exe      /usr/bin/nginx (deleted)         EXECUTABLE_NAME  nginx
//!   /proc/PID/cgroup   0::/system.slice/nginx.service   PACKAGE_ID       nginx.service
//!                                                       (as in extended data of type 9)
//!                                                       PACKAGE_APP_ID   nginx
//!                      12:memory:/docker/4f1d…          CONTAINER        4f1d…
//!                                                       (as in extended data of type 16)
//! ```
//!
//! [`traceweir_session::cgroup`] parses control groups. Names are stored in lower case; callers
//! pass names in lower case too, so that the comparison ignores case. A container id of hexadecimal
//! digits may be given by its first twelve digits or more, as container tools print it. The user
//! who runs a process names its control groups: a name is no proof of identity; it only selects the
//! processes that an enable reaches.

use std::fs;

use traceweir_session::cgroup;

/// Minimum number of digits that identify a container.
const MIN_CONTAINER_ID_DIGITS: usize = 12;

/// The properties of a process; a property that is not available is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    executable: String,
    package: String,
    application: String,
    container: String,
}

impl ProcessFacts {
    /// Reads the properties of the process that has this id now.
    pub(crate) fn from_pid(pid: u32) -> Self {
        Self::from_text(&read_program_name(pid), &cgroup::read(pid))
    }

    /// Creates the properties from the program name and the text of the control groups.
    pub(crate) fn from_text(executable: &str, groups: &str) -> Self {
        let to_lower = |name: Option<String>| name.unwrap_or_default().to_lowercase();
        Self {
            executable: executable.to_lowercase(),
            package: to_lower(cgroup::package(groups)),
            application: to_lower(cgroup::application(groups)),
            container: to_lower(cgroup::container(groups)),
        }
    }

    pub(super) fn is_program(&self, names: &[String]) -> bool {
        names.contains(&self.executable)
    }

    pub(super) fn is_in_package(&self, names: &[String]) -> bool {
        names.contains(&self.package)
    }

    pub(super) fn is_application(&self, names: &[String]) -> bool {
        names.contains(&self.application)
    }

    pub(super) fn is_in_container(&self, names: &[String]) -> bool {
        let is_id_prefix = |name: &String| {
            name.len() >= MIN_CONTAINER_ID_DIGITS
                && self.container.starts_with(name.as_str())
                && cgroup::is_container_id(&self.container)
        };
        names.iter().any(|name| *name == self.container || is_id_prefix(name))
    }
}

/// Returns the file name of the program. If the link cannot be read, returns the command name, of
/// which the kernel keeps 15 bytes.
fn read_program_name(pid: u32) -> String {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name =
        link.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    match name {
        Some(name) => name.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(name),
        None => cgroup::read_limited(&format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";

    #[test]
    fn own_program_is_recognised() {
        let facts = ProcessFacts::from_pid(std::process::id());
        let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_lowercase();
        assert!(facts.is_program(&["other".to_owned(), program]));
        assert!(!facts.is_program(&["other".to_owned()]));
        assert_eq!(ProcessFacts::from_pid(u32::MAX), ProcessFacts::default());
    }

    #[test]
    fn packages_applications_and_containers_come_from_control_groups() {
        let docker = format!("0::/system.slice/docker-{ID}.scope");
        let kube = format!("9:name=systemd:/\n4:memory:/kubepods/pod1/{ID}\n0::/\n");
        let docker_unit = format!("docker-{ID}.scope");
        // The control groups, and the package, application and container that they name; empty if
        // they name none.
        for (groups, package, application, container) in [
            ("0::/system.slice/Nginx.service", "nginx.service", "nginx", ""),
            ("0::/u/app-flatpak-org.x.Y-4711.scope", "org.x.y", "org.x.y", ""),
            ("0::/u/app-gnome-org.x.Y-4711.scope", "app-gnome-org.x.y-4711.scope", "org.x.y", ""),
            ("0::/u/snap.hello.World-4711.scope", "snap.hello.world", "world", ""),
            ("0::/lxc.payload.Web/system.slice/a.service", "a.service", "a", "web"),
            (&docker, &docker_unit, docker_unit.trim_end_matches(".scope"), ID),
            (&kube, "", "", ID),
            ("0::/", "", "", ""),
        ] {
            let facts = ProcessFacts::from_text("program", groups);
            let list_with = |name: &str| ["other".to_owned(), name.to_owned()];
            for (name, is_match) in [
                (package, ProcessFacts::is_in_package as fn(&ProcessFacts, &[String]) -> bool),
                (application, ProcessFacts::is_application),
                (container, ProcessFacts::is_in_container),
            ] {
                assert!(!is_match(&facts, &["other".to_owned()]), "{groups}");
                if name.is_empty() {
                    continue;
                }
                assert!(is_match(&facts, &list_with(name)), "{groups}: {name:?} matches");
                assert!(!is_match(&facts, &list_with(&name[1..])), "{groups}: names match as a whole");
                assert!(
                    !is_match(&ProcessFacts::default(), &list_with(name)),
                    "a process without properties does not match {name}"
                );
            }
            let check = |name: &str, expected: &str| assert_eq!(name, expected, "{groups}");
            check(&facts.package, package);
            check(&facts.application, application);
            check(&facts.container, container);
        }
    }

    #[test]
    fn container_matches_the_beginning_of_its_id() {
        let facts = ProcessFacts { container: ID.to_owned(), ..ProcessFacts::default() };
        for (name, is_match) in
            [(ID, true), (&ID[..12], true), (&ID[..11], false), ("4f1d0c3b5a69788796a5b4c4", false)]
        {
            assert_eq!(facts.is_in_container(&[name.to_owned()]), is_match, "{name}");
        }
        let named = ProcessFacts { container: "long-container-name".to_owned(), ..ProcessFacts::default() };
        assert!(!named.is_in_container(&["long-container".to_owned()]), "names match as a whole");
    }
}
