//! Description of the machine: processors, disks, network, firmware.
//!
//! ```text
//!   start                       0x0B11 network settings; SysConfigEx 33 system paths, 35 volumes
//!   end, or a rundown between   all other events, and SysConfigEx 32: operating system
//! ```
//!
//! 1. Windows writes these events at the same moments. The header names the process and thread that
//!    write them, which are our own. `NO_SYSCONFIG` leaves the events out, except those that the
//!    Config provider's groups request.
//! 2. Values are read from files below one directory, with bounds. Events that the machine gives no
//!    values for are left out (`docs/spec/kernel-events.md`).
//! 3. The build of the kernel (0x0042) is in the header of each log file already: the session
//!    writes it.

mod event;
mod network;
mod platform;
mod processor;
mod source;
mod storage;
#[cfg(test)]
mod tests;

use traceweir_format::kernel::hook;
use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use self::event::ConfigEvent;
use self::source::Source;
use super::{Context, Family, Rundown};
use crate::groups::{Group, Groups};
use crate::out::{Out, writer_ids};

/// The family of configuration events.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Whether the events of the start have been written.
    is_begun: bool,
}

/// Groups of the Config provider.
const SYSTEM: Group = Group(0xC000_0001);
const STORAGE: Group = Group(0xC000_0004);
const NETWORK: Group = Group(0xC000_0008);

const NETWORK_SETTINGS: u16 = hook::CONFIG_NETWORK;
const BUILD_INFO: u8 = 32;
const SYSTEM_PATHS: u8 = 33;
const VOLUME_MAPPING: u8 = 35;

/// Whether the events of a Config group are written.
fn is_enabled(groups: &Groups, group: Group) -> bool {
    !groups.has(Group::NO_SYSCONFIG) || groups.has(group)
}

/// Collects the events that are written at the end.
fn collect_events(source: &Source, groups: &Groups) -> Vec<ConfigEvent> {
    let mut events = Vec::new();
    if is_enabled(groups, SYSTEM) {
        processor::add_events(source, &mut events);
        platform::add_events(source, &mut events);
    }
    if is_enabled(groups, STORAGE) {
        storage::add_events(source, &mut events);
    }
    if is_enabled(groups, NETWORK) {
        network::add_events(source, &mut events);
    }
    events
}

impl Family for Config {
    /// Writes the events of the start at the first call, and the others at later calls and at the
    /// end.
    fn run_down(&mut self, when: Rundown, context: &mut Context, out: &mut Out<'_>) {
        let (source, groups) = (Source::new("/"), &context.groups);
        let is_begun = std::mem::replace(&mut self.is_begun, true);
        if !is_begun {
            write_start(&source, groups, out);
        }
        if is_begun || when == Rundown::End {
            for ConfigEvent { hook, version, payload } in collect_events(&source, groups) {
                out.system(hook, version, writer_ids(), payload);
            }
            if is_enabled(groups, SYSTEM) {
                out.classic(class::SYS_CONFIG_EX, BUILD_INFO, 0, (0, 0), platform::build_info(&source));
            }
        }
    }
}

/// Writes the events of the start: TCP settings, and system paths, which map `/` to `/`.
fn write_start(source: &Source, groups: &Groups, out: &mut Out<'_>) {
    if is_enabled(groups, NETWORK) {
        out.perfinfo(NETWORK_SETTINGS, 2, network::settings(source));
    }
    if is_enabled(groups, SYSTEM) {
        for opcode in [SYSTEM_PATHS, VOLUME_MAPPING] {
            let mut payload = out.payload();
            payload.put_wide_z("/").put_wide_z("/");
            out.classic(class::SYS_CONFIG_EX, opcode, 0, (0, 0), payload);
        }
    }
}
