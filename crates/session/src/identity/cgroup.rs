//! What the control groups of a process tell about it: the application and the container that it belongs to.
//!
//! ```text
//!   0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-flatpak-org.example.App-4711.scope      org.example.App
//!   0::/user.slice/…/snap.hello.world-6f1c….scope                                                         snap.hello.world
//!   0::/system.slice/nginx.service                                                                         nginx.service
//!   12:memory:/docker/4f1d…                                                                                container 4f1d…
//!   0::/kubepods.slice/…/cri-containerd-4f1d….scope                                                        container 4f1d…
//!   0::/machine.slice/machine-web.scope     0::/lxc.payload.web/init.scope                                 container web
//! ```
//!
//! Version 2 has the one line `0::`; version 1 has one for each hierarchy, of which systemd's own knows the units. The innermost name counts.
//! Administrators name groups and users name their own ones below: a name tells, it proves nothing.

/// Characters of a name at most.
const LONGEST: usize = 255;

/// The paths of a process, the most telling first.
fn paths(groups: &str) -> impl Iterator<Item = &str> {
    let rank = |line: &str| match line {
        _ if line.starts_with("0::") => 0,
        _ if line.contains(":name=systemd:") => 1,
        _ => 2,
    };
    let of_rank = move |wanted| groups.lines().filter(move |line| rank(line) == wanted);
    [0, 1, 2].into_iter().flat_map(of_rank).filter_map(|line| line.splitn(3, ':').nth(2))
}

/// The systemd unit, flatpak or snap.
pub(super) fn application(groups: &str) -> Option<String> {
    let innermost = |path: &str| path.rsplit('/').find_map(application_of);
    paths(groups).find_map(innermost).map(bounded)
}

fn application_of(name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    if !matches!(kind, "service" | "scope" | "socket" | "mount" | "swap") {
        return None;
    }
    if let Some(flatpak) = stem.strip_prefix("app-flatpak-") {
        return Some(unescaped(flatpak.rsplit_once('-').map_or(flatpak, |(id, _instance)| id)));
    }
    if stem.starts_with("snap.") {
        // A scope carries a number of its own behind the name: a UUID, or a process id.
        let numbered = |(at, _): &(usize, &str)| {
            let tail = stem.get(at.saturating_add(1)..).unwrap_or_default();
            !tail.is_empty() && tail.chars().all(|c| c == '-' || c.is_ascii_hexdigit()) && kind == "scope"
        };
        let cut = stem.match_indices('-').find(numbered).map_or(stem.len(), |(at, _)| at);
        return stem.get(..cut).map(unescaped);
    }
    Some(unescaped(name))
}

/// The container.
pub(super) fn container(groups: &str) -> Option<String> {
    paths(groups).find_map(container_of).map(bounded)
}

fn container_of(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').peekable();
    while let Some(part) = parts.next() {
        let stem = part.strip_suffix(".scope").unwrap_or(part);
        // Beside a container, not in it.
        if stem.starts_with("libpod-conmon-") {
            return None;
        }
        let id = stem.rsplit_once(['-', ':']).map_or(stem, |(_, id)| id);
        if matches!(id.len(), 32 | 64) && id.chars().all(|c| c.is_ascii_hexdigit()) {
            return Some(id.to_owned());
        }
        let named = stem.strip_prefix("lxc.payload.").or_else(|| {
            let machine = stem.strip_prefix("machine-").filter(|_| part.ends_with(".scope"));
            machine.or_else(|| (parts.peek() == Some(&"lxc")).then_some(stem))
        });
        if let Some(name) = named.filter(|name| !name.is_empty()) {
            return Some(unescaped(name));
        }
    }
    None
}

/// A name as systemd meant it: `\x2d` is a dash.
fn unescaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, behind)) = rest.split_once("\\x") {
        out.push_str(before);
        let code = behind.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.filter(|code| code.is_ascii_graphic()) {
            Some(code) => {
                out.push(char::from(code));
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                out.push_str("\\x");
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out
}

fn bounded(name: String) -> String {
    if name.len() <= LONGEST { name } else { name.chars().take(LONGEST / 4).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";

    #[test]
    fn applications_are_units_flatpaks_and_snaps() {
        for (path, wanted) in [
            ("/system.slice/nginx.service", Some("nginx.service")),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            ("/user.slice/user-0.slice/session-3.scope", Some("session-3.scope")),
            ("/a.slice/user@1.service/app.slice/app-flatpak-org.x.Y-4711.scope", Some("org.x.Y")),
            ("/a.slice/app-flatpak-org.x\\x2dz.Y-12.scope", Some("org.x-z.Y")),
            ("/u/snap.hello.world-0c11e3d2-6f1c-4c5a-9d2e-5f6a7b8c9d0e.scope", Some("snap.hello.world")),
            ("/system.slice/snap.lxd.daemon.service", Some("snap.lxd.daemon")),
            ("/system.slice/snap.a-tool.cmd.service", Some("snap.a-tool.cmd")),
            ("/system.slice/odd\\xzz.service", Some("odd\\xzz.service")),
            ("/user.slice", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(application(&format!("0::{path}\n")).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn containers_are_known_by_all_common_managers() {
        for (path, wanted) in [
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
            assert_eq!(container(&format!("0::{path}\n")).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn hierarchies_of_version_1_are_read_behind_the_one_of_version_2() {
        let groups =
            format!("9:name=systemd:/system.slice/ssh.service\n4:memory:/docker/{ID}\n1:cpu:/\n0::/\n");
        assert_eq!(application(&groups).as_deref(), Some("ssh.service"));
        assert_eq!(container(&groups).as_deref(), Some(ID));
    }

    #[test]
    fn nonsense_is_nothing() {
        for groups in ["", "\n\n", "0", "0:", "::::", "0::\n0::", "1:a:/..\n", "0:://///"] {
            assert_eq!((application(groups), container(groups)), (None, None), "{groups:?}");
        }
        let long = format!("0::/{}.service", "ü".repeat(4000));
        assert!(application(&long).unwrap().len() <= LONGEST);
    }
}
