//! A probe that reads the path of an open call where the kernel takes it: exact, on kernels that have probes.
//!
//! ```text
//!   tracefs/kprobe_events  ◀── p:traceweir/open do_sys_openat2 name=+0($arg2):ustring
//!   tracefs/events/traceweir/open   a tracepoint like any other from then on
//! ```
//!
//! 1. It is defined when it is wanted first and stays while any event is open on it: the kernel refuses to remove it before.
//! 2. A kernel without probes, or without that function, does without: the tracepoint is missing, and names come from /proc.

use crate::tracefs::Tracefs;

/// The system of tracepoints that are our own.
pub(crate) const SYSTEM: &str = "traceweir";
/// A path is about to be opened.
pub(crate) const OPEN: &str = "open";

/// Where probes are defined.
const DEFINITIONS: &str = "kprobe_events";
const DEFINE: &[u8] = b"p:traceweir/open do_sys_openat2 name=+0($arg2):ustring\n";
const REMOVE: &[u8] = b"-:traceweir/open\n";

/// Defines the probe, unless it is there. Whether that worked shows by the tracepoint.
pub(crate) fn define(tracefs: &Tracefs) {
    if !is_defined(tracefs) {
        // Where there is no such file, the kernel has no probes.
        let _ = tracefs.append(DEFINITIONS, DEFINE);
    }
}

/// Removes it, unless somebody uses it.
pub(crate) fn remove(tracefs: &Tracefs) {
    if is_defined(tracefs) {
        // Refused while another session uses it, which removes it then.
        let _ = tracefs.append(DEFINITIONS, REMOVE);
    }
}

fn is_defined(tracefs: &Tracefs) -> bool {
    tracefs.has(&format!("events/{SYSTEM}/{OPEN}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_defined_once_and_removed_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let definitions = folder.path().join(DEFINITIONS);
        std::fs::create_dir(folder.path().join("events")).unwrap();
        let tracefs = Tracefs::at(folder.path()).unwrap();
        define(&tracefs);
        assert!(!definitions.exists(), "a kernel without probes");
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
