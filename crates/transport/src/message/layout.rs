//! The fields of each message in the order of their bytes, listed once for encoding and decoding.
//!
//! A struct is its fields one after the other. An enum is a number followed by the fields of that
//! variant. The number is a `u8`, except for messages, where it is the kind in the header. Numbers
//! and field orders never change within a version of the protocol. `Hello`, `Knock` and `Refused`
//! keep theirs in all versions, because they are sent before a version is agreed on.

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::wire::Cursor;

use super::wire::{ListEntry, Wire, WireResult};
use super::{
    Control, EnableCode, EnableEntry, EnableParams, Filter, LostByCause, MAX_FILTERS, Message, Properties,
    ProviderEntry, RegistrationEntry, Role, SessionConfig, SessionRef, Update,
};
use crate::abi::{Layout, RegionParams};
use crate::clock::Counter;

/// Implements `Wire` for a struct: its fields in this order.
macro_rules! fields {
    ($($name:ident { $($field:ident: $type:ty,)* })*) => {$(
        impl Wire for $name {
            const MIN_BYTES: usize = 0 $(+ <$type>::MIN_BYTES)*;
            fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
                $(<$type>::put(&self.$field, out)?;)*
                Ok(())
            }
            fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
                Ok(Self { $($field: <$type>::get(from)?,)* })
            }
        }
    )*};
}

/// Implements `Wire` for a tuple: its members in order.
macro_rules! tuple {
    ($($part:tt: $type:ty),*) => {
        impl Wire for ($($type,)*) {
            const MIN_BYTES: usize = 0 $(+ <$type>::MIN_BYTES)*;
            fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
                $(<$type>::put(&self.$part, out)?;)*
                Ok(())
            }
            fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
                Ok(($(<$type>::get(from)?,)*))
            }
        }
    };
}

/// Implements `Wire` for an enum without fields: the number of the variant.
macro_rules! codes {
    ($($name:ident { $($number:literal $case:ident,)* })*) => {$(
        impl Wire for $name {
            const MIN_BYTES: usize = 1;
            fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
                let number: u8 = match self { $(Self::$case => $number,)* };
                number.put(out)
            }
            fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
                match from.u8()? {
                    $($number => Ok(Self::$case),)*
                    _ => Err(from.invalid(concat!("no such ", stringify!($name)))),
                }
            }
        }
    )*};
}

/// Implements the kind, the encoding and the decoding of each message.
macro_rules! messages {
    ($($kind:literal $case:ident $({ $($field:ident),* })? $(($value:ident))?,)*) => {
        impl Message {
            /// Returns the number of the message's kind, as in the header.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self { $(messages!(@any $case $({ $($field),* })? $(($value))?) => $kind,)* }
            }

            pub(super) fn put_body(&self, out: &mut Vec<u8>) -> WireResult<()> {
                match self {
                    $(Self::$case $({ $($field),* })? $(($value))? => {
                        $($($field.put(out)?;)*)?
                        $($value.put(out)?;)?
                    })*
                }
                Ok(())
            }

            /// Decodes a body; `None` for an unknown kind.
            pub(super) fn get_body(kind: u16, from: &mut Cursor<'_>) -> WireResult<Option<Self>> {
                Ok(Some(match kind {
                    $($kind => {
                        $($(let $field = Wire::get(from)?;)*)?
                        $(let $value = Wire::get(from)?;)?
                        Self::$case $({ $($field),* })? $(($value))?
                    })*
                    _ => return Ok(None),
                }))
            }
        }
    };
    (@any $case:ident { $($field:ident),* }) => { Self::$case { .. } };
    (@any $case:ident ($value:ident)) => { Self::$case(_) };
    (@any $case:ident) => { Self::$case };
}

messages! {
    0x01 Hello { versions, role, instance, program },
    0x02 Knock { versions },
    0x03 Welcome { version, daemon },
    0x04 Refused { status, reason },
    0x05 Done,

    0x10 Register { registration, provider, traits, classic },
    0x11 Unregister { registration },
    0x12 Ack { order },
    0x13 Registered { registration },
    0x14 Region { session, params },
    0x15 Enable { order, registrations, session, code, params },
    0x16 CloseSession { order, session },
    0x17 Failed { order, registration, session, status, reason },
    0x18 SetTraits { registration, traits },
    0x19 ReportModules { registrations, session },
    0x1C PrivateStart { order, session, starter, config },
    0x1D PrivateControl { order, session, user, control },
    0x1E PrivateEnable { order, session, provider, code, params },
    0x1F PrivateState { order, session, status, reason, properties },

    0x20 Start(config),
    0x21 Control { session, control },
    0x22 Properties(properties),
    0x23 QueryAll { from },
    0x24 Sessions { total, sessions },
    0x25 EnableProvider { session, provider, code, params, name, timeout_ms },
    0x26 QueryProviders { after },
    0x27 Providers { more, providers },
    0x28 SetAccess { object, operation, sid, rights, allow },
    0x29 QueryAccess { object },
    0x2A Access { descriptor },
    0x2B RemoveAccess { object },
    0x2C QueryAccessLists { from },
    0x2D AccessLists { total, objects },
    0x2E QueryEnded { from },
    0x2F CheckEnables { providers },

    0x30 OpenConsumer { session },
    0x31 Consumer { properties, slots, buffer_bytes, header },

    0x40 SetInformation { session, class, data },
    0x41 QueryInformation { session, class, input },
    0x42 Information { data },
    0x43 QueryRegistrations { provider, from },
    0x44 Registrations { total, registrations },
    0x45 ConfigureBranches { session, configuration, events },
    0x46 QueryKernelLosses { session },
    0x47 KernelLosses { lost },
}

codes! {
    Role { 1 Provider, 2 Controller, 3 Consumer, }
    EnableCode { 0 Disable, 1 Enable, 2 CaptureState, }
}

tuple!(0: u16, 1: u16);
tuple!(0: Guid, 1: bool);

fields! {
    Update {
        flush_timer: Option<u32>, maximum_buffers: Option<u32>, real_time: Option<bool>, log_file: Option<PathBuf>,
        enable_flags: Option<u32>,
    }
    SessionConfig {
        name: String, guid: Guid, log_file_mode: u32, clock: u32, buffer_size: u32, minimum_buffers: u32,
        maximum_buffers: u32, maximum_file_size: u32, flush_timer: u32, log_file: Option<PathBuf>, enable_flags: u32,
        flush_threshold: u32, options: u64, filters: Vec<Filter>, low_latency: bool, ring_bytes: u32, tied: bool,
        stack_bytes: u32, kernel_stacks: Vec<u8>,
    }
    Properties {
        id: u64, config: SessionConfig, number_of_buffers: u32, free_buffers: u32, buffers_written: u32, events_lost: u64,
        log_buffers_lost: u32, real_time_buffers_lost: u32, real_time_events_lost: u64, logger_thread_id: u32,
        events: u64, lost_by_cause: LostByCause, processes: u32, consumers: u32, damaged_regions: u32,
        uncounted_processes: u32, collector_ns: u64, end_status: u32, overwritten_buffers: u32,
    }
    LostByCause { no_room: u64, not_written: u64, damaged: u64, no_region: u64, kernel: u64, overwritten: u64, }
    Filter { kind: u32, data: Vec<u8>, }
    EnableParams { level: u8, match_any: u64, match_all: u64, property: u32, source: Guid, filters: Vec<Filter>, }
    EnableEntry {
        session: u64, level: u8, any: u64, all: u64, property: u32, filters: Vec<Filter>, name: String, traced: u32,
        left_out: u32,
    }
    ProviderEntry {
        provider: Guid, name: String, pids: Vec<u32>, sessions: Vec<EnableEntry>, privates: Vec<EnableEntry>, groups: Vec<Guid>, is_group: bool,
        is_classic: bool, contained: Vec<u32>,
    }
    RegistrationEntry { pid: u32, is_pre_enabled: bool, is_classic: bool, sessions: Vec<EnableEntry>, }
}

impl ListEntry for u32 {}
impl ListEntry for u64 {}
impl ListEntry for Guid {}
impl ListEntry for EnableEntry {}
impl ListEntry for Properties {}
impl ListEntry for ProviderEntry {}
impl ListEntry for RegistrationEntry {}
impl ListEntry for Filter {
    const MAX_ENTRIES: usize = MAX_FILTERS;
}

impl Wire for SessionRef {
    // Kind, and the length of an empty name.
    const MIN_BYTES: usize = 3;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        match self {
            Self::Id(id) => (1_u8.put(out)?, id.put(out)?),
            Self::Name(name) => (2_u8.put(out)?, name.put(out)?),
        };
        Ok(())
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        match from.u8()? {
            1 => Wire::get(from).map(Self::Id),
            2 => Wire::get(from).map(Self::Name),
            _ => Err(from.invalid("no such kind of session reference")),
        }
    }
}

impl Wire for Control {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        match self {
            Self::Query => 0_u8.put(out),
            Self::Stop => 1_u8.put(out),
            Self::Update(update) => 2_u8.put(out).and_then(|()| update.put(out)),
            Self::Flush { log_file } => 3_u8.put(out).and_then(|()| log_file.put(out)),
            Self::Outcome => 4_u8.put(out),
            Self::Increment => 5_u8.put(out),
            Self::ConvertToRealTime => 6_u8.put(out),
        }
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        match from.u8()? {
            0 => Ok(Self::Query),
            1 => Ok(Self::Stop),
            2 => Wire::get(from).map(Self::Update),
            3 => Ok(Self::Flush { log_file: Wire::get(from)? }),
            4 => Ok(Self::Outcome),
            5 => Ok(Self::Increment),
            6 => Ok(Self::ConvertToRealTime),
            _ => Err(from.invalid("no such control")),
        }
    }
}

/// Encodes `version` u32, `cpus` u16, `ring_bytes` u32, `clock` u32, `wake_at` u32 and `max_record`
/// u32. A region of another version is still a valid message: its receiver rejects the region, and
/// the connection continues.
impl Wire for RegionParams {
    const MIN_BYTES: usize = 22;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        self.layout.version().put(out)?;
        self.layout.cpus().put(out)?;
        self.layout.ring_bytes().put(out)?;
        (self.clock as u32).put(out)?;
        self.wake_at.put(out)?;
        self.max_record.put(out)
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        let (version, cpus, ring_bytes) = (from.u32()?, from.u16()?, from.u32()?);
        let layout = Layout::with_version(version, cpus, ring_bytes)
            .map_err(|_| from.invalid("no region can have this layout"))?;
        let clock = Counter::from_number(from.u32()?).map_err(|_| from.invalid("no such counter"))?;
        Ok(Self { layout, clock, wake_at: from.u32()?, max_record: from.u32()? })
    }
}
