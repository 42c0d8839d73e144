//! System calls.
//!
//! ```text
//!   raw_syscalls:sys_enter   id    ──▶  0x0F33 enter: address of the function that serves the number
//!   raw_syscalls:sys_exit    ret   ──▶  0x0F34 exit: the low half of what it returned
//! ```
//!
//! 1. Readers name a call by the symbol at its address. The address is the kernel's own entry for the number (`__x64_sys_getppid`); 0: a number that is not known here, or a kernel that hides its
//!    addresses.
//! 2. Who calls is who runs on the processor, as context switches tell: there is no thread in these events.

mod names;

use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::kallsyms;
use crate::out::Out;
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Entries by number; empty as long as nobody wants them.
    entries: Vec<u64>,
}

/// What the names of entries begin with.
#[cfg(target_arch = "x86_64")]
pub(crate) const PREFIX: &str = "__x64_sys_";
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const PREFIX: &str = "__arm64_sys_";

const ENTER: u16 = 0x0F33;
const EXIT: u16 = 0x0F34;

pub(crate) static SPECS: &[Spec] = &[
    Spec::tracepoint(("raw_syscalls", "sys_enter"), &[Group::SYSTEMCALL], &[ENTER], &["id"], entered),
    Spec::tracepoint(("raw_syscalls", "sys_exit"), &[Group::SYSTEMCALL], &[EXIT], &["ret"], left),
];

/// Whether it is the name of an entry.
pub(crate) fn is_entry(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn entered(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let number = usize::try_from(event.number(0)).unwrap_or(usize::MAX);
    let address = state.syscalls.entries.get(number).copied().unwrap_or(0);
    let mut payload = out.payload();
    payload.put_u64(address);
    out.perfinfo(ENTER, 2, payload);
}

fn left(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(event.u32(0));
    out.perfinfo(EXIT, 2, payload);
}

/// Learns where the entries are, once they are wanted.
pub(crate) fn on_change(state: &mut All) {
    if state.groups.has(Group::SYSTEMCALL) && state.syscalls.entries.is_empty() {
        state.syscalls.entries = entries(kallsyms::address);
    }
}

/// Entries by number, with the addresses that `address` gives for names.
fn entries(address: impl Fn(&str) -> u64) -> Vec<u64> {
    let mut entries = Vec::new();
    for (number, name) in names::all() {
        entries.resize(number, 0);
        entries.push(address(&[PREFIX, name].concat()));
    }
    entries
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_the_entries_that_the_kernel_gave_them() {
        let known = [
            (libc::SYS_read, "read"),
            (libc::SYS_stat, "newstat"),
            (libc::SYS_getppid, "getppid"),
            (libc::SYS_umount2, "umount"),
            (libc::SYS_rseq, "rseq"),
            (libc::SYS_pidfd_send_signal, "pidfd_send_signal"),
            (libc::SYS_futex_waitv, "futex_waitv"),
            (libc::SYS_fchmodat2, "fchmodat2"),
            (libc::SYS_mseal, "mseal"),
        ];
        for (number, name) in known {
            let entries = entries(|it| u64::from(it == format!("__x64_sys_{name}")));
            let found: Vec<usize> =
                entries.iter().enumerate().filter(|it| *it.1 == 1).map(|it| it.0).collect();
            assert_eq!(found, [usize::try_from(number).expect("a number")], "{name}");
        }
    }
}
