//! Description of the machine: processors, disks, network, firmware.
//!
//! ```text
//!   start                     0x0B11 network settings; SysConfigEx 33 system paths, 35 volumes
//!   later rundowns, and end   all other events, and SysConfigEx 32: operating system
//! ```
//!
//! 1. Windows writes these events at the same moments. The headers name the process and thread that
//!    write the events, except for 0x0B11 and SysConfigEx, whose headers name none. Group
//!    `NO_SYSCONFIG` leaves the events out, except those that the Config provider's groups request.
//! 2. Values are read from files below one directory, with bounds. Events that the machine gives no
//!    values for are left out (`docs/spec/kernel-events.md`).
//! 3. The build of the kernel (0x0042) is not written here: the session writes it into the header
//!    buffer of each log file.

mod event;
mod machine_files;
mod network;
mod platform;
mod processor;
mod storage;
#[cfg(test)]
mod tests;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::spec::event::class;

use self::event::ConfigEvent;
use self::machine_files::MachineFiles;
use super::{Context, EventFamily, Rundown};
use crate::groups::{Group, Groups};
use crate::out::{Out, writer_ids};
use crate::tasks::TaskIds;

#[derive(Debug, Default)]
pub(crate) struct ConfigFamily {
    /// Whether the events of the start have been written.
    is_start_written: bool,
}

// Groups of the Config provider.
const CONFIG_SYSTEM: Group = Group(0xC000_0001);
const CONFIG_STORAGE: Group = Group(0xC000_0004);
const CONFIG_NETWORK: Group = Group(0xC000_0008);

// Event types of SysConfigEx.
const SYSTEM_PATHS_OPCODE: u8 = 33;
const VOLUME_MAPPING_OPCODE: u8 = 35;
const PATHS_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::SYS_CONFIG_EX, SYSTEM_PATHS_OPCODE, 0);
const MAPPING_LAYOUT: PayloadLayout =
    PayloadLayout::for_class(class::SYS_CONFIG_EX, VOLUME_MAPPING_OPCODE, 0);

/// The folder of the system's programs and libraries. Trace readers take its first two characters
/// for the system drive, and fail if there are fewer.
const SYSTEM_DIRECTORY: &str = "/usr";

/// Returns whether the events of a Config group are written.
fn is_enabled(groups: &Groups, group: Group) -> bool {
    !groups.has(Group::NO_SYSCONFIG) || groups.has(group)
}

/// Collects the events of the end or of a later rundown, except SysConfigEx.
fn collect_events(files: &MachineFiles, groups: &Groups) -> Vec<ConfigEvent> {
    let mut events = Vec::new();
    if is_enabled(groups, CONFIG_SYSTEM) {
        processor::add_events(files, &mut events);
        platform::add_events(files, &mut events);
    }
    if is_enabled(groups, CONFIG_STORAGE) {
        storage::add_events(files, &mut events);
    }
    if is_enabled(groups, CONFIG_NETWORK) {
        network::add_events(files, &mut events);
    }
    events
}

impl EventFamily for ConfigFamily {
    /// Writes the events of the start at the first call, and the others at later calls and at the
    /// end.
    fn run_down(&mut self, when: Rundown, context: &mut Context, out: &mut Out<'_>) {
        let (files, groups) = (MachineFiles::new("/"), &context.groups);
        let is_start_written = std::mem::replace(&mut self.is_start_written, true);
        if !is_start_written {
            write_start_events(&files, groups, out);
        }
        if is_start_written || when == Rundown::End {
            for ConfigEvent { hook, version, payload } in collect_events(&files, groups) {
                out.write_system(hook, version, writer_ids(), payload);
            }
            if is_enabled(groups, CONFIG_SYSTEM) {
                let payload = platform::build_os_info(&files);
                out.write_classic(
                    class::SYS_CONFIG_EX,
                    platform::OS_INFO_OPCODE,
                    0,
                    TaskIds::default(),
                    payload,
                );
            }
        }
    }
}

/// Writes the events of the start: TCP settings, system paths, and the volume mapping of `/`.
fn write_start_events(files: &MachineFiles, groups: &Groups, out: &mut Out<'_>) {
    if is_enabled(groups, CONFIG_NETWORK) {
        let payload = network::build_settings(files);
        out.write_perfinfo(hook::CONFIG_NETWORK, network::SETTINGS_LAYOUT.version(), payload);
    }
    if is_enabled(groups, CONFIG_SYSTEM) {
        let mut payload = out.new_payload();
        put_kernel_event!(
            &mut payload,
            PATHS_LAYOUT,
            {},
            { SystemDirectory: SYSTEM_DIRECTORY, SystemWindowsDirectory: SYSTEM_DIRECTORY }
        );
        out.write_classic(class::SYS_CONFIG_EX, SYSTEM_PATHS_OPCODE, 0, TaskIds::default(), payload);
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, MAPPING_LAYOUT, {}, { NtPath: "/", DosPath: "/" });
        out.write_classic(class::SYS_CONFIG_EX, VOLUME_MAPPING_OPCODE, 0, TaskIds::default(), payload);
    }
}
