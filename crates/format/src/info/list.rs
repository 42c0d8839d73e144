//! The buffers of EnumerateTraceGuidsEx: providers and groups.

use alloc::vec::Vec;

use super::parse_elements;
use crate::guid::Guid;
use crate::wire::{Put, guid_at};

/// The registration is a classic one (TRACE_PROVIDER_FLAG_LEGACY).
const FLAG_LEGACY: u32 = 1;
/// The provider is enabled but not registered (TRACE_PROVIDER_FLAG_PRE_ENABLE).
const FLAG_PRE_ENABLE: u32 = 2;
/// Size of TRACE_PROVIDER_INSTANCE_INFO in bytes.
const INSTANCE_BYTES: usize = 16;
/// Size of TRACE_ENABLE_INFO in bytes.
const ENABLE_BYTES: usize = 32;

/// A session's enable of a registration or a group (TRACE_ENABLE_INFO, 32 bytes): `00 u32 enabled =
/// 1 │ 04 u8 level │ 05 reserved │ 06 u16 logger id │ 08 u32 property │ 0C reserved │ 10 u64 any │
/// 18 u64 all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnableInfo {
    /// Highest level; 0 for all levels.
    pub level: u8,
    /// The session's logger id.
    pub logger_id: u16,
    /// The properties of the enable, `EVENT_ENABLE_PROPERTY_…` bits.
    pub property: u32,
    /// Keywords of which an event must have one; 0 for all events.
    pub match_any: u64,
    /// Keywords of which an event must have all.
    pub match_all: u64,
}

impl EnableInfo {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(1).put_u8(self.level).put_u8(0).put_u16(self.logger_id);
        out.put_u32(self.property).put_u32(0).put_u64(self.match_any).put_u64(self.match_all);
    }
}

/// A registration (TRACE_PROVIDER_INSTANCE_INFO, 16 bytes): `0 u32 offset of the next │ 4 u32
/// number of enables │ 8 u32 process │ C u32 flags`, then its enables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceInfo {
    /// The id of the registering process; 0 if the provider is not registered.
    pub pid: u32,
    /// Whether RegisterTraceGuids registered the provider.
    pub is_classic: bool,
    /// Whether the provider is enabled but not registered.
    pub is_pre_enabled: bool,
    /// The enables of the registration by sessions.
    pub enables: Vec<EnableInfo>,
}

/// The registrations of a provider (TRACE_GUID_INFO, 8 bytes): `0 u32 count │ 4 reserved`, then
/// each registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuidInfo {
    /// The registrations of the provider.
    pub instances: Vec<InstanceInfo>,
}

impl GuidInfo {
    /// Encodes the buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(saturate_u32(self.instances.len())).put_u32(0);
        for (index, instance) in self.instances.iter().enumerate() {
            let is_last = index.saturating_add(1) == self.instances.len();
            let bytes = INSTANCE_BYTES.saturating_add(ENABLE_BYTES.saturating_mul(instance.enables.len()));
            let next = if is_last { 0 } else { saturate_u32(bytes) };
            let flags = if instance.is_classic { FLAG_LEGACY } else { 0 }
                | if instance.is_pre_enabled { FLAG_PRE_ENABLE } else { 0 };
            out.put_u32(next)
                .put_u32(saturate_u32(instance.enables.len()))
                .put_u32(instance.pid)
                .put_u32(flags);
            instance.enables.iter().for_each(|enable| enable.put(&mut out));
        }
        out
    }
}

/// A provider group: `u32 size of the enables in bytes │ enables │ u32 number of members │ their
/// GUIDs`. The enables begin at offset 4 and are not aligned, as a comment in evntrace.h states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// The enables of the group by sessions.
    pub enables: Vec<EnableInfo>,
    /// The providers that have joined the group.
    pub members: Vec<Guid>,
}

impl GroupInfo {
    /// Encodes the buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(saturate_u32(self.enables.len().saturating_mul(ENABLE_BYTES)));
        self.enables.iter().for_each(|enable| enable.put(&mut out));
        out.put_u32(saturate_u32(self.members.len()));
        out.extend(guids_to_bytes(&self.members));
        out
    }
}

/// Encodes GUIDs as an array.
#[must_use]
pub fn guids_to_bytes(guids: &[Guid]) -> Vec<u8> {
    guids.iter().flat_map(|guid| guid.to_bytes()).collect()
}

/// Parses an array of GUIDs.
#[must_use]
pub fn guids_from_bytes(bytes: &[u8]) -> Vec<Guid> {
    parse_elements(bytes, 16, |guid| guid_at(guid, 0))
}

fn saturate_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
