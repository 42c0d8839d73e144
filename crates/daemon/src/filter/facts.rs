//! What a process is asked for by filters: its program, package, application and container.
//!
//! ```text
//!   /proc/PID/exe      /usr/bin/nginx (deleted)                 EXECUTABLE_NAME    nginx
//!   /proc/PID/cgroup   0::/system.slice/nginx.service           PACKAGE_ID         nginx.service    what item 9 of its events says
//!                                                               PACKAGE_APP_ID     nginx
//!                      12:memory:/docker/4f1d…                  CONTAINER          4f1d…            what item 16 says
//! ```
//!
//! What control groups tell is in [`traceweir_session::cgroup`]. Names are kept in lower case: they are compared without regard to it. A container's id of
//! hexadecimal digits may be given by twelve of them or more, as container tools print it. PeerName runs a process names its control groups: a name tells, it
//! proves nothing, and decides only about who is asked to write.

use std::fs;

use traceweir_session::cgroup;

/// Digits that tell one container from another.
const SHORT_ID: usize = 12;

/// What is known about a process; what cannot be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    executable: String,
    package: String,
    application: String,
    container: String,
}

impl Facts {
    /// The process that has this id now.
    pub(crate) fn of(pid: u32) -> Self {
        Self::told(&executable(pid), &cgroup::of(pid))
    }

    /// A process with this program, of which the system tells these control groups.
    pub(super) fn told(executable: &str, groups: &str) -> Self {
        let lower = |name: Option<String>| name.unwrap_or_default().to_lowercase();
        Self {
            executable: executable.to_lowercase(),
            package: lower(cgroup::package(groups)),
            application: lower(cgroup::application(groups)),
            container: lower(cgroup::container(groups)),
        }
    }

    /// Whether the program is one of these.
    pub(super) fn is_program(&self, names: &[String]) -> bool {
        names.contains(&self.executable)
    }

    /// Whether it belongs to one of these packages.
    pub(super) fn is_in_package(&self, names: &[String]) -> bool {
        names.contains(&self.package)
    }

    /// Whether it belongs to one of these applications.
    pub(super) fn is_application(&self, names: &[String]) -> bool {
        names.contains(&self.application)
    }

    /// Whether it runs in one of these containers.
    pub(super) fn is_in_container(&self, names: &[String]) -> bool {
        let short = |name: &String| {
            name.len() >= SHORT_ID
                && self.container.starts_with(name.as_str())
                && cgroup::is_container_id(&self.container)
        };
        names.iter().any(|name| *name == self.container || short(name))
    }
}

/// The file name of the program; where the link may not be read, the name that the process shows, of which the system keeps 15 bytes.
fn executable(pid: u32) -> String {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name =
        link.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    match name {
        Some(name) => name.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(name),
        None => cgroup::beginning(&format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";

    #[test]
    fn this_process_is_known_by_its_program() {
        let facts = Facts::from_pid(std::process::id());
        let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_lowercase();
        assert!(facts.is_program(&["other".to_owned(), program]));
        assert!(!facts.is_program(&["other".to_owned()]));
        assert_eq!(Facts::from_pid(u32::MAX), Facts::default());
    }

    #[test]
    fn packages_applications_and_containers_are_what_the_control_groups_tell() {
        let docker = format!("0::/system.slice/docker-{ID}.scope");
        let kube = format!("9:name=systemd:/\n4:memory:/kubepods/pod1/{ID}\n0::/\n");
        let docker_unit = format!("docker-{ID}.scope");
        // What is told, and the package, application and container that pass; an empty name: none does.
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
            let facts = Facts::told("program", groups);
            let lists = |name: &str| ["other".to_owned(), name.to_owned()];
            for (name, asked) in [
                (package, Facts::is_in_package as fn(&Facts, &[String]) -> bool),
                (application, Facts::is_application),
                (container, Facts::is_in_container),
            ] {
                assert!(!asked(&facts, &["other".to_owned()]), "{groups}");
                if name.is_empty() {
                    continue;
                }
                assert!(asked(&facts, &lists(name)), "{groups}: {name:?} is it");
                assert!(!asked(&facts, &lists(&name[1..])), "{groups}: a name is whole");
                assert!(!asked(&Facts::default(), &lists(name)), "who tells nothing is not in {name}");
            }
            let tells = |name: &str, told: &str| assert_eq!(name, told, "{groups}");
            tells(&facts.package, package);
            tells(&facts.application, application);
            tells(&facts.container, container);
        }
    }

    #[test]
    fn a_container_is_known_by_the_beginning_of_its_id() {
        let facts = Facts { container: ID.to_owned(), ..Facts::default() };
        for (name, is_it) in
            [(ID, true), (&ID[..12], true), (&ID[..11], false), ("4f1d0c3b5a69788796a5b4c4", false)]
        {
            assert_eq!(facts.is_in_container(&[name.to_owned()]), is_it, "{name}");
        }
        let named = Facts { container: "long-container-name".to_owned(), ..Facts::default() };
        assert!(!named.is_in_container(&["long-container".to_owned()]), "a name is whole");
    }
}
