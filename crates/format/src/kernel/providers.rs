//! The kernel's manifest providers: the events that they have in common with the classic kernel
//! events, and how a classic event becomes one of theirs.
//!
//! ```text
//!   hook id ──▶ rows of EVENTS: provider, descriptor, group ──selected by level and keywords──▶
//!   payload of the classic event + EventFacts ──ProviderEvent::convert──▶ payload of the event
//! ```
//!
//! Ids, versions, keywords and fields are those of the published manifests of Windows 10. All
//! events have level 4 and the channel 16, whose keyword bit is the highest one.
//!
//! Source: the manifests "Microsoft-Windows-Kernel-Process", "-File", "-Network" and "-Disk" as
//! `docs/spec/kernel-events.md` cites them.

mod convert;
#[cfg(test)]
mod tests;

pub use convert::EventFacts;

use alloc::vec::Vec;

use self::convert::Conversion;
use super::hook;
use crate::guid::Guid;
use crate::spec::event::EventDescriptor;

/// `Microsoft-Windows-Kernel-Process`.
pub const KERNEL_PROCESS: Guid = Guid::from_u128(0x22fb2cd6_0e7b_422b_a0c7_2fad1fd0e716);
/// `Microsoft-Windows-Kernel-File`.
pub const KERNEL_FILE: Guid = Guid::from_u128(0xedd08927_9cc4_4e65_b970_c2560fb5c289);
/// `Microsoft-Windows-Kernel-Network`.
pub const KERNEL_NETWORK: Guid = Guid::from_u128(0x7dd42a49_5329_4832_8dfd_43d979153a88);
/// `Microsoft-Windows-Kernel-Disk`.
pub const KERNEL_DISK: Guid = Guid::from_u128(0xc7bde69a_e1e0_4177_b6ef_283ad1525271);

/// The names and GUIDs of the kernel's manifest providers.
pub const KERNEL_PROVIDERS: [(&str, Guid); 4] = [
    ("Microsoft-Windows-Kernel-Process", KERNEL_PROCESS),
    ("Microsoft-Windows-Kernel-File", KERNEL_FILE),
    ("Microsoft-Windows-Kernel-Network", KERNEL_NETWORK),
    ("Microsoft-Windows-Kernel-Disk", KERNEL_DISK),
];

/// Returns the name of a manifest provider of the kernel; `None` for other providers.
#[must_use]
pub fn kernel_provider_name(provider: &Guid) -> Option<&'static str> {
    KERNEL_PROVIDERS.iter().find(|(_, guid)| guid == provider).map(|(name, _)| *name)
}

/// Returns the GUID of the kernel's manifest provider with this name, in any case.
#[must_use]
pub fn kernel_provider_named(name: &str) -> Option<Guid> {
    KERNEL_PROVIDERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, guid)| *guid)
}

const INFORMATION: u8 = 4;
const ANALYTIC_CHANNEL: u8 = 16;
/// The keyword bit of the channel.
const CHANNEL_KEYWORD: u64 = 1 << 63;

// Kernel groups, as EnableFlags.
const PROCESS: u32 = 0x1;
const THREAD: u32 = 0x2;
const IMAGE_LOAD: u32 = 0x4;
const DISK_IO: u32 = 0x100;
const DISK_FILE_IO: u32 = 0x200;
const DISK_IO_INIT: u32 = 0x400;
const NETWORK_TCPIP: u32 = 0x1_0000;
const FILE_IO: u32 = 0x0200_0000;
const FILE_IO_INIT: u32 = 0x0400_0000;

/// An event of a manifest provider that is made from a classic event.
#[derive(Clone, Copy, Debug)]
pub struct ProviderEvent {
    /// The provider that the event belongs to.
    pub provider: Guid,
    /// Hook id of the classic event.
    pub hook: u16,
    /// Id, version, keywords and the other descriptor fields.
    pub descriptor: EventDescriptor,
    /// The kernel group of the classic event, as EnableFlags.
    pub group: u32,
    /// The kernel group of other classic events that name the process and thread of this event, as
    /// EnableFlags; 0 if the classic event names them itself.
    pub needed_group: u32,
    /// Whether the event describes existing objects, which a session gets only on request (capture
    /// state).
    pub is_rundown: bool,
    conversion: Conversion,
}

impl ProviderEvent {
    /// Returns whether an enable with this level and these keyword masks selects the event. Level 0
    /// selects all levels, a `match_any` of 0 all keywords.
    #[must_use]
    pub const fn is_selected(&self, level: u8, match_any: u64, match_all: u64) -> bool {
        let EventDescriptor { level: own_level, keyword, .. } = self.descriptor;
        (level == 0 || own_level <= level)
            && (match_any == 0 || keyword & match_any != 0)
            && keyword & match_all == match_all
    }

    /// Appends the payload of the event, made from the payload of the classic event. Returns
    /// `false`, with `out` unchanged, if the classic payload is too short.
    #[must_use]
    pub fn convert(&self, payload: &[u8], facts: &EventFacts<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let is_complete = (self.conversion)(payload, facts, out).is_some();
        if !is_complete {
            out.truncate(start);
        }
        is_complete
    }
}

/// Returns the events that are made from the classic events with a hook id.
pub fn events_of_hook(hook: u16) -> impl Iterator<Item = &'static ProviderEvent> {
    EVENTS.iter().filter(move |event| event.hook == hook)
}

/// Returns the events of a provider.
pub fn events_of_provider(provider: Guid) -> impl Iterator<Item = &'static ProviderEvent> {
    EVENTS.iter().filter(move |event| event.provider == provider)
}

/// Ids of a row: the event, its version, task and opcode.
struct Ids(u16, u8, u16, u8);

const fn row(
    provider: Guid,
    hook: u16,
    Ids(id, version, task, opcode): Ids,
    keyword: u64,
    group: u32,
    conversion: Conversion,
) -> ProviderEvent {
    let descriptor = EventDescriptor {
        id,
        version,
        channel: ANALYTIC_CHANNEL,
        level: INFORMATION,
        opcode,
        task,
        keyword: keyword | CHANNEL_KEYWORD,
    };
    ProviderEvent { provider, hook, descriptor, group, needed_group: 0, is_rundown: false, conversion }
}

const fn rundown(row: ProviderEvent) -> ProviderEvent {
    ProviderEvent { is_rundown: true, ..row }
}

/// An event whose process and thread come from events of another kernel group.
const fn needing(needed_group: u32, row: ProviderEvent) -> ProviderEvent {
    ProviderEvent { needed_group, ..row }
}

/// An event of the process provider: its task is its id.
const fn process(
    hook: u16,
    id: u16,
    version: u8,
    opcode: u8,
    keyword: u64,
    group: u32,
    conversion: Conversion,
) -> ProviderEvent {
    row(KERNEL_PROCESS, hook, Ids(id, version, id, opcode), keyword, group, conversion)
}

/// An event of the file provider: its task is its id.
const fn file(
    hook: u16,
    id: u16,
    version: u8,
    keyword: u64,
    group: u32,
    conversion: Conversion,
) -> ProviderEvent {
    row(KERNEL_FILE, hook, Ids(id, version, id, 0), keyword, group, conversion)
}

const IPV4: u64 = 0x10;
const IPV6: u64 = 0x20;
const TCP_TASK: u16 = 10;
const UDP_TASK: u16 = 11;

const fn network(
    hook: u16,
    id: u16,
    task: u16,
    opcode: u8,
    keyword: u64,
    conversion: Conversion,
) -> ProviderEvent {
    row(KERNEL_NETWORK, hook, Ids(id, 0, task, opcode), keyword, NETWORK_TCPIP, conversion)
}

const fn disk(hook: u16, id: u16, conversion: Conversion) -> ProviderEvent {
    // A request completes in any thread; the event at its start names the thread that issued it.
    needing(DISK_IO_INIT, row(KERNEL_DISK, hook, Ids(id, 0, 0, 0), 0, DISK_IO, conversion))
}

const fn v6(hook: u16) -> u16 {
    hook::to_ipv6(hook)
}

/// All events. The columns of a row are hook id and event id, then in
/// * `process`: version, opcode, keyword, kernel group, conversion
/// * `file`: version, keyword, kernel group, conversion
/// * `network`: task, opcode, keyword, conversion
/// * `disk`: conversion
static EVENTS: &[ProviderEvent] = &[
    process(hook::PROCESS_START, 1, 3, 1, 0x10, PROCESS, convert::process_start),
    process(hook::PROCESS_END, 2, 2, 2, 0x10, PROCESS, convert::process_stop),
    process(hook::THREAD_START, 3, 1, 1, 0x20, THREAD, convert::thread_start),
    process(hook::THREAD_END, 4, 1, 2, 0x20, THREAD, convert::thread_stop),
    process(hook::IMAGE_LOAD, 5, 0, 0, 0x40, IMAGE_LOAD, convert::image),
    process(hook::IMAGE_UNLOAD, 6, 0, 0, 0x40, IMAGE_LOAD, convert::image),
    rundown(process(hook::PROCESS_DC_START, 15, 1, 0, 0x10, PROCESS, convert::process_start)),
    // The open (`FILE_CREATE`) names the thread.
    needing(FILE_IO_INIT, file(hook::FILE_NAME_CREATE, 10, 0, 0x10, DISK_FILE_IO, convert::unchanged)),
    file(hook::FILE_NAME_DELETE, 11, 0, 0x10, DISK_FILE_IO, convert::unchanged),
    rundown(file(hook::FILE_NAME, 10, 0, 0x10, DISK_FILE_IO, convert::unchanged)),
    file(hook::FILE_CREATE, 12, 1, 0xA0, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_CLEANUP, 13, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_CLOSE, 14, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_READ, 15, 1, 0x120, FILE_IO_INIT, convert::file_transfer),
    file(hook::FILE_WRITE, 16, 1, 0x220, FILE_IO_INIT, convert::file_transfer),
    file(hook::FILE_SET_INFO, 17, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_DELETE, 18, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_RENAME, 19, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_DIR_ENUM, 20, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_FLUSH, 21, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_QUERY_INFO, 22, 1, 0x20, FILE_IO_INIT, convert::unchanged),
    file(hook::FILE_OPERATION_END, 24, 0, 0x60, FILE_IO, convert::unchanged),
    network(hook::TCP_SEND, 10, TCP_TASK, 10, IPV4, convert::network),
    network(hook::TCP_RECEIVE, 11, TCP_TASK, 11, IPV4, convert::network),
    network(hook::TCP_CONNECT, 12, TCP_TASK, 12, IPV4, convert::network),
    network(hook::TCP_DISCONNECT, 13, TCP_TASK, 13, IPV4, convert::network),
    network(hook::TCP_RETRANSMIT, 14, TCP_TASK, 14, IPV4, convert::network),
    network(hook::TCP_ACCEPT, 15, TCP_TASK, 15, IPV4, convert::network),
    network(hook::TCP_RECONNECT, 16, TCP_TASK, 16, IPV4, convert::network),
    network(hook::TCP_FAIL, 17, TCP_TASK, 17, IPV4 | IPV6, convert::unchanged),
    network(v6(hook::TCP_SEND), 26, TCP_TASK, 10, IPV6, convert::network),
    network(v6(hook::TCP_RECEIVE), 27, TCP_TASK, 11, IPV6, convert::network),
    network(v6(hook::TCP_CONNECT), 28, TCP_TASK, 12, IPV6, convert::network),
    network(v6(hook::TCP_DISCONNECT), 29, TCP_TASK, 13, IPV6, convert::network),
    network(v6(hook::TCP_RETRANSMIT), 30, TCP_TASK, 14, IPV6, convert::network),
    network(v6(hook::TCP_ACCEPT), 31, TCP_TASK, 15, IPV6, convert::network),
    network(v6(hook::TCP_RECONNECT), 32, TCP_TASK, 16, IPV6, convert::network),
    network(hook::UDP_SEND, 42, UDP_TASK, 42, IPV4, convert::network),
    network(hook::UDP_RECEIVE, 43, UDP_TASK, 43, IPV4, convert::network),
    network(hook::UDP_FAIL, 49, UDP_TASK, 49, IPV4 | IPV6, convert::unchanged),
    network(v6(hook::UDP_SEND), 58, UDP_TASK, 42, IPV6, convert::network),
    network(v6(hook::UDP_RECEIVE), 59, UDP_TASK, 43, IPV6, convert::network),
    disk(hook::DISK_READ, 10, convert::disk_transfer),
    disk(hook::DISK_WRITE, 11, convert::disk_transfer),
    disk(hook::DISK_FLUSH, 14, convert::disk_flush),
];
