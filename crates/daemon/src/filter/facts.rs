//! What a process is asked for by filters: its program, package, application and container.
//!
//! ```text
//!   /proc/PID/exe      /usr/bin/nginx (deleted)                                     program      nginx
//!   /proc/PID/cgroup   0::/system.slice/nginx.service                               package      nginx.service      application  nginx
//!                      …/app-gnome-org.gnome.Maps-4711.scope                        package      (the scope)        application  org.gnome.Maps
//!                      …/app-flatpak-org.gnome.Maps-4711.scope                      package      org.gnome.Maps     application  org.gnome.Maps
//!                      …/snap.hello.world-6f1c….scope, …/snap.hello.world.service   package      snap.hello.world   application  world
//!                      …/docker/4f1d…, …/cri-containerd-4f1d….scope                 container    4f1d…
//!                      …/machine-web.scope, …/lxc.payload.web                       container    web
//! ```
//!
//! Names are kept in lower case: they are compared without regard to it. A container's id of hexadecimal digits may be given by twelve of them or more, as
//! container tools print it. Who runs a process names its control groups: a name tells, it proves nothing, and decides only about who is asked to write.

use std::fs::{self, File};
use std::io::Read;

/// Bytes of a file in `/proc` that are looked at.
const MOST: u64 = 64 << 10;
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
        let groups = read(&format!("/proc/{pid}/cgroup"));
        let package = paths(&groups).find_map(|path| path.rsplit('/').find_map(package)).unwrap_or_default();
        Self {
            executable: executable(pid).to_lowercase(),
            application: application(&package).to_lowercase(),
            container: paths(&groups).find_map(container).unwrap_or_default().to_lowercase(),
            package: package.to_lowercase(),
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
            name.len() >= SHORT_ID && self.container.starts_with(name.as_str()) && is_id(&self.container)
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
        None => read(&format!("/proc/{pid}/comm")).trim_end().to_owned(),
    }
}

fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The paths of a process, the most telling first: that of version 2, then that of systemd.
fn paths(groups: &str) -> impl Iterator<Item = &str> {
    let rank = |line: &str| match line {
        _ if line.starts_with("0::") => 0,
        _ if line.contains(":name=systemd:") => 1,
        _ => 2,
    };
    let of_rank = move |wanted| groups.lines().filter(move |line| rank(line) == wanted);
    [0, 1, 2].into_iter().flat_map(of_rank).filter_map(|line| line.splitn(3, ':').nth(2))
}

/// The package that a control group is named after.
fn package(name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    if !matches!(kind, "service" | "scope") {
        return None;
    }
    if let Some(flatpak) = stem.strip_prefix("app-flatpak-") {
        return Some(unescaped(flatpak.rsplit_once('-').map_or(flatpak, |(id, _instance)| id)));
    }
    if stem.starts_with("snap.") {
        // A scope carries a number of its own behind the name, set off by a dash or a dot.
        let is_number =
            |tail: &str| tail.len() >= 8 && tail.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
        let cut = stem
            .match_indices(['-', '.'])
            .find(|(at, _)| stem.get(at.saturating_add(1)..).is_some_and(is_number));
        return stem.get(..cut.map_or(stem.len(), |(at, _)| at)).map(unescaped);
    }
    Some(unescaped(name))
}

/// The application in the name of a package.
fn application(package: &str) -> &str {
    if let Some(snap) = package.strip_prefix("snap.") {
        return snap.split_once('.').map_or(snap, |(_, application)| application);
    }
    let unit = package.strip_suffix(".service").or_else(|| package.strip_suffix(".scope"));
    let Some(unit) = unit else { return package };
    if let Some(started) = unit.strip_prefix("app-") {
        // Who started it, the application, a number: the first and the last may be missing.
        let named = started.rsplit_once('-').filter(|(_, last)| last.chars().all(|c| c.is_ascii_digit()));
        let named = named.map_or(started, |(named, _)| named);
        return named.split_once('-').map_or(named, |(_, application)| application);
    }
    unit.split_once('@').map_or(unit, |(template, _)| template)
}

/// The innermost container of a path.
fn container(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').peekable();
    while let Some(part) = parts.next() {
        let stem = part.strip_suffix(".scope").unwrap_or(part);
        // Beside a container, not in it.
        if stem.starts_with("libpod-conmon-") {
            return None;
        }
        let id = stem.rsplit_once(['-', ':']).map_or(stem, |(_, id)| id);
        if is_id(id) {
            return Some(id.to_owned());
        }
        let machine = stem.strip_prefix("machine-").filter(|_| part.ends_with(".scope"));
        let named = stem.strip_prefix("lxc.payload.").or(machine);
        let named = named.or_else(|| (parts.peek() == Some(&"lxc")).then_some(stem));
        if let Some(name) = named.filter(|name| !name.is_empty()) {
            return Some(unescaped(name));
        }
    }
    None
}

fn is_id(text: &str) -> bool {
    matches!(text.len(), 32 | 64) && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// A name as systemd meant it: `\x2d` is a dash.
fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code =
            part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii_graphic);
        match (code, part.get(2..)) {
            (Some(code), Some(rest)) => {
                out.push(char::from(code));
                out.push_str(rest);
            }
            _ => {
                out.push_str("\\x");
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";

    #[test]
    fn packages_and_applications_are_in_the_names_of_groups() {
        for (name, wanted, its_application) in [
            ("nginx.service", "nginx.service", "nginx"),
            ("getty@tty1.service", "getty@tty1.service", "getty"),
            ("app-flatpak-org.gnome.Maps-4711.scope", "org.gnome.Maps", "org.gnome.Maps"),
            ("app-gnome-org.gnome.Maps-4711.scope", "app-gnome-org.gnome.Maps-4711.scope", "org.gnome.Maps"),
            (r"app-org.x\x2dy.scope", "app-org.x-y.scope", "y"),
            ("snap.hello.world.service", "snap.hello.world", "world"),
            ("snap.hello.world-6f1c2b3a-0000-4000-8000-0123456789ab.scope", "snap.hello.world", "world"),
            ("snap.hello.world.6f1c2b3a-0000-4000-8000-0123456789ab.scope", "snap.hello.world", "world"),
        ] {
            let package = package(name).unwrap();
            assert_eq!((package.as_str(), application(&package)), (wanted, its_application), "{name}");
        }
        assert_eq!(package("user.slice"), None);
        assert_eq!(package("docker"), None);
    }

    #[test]
    fn containers_are_ids_or_names() {
        for (path, wanted) in [
            (format!("/docker/{ID}"), Some(ID)),
            (format!("/system.slice/docker-{ID}.scope"), Some(ID)),
            (format!("/kubepods.slice/pod.slice/cri-containerd-{ID}.scope/init"), Some(ID)),
            (format!("/machine.slice/libpod-{ID}.scope/container"), Some(ID)),
            (format!("/machine.slice/libpod-conmon-{ID}.scope"), None),
            ("/machine.slice/machine-web.scope".to_owned(), Some("web")),
            ("/lxc.payload.web/init.scope".to_owned(), Some("web")),
            ("/lxc/web".to_owned(), Some("web")),
            ("/user.slice/user-1000.slice/session-3.scope".to_owned(), None),
        ] {
            assert_eq!(container(&path).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn the_unified_hierarchy_is_asked_first() {
        let groups = "12:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/system.slice/b.service\n";
        let all: Vec<_> = paths(groups).collect();
        assert_eq!(all, ["/system.slice/b.service", "/system.slice/a.service", "/x"]);
        assert_eq!(paths("nonsense\n\n:::").collect::<Vec<_>>(), [":"]);
    }

    #[test]
    fn this_process_is_known_by_its_program() {
        let facts = Facts::of(std::process::id());
        let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_lowercase();
        assert!(facts.is_program(&["other".to_owned(), program]));
        assert!(!facts.is_program(&["other".to_owned()]));
        assert_eq!(Facts::of(u32::MAX), Facts::default());
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
