//! System call events.
//!
//! ```text
//!   raw_syscalls:sys_enter   id    ──▶  0x0F33 enter: address of the function for the number
//!   raw_syscalls:sys_exit    ret   ──▶  0x0F34 exit: the low half of the return value
//! ```
//!
//! 1. Readers name a call by the symbol at its address. The address is the kernel's own entry
//!    function for the number (`__x64_sys_getppid`). It is 0 for a number missing in our table,
//!    which is empty except on x86-64, and on a kernel that hides its addresses.
//! 2. These events name no thread. Readers find the caller from the context switches: it is the
//!    thread that runs on the processor.

mod names;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use super::{Context, EventFamily, Row};
use crate::groups::Group;
use crate::kallsyms;
use crate::out::Out;
use crate::spec::SampleEvent;

#[derive(Debug, Default)]
pub(crate) struct SystemCallFamily {
    /// Addresses of the kernel's entry functions by system call number; empty until the group is
    /// enabled.
    entries: Vec<u64>,
}

/// Prefix of the names of entry functions.
#[cfg(target_arch = "x86_64")]
const ENTRY_PREFIX: &str = "__x64_sys_";
#[cfg(not(target_arch = "x86_64"))]
const ENTRY_PREFIX: &str = "__arm64_sys_";

const ENTER_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SYSCALL_ENTER, 2);
const EXIT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SYSCALL_EXIT, 2);

static ROWS: &[Row<SystemCallFamily>] = &[
    Row::tracepoint(
        ("raw_syscalls", "sys_enter"),
        &[Group::SYSTEMCALL],
        &[hook::SYSCALL_ENTER],
        &["id"],
        SystemCallFamily::on_enter,
    ),
    Row::tracepoint(
        ("raw_syscalls", "sys_exit"),
        &[Group::SYSTEMCALL],
        &[hook::SYSCALL_EXIT],
        &["ret"],
        |_, event, _, out| write_exit(event, out),
    ),
];

/// Returns whether a symbol is an entry function of a system call.
pub(crate) fn is_entry_function(name: &str) -> bool {
    name.starts_with(ENTRY_PREFIX)
}

impl EventFamily for SystemCallFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Finds the entry functions when their group is first enabled.
    fn on_settings_change(&mut self, context: &mut Context, _: &mut Out<'_>) {
        if context.groups.has(Group::SYSTEMCALL) && self.entries.is_empty() {
            self.entries = find_entry_addresses(kallsyms::find_address);
        }
    }
}

impl SystemCallFamily {
    fn on_enter(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        let number = usize::try_from(event.number(0)).unwrap_or(usize::MAX);
        let address = self.entries.get(number).copied().unwrap_or(0);
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, ENTER_LAYOUT, { SysCallAddress: address });
        out.write_perfinfo(hook::SYSCALL_ENTER, ENTER_LAYOUT.version(), payload);
    }
}

fn write_exit(event: &SampleEvent<'_>, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, EXIT_LAYOUT, { SysCallNtStatus: event.u32(0) });
    out.write_perfinfo(hook::SYSCALL_EXIT, EXIT_LAYOUT.version(), payload);
}

/// Returns the addresses of the entry functions by number. `find_address` finds the address of a
/// symbol.
fn find_entry_addresses(find_address: impl Fn(&str) -> u64) -> Vec<u64> {
    let mut entries = Vec::new();
    for (number, name) in names::list_numbered_names() {
        entries.resize(number, 0);
        entries.push(find_address(&[ENTRY_PREFIX, name].concat()));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::testing::{assert_written, run_row_with_numbers};
    use crate::record::PerfSample;

    #[test]
    fn payloads_have_the_documented_layout() {
        let mut calls = SystemCallFamily { entries: vec![0, 0xFFFF_8000_0000_1234] };
        let mut context = Context::default();
        let write = |out: &mut Out<'_>| {
            let mut run = |name: &str, number: i64| {
                let numbers = [number.cast_unsigned()];
                run_row_with_numbers(&mut calls, &mut context, name, PerfSample::default(), &numbers, out);
            };
            run("raw_syscalls:sys_enter", 1);
            run("raw_syscalls:sys_enter", 2);
            run("raw_syscalls:sys_exit", -2);
        };
        // Hook id, version, payload.
        assert_written(write, &["0f33 02 341200000080ffff", "0f33 02 0000000000000000", "0f34 02 feffffff"]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn numbers_map_to_the_kernels_entry_functions() {
        let expected = [
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
        for (number, name) in expected {
            let entries = find_entry_addresses(|symbol| u64::from(symbol == format!("__x64_sys_{name}")));
            let numbers = entries.iter().enumerate().filter(|(_, address)| **address == 1);
            let numbers: Vec<usize> = numbers.map(|(number, _)| number).collect();
            assert_eq!(numbers, [usize::try_from(number).expect("the number is negative")], "{name}");
        }
    }
}
