//! Parses the control groups of a process: its package, application and container.
//!
//! ```text
//!   /proc/PID/cgroup                                     package             application
//!     0::/system.slice/nginx.service                     nginx.service       nginx
//!     0::/…/system-getty.slice/getty@tty1.service        getty@tty1.service  getty
//!     0::/…/app-gnome-org.gnome.Maps-4711.scope          (the scope's name)  org.gnome.Maps
//!     0::/…/app-flatpak-org.example.App-4711.scope       org.example.App     org.example.App
//!     0::/user.slice/…/snap.hello.world-6f1c….scope      snap.hello.world    world
//!
//!                                                        container
//!     12:memory:/docker/4f1d…                            4f1d…
//!     0::/kubepods.slice/…/cri-containerd-4f1d….scope    4f1d…
//!     0::/machine.slice/machine-web.scope                web
//!     0::/lxc.payload.web/init.scope                     web
//! ```
//!
//! The same functions serve display and filters: the package is extended data item 9 of an event
//! (PSM_KEY), and PACKAGE_ID filters compare with it; the container is item 16, and CONTAINER
//! filters compare with it. The application is the part of the package name that users know;
//! PACKAGE_APP_ID filters compare with it, and no item contains it.
//!
//! Version 2 of control groups has the single line `0::`; version 1 has one line per hierarchy, of
//! which the `name=systemd` hierarchy has the units. The innermost name counts. Administrators and
//! users can choose names of groups freely: a name is information, not proof.

use alloc::borrow::ToOwned;
use alloc::string::String;

/// The largest length of a name in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The length of a UUID as text.
const UUID_CHARS: usize = 36;

/// Returns the package: the id of a flatpak or snap, or the name of the systemd unit.
#[must_use]
pub fn package(groups: &str) -> Option<String> {
    find_unit(groups).map(|unit| truncate_name(parse_package(unit)))
}

/// Returns the application: the package name without launcher, snap id, unit suffix and instance.
#[must_use]
pub fn application(groups: &str) -> Option<String> {
    find_unit(groups).map(|unit| truncate_name(parse_application(unit)))
}

/// Returns the container: its id if there is one, or its name.
#[must_use]
pub fn container(groups: &str) -> Option<String> {
    paths_by_rank(groups).find_map(parse_container).map(truncate_name)
}

/// Returns whether a container's name is an id of hexadecimal digits, of which tools show only the
/// first few.
#[must_use]
pub fn is_container_id(name: &str) -> bool {
    matches!(name.len(), 32 | 64) && name.chars().all(|c| c.is_ascii_hexdigit())
}

/// Returns the paths of a process, the most informative first.
fn paths_by_rank(groups: &str) -> impl Iterator<Item = &str> {
    let rank = |line: &str| match line {
        _ if line.starts_with("0::") => 0,
        _ if line.contains(":name=systemd:") => 1,
        _ => 2,
    };
    let lines_of_rank = move |expected| groups.lines().filter(move |line| rank(line) == expected);
    [0, 1, 2].into_iter().flat_map(lines_of_rank).filter_map(|line| line.splitn(3, ':').nth(2))
}

/// Returns the innermost group that systemd created for a unit.
fn find_unit(groups: &str) -> Option<&str> {
    let is_unit = |name: &&str| {
        let kind = name.rsplit_once('.').map(|(_, kind)| kind);
        kind.is_some_and(|kind| matches!(kind, "service" | "scope" | "socket" | "mount" | "swap"))
    };
    paths_by_rank(groups).find_map(|path| path.rsplit('/').find(is_unit))
}

/// Returns the stem of a unit name, and whether the unit is a scope. The names of scopes usually
/// end with the instance.
fn split_unit(unit: &str) -> (&str, bool) {
    unit.rsplit_once('.').map_or((unit, false), |(stem, kind)| (stem, kind == "scope"))
}

fn parse_package(unit: &str) -> String {
    let (stem, is_scope) = split_unit(unit);
    if let Some(flatpak) = stem.strip_prefix("app-flatpak-") {
        return unescape(flatpak.rsplit_once('-').map_or(flatpak, |(id, _instance)| id));
    }
    match stem.starts_with("snap.") {
        true => unescape(if is_scope { strip_number(stem) } else { stem }),
        false => unescape(unit),
    }
}

fn parse_application(unit: &str) -> String {
    let (stem, is_scope) = split_unit(unit);
    if stem.starts_with("app-flatpak-") {
        return parse_package(unit);
    }
    if let Some(snap) = stem.strip_prefix("snap.") {
        let snap = if is_scope { strip_number(snap) } else { snap };
        return unescape(snap.split_once('.').map_or(snap, |(_, application)| application));
    }
    let stem = stem.split_once('@').map_or(stem, |(template, _)| template);
    let Some(launched) = stem.strip_prefix("app-") else { return unescape(stem) };
    // Launcher, application, instance: the first and the last may be missing. A dash within a part
    // is escaped.
    let is_number = |last: &str| last.chars().all(|c| c.is_ascii_hexdigit());
    let name = launched.rsplit_once('-').filter(|(_, last)| is_scope && is_number(last));
    let name = name.map_or(launched, |(name, _)| name);
    unescape(name.split_once('-').map_or(name, |(_, application)| application))
}

/// Removes the instance from the name of a snap's scope: a UUID after a dash or a dot, or a process
/// id after a dash.
fn strip_number(stem: &str) -> &str {
    let is_uuid = |tail: &str| tail.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    let at = stem.len().checked_sub(UUID_CHARS).filter(|at| stem.get(*at..).is_some_and(is_uuid));
    let front = at.and_then(|at| stem.get(..at)).and_then(|front| front.strip_suffix(['-', '.']));
    let is_id = |tail: &str| !tail.is_empty() && tail.chars().all(|c| c.is_ascii_digit());
    let without_process_id = || stem.rsplit_once('-').filter(|(_, tail)| is_id(tail)).map(|(front, _)| front);
    front.or_else(without_process_id).unwrap_or(stem)
}

fn parse_container(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').peekable();
    while let Some(part) = parts.next() {
        let stem = part.strip_suffix(".scope").unwrap_or(part);
        // The process in this group (conmon) monitors a container from outside.
        if stem.starts_with("libpod-conmon-") {
            return None;
        }
        let id = stem.rsplit_once(['-', ':']).map_or(stem, |(_, id)| id);
        if is_container_id(id) {
            return Some(id.to_owned());
        }
        let name = stem.strip_prefix("lxc.payload.").or_else(|| {
            let machine = stem.strip_prefix("machine-").filter(|_| part.ends_with(".scope"));
            machine.or_else(|| (parts.peek() == Some(&"lxc")).then_some(stem))
        });
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Some(unescape(name));
        }
    }
    None
}

/// Resolves systemd's escapes: `\x2d` is a dash. A semicolon stays escaped: filters separate names
/// by semicolons, and displayed names must be usable in filters.
fn unescape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut remaining = name;
    while let Some((before, after)) = remaining.split_once("\\x") {
        out.push_str(before);
        let code = after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.filter(|code| code.is_ascii_graphic() && *code != b';') {
            Some(code) => {
                out.push(char::from(code));
                remaining = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push_str("\\x");
                remaining = after;
            }
        }
    }
    out.push_str(remaining);
    out
}

fn truncate_name(name: String) -> String {
    // A character takes at most four bytes.
    if name.len() <= MAX_NAME_BYTES { name } else { name.chars().take(MAX_NAME_BYTES / 4).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const ID: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";

    #[test]
    fn packages_are_units_flatpaks_and_snaps() {
        let uuid = "0c11e3d2-6f1c-4c5a-9d2e-5f6a7b8c9d0e";
        for (path, expected, expected_application) in [
            ("/system.slice/nginx.service", "nginx.service", "nginx"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service", "getty"),
            ("/system.slice/ssh.socket", "ssh.socket", "ssh"),
            ("/user.slice/user-0.slice/session-3.scope", "session-3.scope", "session-3"),
            ("/a.slice/user@1.service/app.slice/app-flatpak-org.x.Y-4711.scope", "org.x.Y", "org.x.Y"),
            (r"/a.slice/app-flatpak-org.x\x2dz.Y-12.scope", "org.x-z.Y", "org.x-z.Y"),
            ("/a/app-gnome-org.x.Y-4711.scope", "app-gnome-org.x.Y-4711.scope", "org.x.Y"),
            ("/a/app-org.x.Y-0c11e3d26f1c.scope", "app-org.x.Y-0c11e3d26f1c.scope", "org.x.Y"),
            ("/a/app-gnome-org.x.Y@autostart.service", "app-gnome-org.x.Y@autostart.service", "org.x.Y"),
            (r"/a/app-org.x\x2dy.scope", "app-org.x-y.scope", "org.x-y"),
            (&format!("/u/snap.hello.world-{uuid}.scope"), "snap.hello.world", "world"),
            (&format!("/u/snap.hello.world-cafe.{uuid}.scope"), "snap.hello.world-cafe", "world-cafe"),
            ("/u/snap.hello.world-4711.scope", "snap.hello.world", "world"),
            ("/system.slice/snap.lxd.daemon.service", "snap.lxd.daemon", "daemon"),
            ("/system.slice/snap.a-tool.cmd-12345678.service", "snap.a-tool.cmd-12345678", "cmd-12345678"),
            (r"/system.slice/odd\xzz.service", r"odd\xzz.service", r"odd\xzz"),
            (r"/system.slice/one\x3btwo.service", r"one\x3btwo.service", r"one\x3btwo"),
        ] {
            let groups = format!("0::{path}\n");
            let names = (package(&groups), application(&groups));
            assert_eq!(names, (Some(expected.into()), Some(expected_application.into())), "{path}");
        }
        for path in ["/user.slice", "/docker", "/", ""] {
            assert_eq!(package(&format!("0::{path}\n")), None, "{path}");
            assert_eq!(application(&format!("0::{path}\n")), None, "{path}");
        }
    }

    #[test]
    fn containers_of_all_common_managers_are_found() {
        for (path, expected) in [
            (format!("/docker/{ID}"), Some(ID)),
            (format!("/system.slice/docker-{ID}.scope/init.scope"), Some(ID)),
            (format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"), Some(ID)),
            (format!("/kubepods/besteffort/pod1/{ID}"), Some(ID)),
            (format!("/machine.slice/libpod-{ID}.scope/container"), Some(ID)),
            (format!("/kubelet/kubepods/cri-containerd:{ID}"), Some(ID)),
            (format!("/machine.slice/libpod-conmon-{ID}.scope"), None),
            ("/machine.slice/machine-web\\x2d1.scope/payload".into(), Some("web-1")),
            ("/lxc.payload.web/system.slice/a.service".into(), Some("web")),
            ("/lxc/web".into(), Some("web")),
            ("/system.slice/nginx.service".into(), None),
            ("/".into(), None),
        ] {
            assert_eq!(container(&format!("0::{path}\n")).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn version_1_hierarchies_are_read_after_version_2() {
        let groups =
            format!("9:name=systemd:/system.slice/ssh.service\n4:memory:/docker/{ID}\n1:cpu:/\n0::/\n");
        assert_eq!(package(&groups).as_deref(), Some("ssh.service"));
        assert_eq!(container(&groups).as_deref(), Some(ID));
    }

    #[test]
    fn invalid_groups_give_no_names_and_long_names_are_truncated() {
        for groups in ["", "\n\n", "0", "0:", "nonsense", "::::", "0::\n0::", "1:a:/..\n", "0:://///"] {
            assert_eq!(
                (package(groups), application(groups), container(groups)),
                (None, None, None),
                "{groups:?}"
            );
        }
        let long = format!("0::/{}.service", "ü".repeat(4000));
        assert!(package(&long).unwrap().len() <= MAX_NAME_BYTES);
        assert!(application(&long).unwrap().len() <= MAX_NAME_BYTES);
    }
}
