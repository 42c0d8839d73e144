//! A kprobe at the kernel function that opens files. It reports the exact path of each open call.
//!
//! ```text
//!   tracefs/kprobe_events  ◀── p:traceweir/open do_sys_openat2 name=+0($arg2):ustring
//!   tracefs/events/traceweir/open   from then on a tracepoint like any other
//! ```
//!
//! 1. The probe is defined when it is first needed. As long as any event is open on it, the kernel
//!    refuses to remove it.
//! 2. On a kernel without kprobes, or without that function, the tracepoint is missing, and names
//!    come from `/proc`.

use crate::tracefs::Tracefs;

/// The tracefs system of our own tracepoints.
pub(crate) const SYSTEM: &str = "traceweir";
/// The tracepoint of a path that is about to be opened.
pub(crate) const OPEN: &str = "open";

/// The tracefs file that defines kprobes.
const DEFINITIONS: &str = "kprobe_events";
const DEFINE: &[u8] = b"p:traceweir/open do_sys_openat2 name=+0($arg2):ustring\n";
const REMOVE: &[u8] = b"-:traceweir/open\n";

/// Defines the probe, unless it exists. A failure is not reported: the tracepoint is missing then.
pub(crate) fn define(tracefs: &Tracefs) {
    if !is_defined(tracefs) {
        // Fails on kernels without kprobes or without the function.
        let _ = tracefs.append(DEFINITIONS, DEFINE);
    }
}

/// Removes the probe, unless another session uses it.
pub(crate) fn remove(tracefs: &Tracefs) {
    if is_defined(tracefs) {
        // The kernel refuses while another session uses the probe; that session removes it later.
        let _ = tracefs.append(DEFINITIONS, REMOVE);
    }
}

fn is_defined(tracefs: &Tracefs) -> bool {
    tracefs.has_path(&format!("events/{SYSTEM}/{OPEN}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_is_defined_once_and_removed_if_present() {
        let folder = tempfile::tempdir().unwrap();
        let definitions = folder.path().join(DEFINITIONS);
        std::fs::create_dir(folder.path().join("events")).unwrap();
        let tracefs = Tracefs::open_at(folder.path()).unwrap();
        define(&tracefs);
        assert!(!definitions.exists(), "defined a probe on a kernel without kprobes");
        std::fs::write(&definitions, "").unwrap();
        define(&tracefs);
        remove(&tracefs);
        assert_eq!(std::fs::read(&definitions).unwrap(), DEFINE);
        std::fs::create_dir_all(folder.path().join("events/traceweir/open")).unwrap();
        define(&tracefs);
        remove(&tracefs);
        assert_eq!(std::fs::read(&definitions).unwrap(), [DEFINE, REMOVE].concat());
    }
}
