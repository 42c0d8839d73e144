//! Control messages: what providers, controllers, consumers and a daemon say to each other.
//!
//! ```text
//!   provider ──Hello──▶ daemon            controller ──Hello──▶ daemon          consumer ──Hello──▶ daemon
//!            ◀─Welcome─                              ◀─Welcome─                          ◀─Welcome─
//!            ──Register──▶                           ──Start + file──▶                   ──OpenConsumer──▶
//!            ◀─Region + memory, wake─                ◀─Properties─                       ◀─Consumer + queue, cursor, signal─
//!            ◀─Enable (for each session)─            ──EnableProvider──▶                 (closes when done)
//!            ◀─Registered─                           ◀─Done─
//!            ──Ack──▶                                ──Control──▶
//!            ◀─CloseSession─  ──Ack──▶               ◀─Properties─
//!            ◀─PrivateStart, PrivateControl, PrivateEnable─  ──PrivateState──▶
//! ```
//!
//! Everything before `Registered` has been carried out when a registration returns.
//!
//! 1. One packet is one message; a reply carries the number of its request, which is not 0. Orders of a daemon are no requests: they have
//!    number 0, an `Ack` says which were carried out and a `Failed` before it which of those were not.
//! 2. Nothing that was received is trusted: [`wire`] checks that it is a message at all, its receiver whether it has a place.
//! 3. Long lists are asked for page by page ([`Message::sessions_page`], [`Message::providers_page`], [`Message::access_lists_page`]).
//!
//! The bytes are in [`wire`] and `message/layout.rs`; who carries the messages is [`socket`](crate::socket).
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

mod layout;
mod page;
pub mod wire;

pub use page::MAX_PIDS;

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests;

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::spec::enable::MAX_EVENT_FILTERS_COUNT;

use crate::abi::RegionParams;
use crate::error::{Error, Result};

/// The versions of the protocol that this library speaks: lowest, highest.
pub const VERSIONS: (u16, u16) = (1, 1);
/// The largest message.
pub const MAX_MESSAGE: usize = 60 * 1024;
/// The most descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 4;
/// The longest session name and file name, in UTF-16 units without the terminator.
pub const MAX_NAME: usize = 1023;

/// The most filters of one enable call.
pub const MAX_FILTERS: usize = MAX_EVENT_FILTERS_COUNT;
/// The most registrations of one process.
pub const MAX_REGISTRATIONS: usize = 1024;

/// The highest version that both sides speak.
pub fn common_version(theirs: (u16, u16)) -> Result<u16> {
    let version = theirs.1.min(VERSIONS.1);
    if version < theirs.0.max(VERSIONS.0) {
        return Err(Error::Version { theirs, ours: VERSIONS });
    }
    Ok(version)
}

/// Why somebody connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Registers providers and writes events.
    Provider,
    /// Starts, stops and changes sessions.
    Controller,
    /// Reads a live session.
    Consumer,
}

/// Which session is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRef {
    /// By its id.
    Id(u64),
    /// By its name, without regard to case, or by its GUID in text form.
    Name(String),
}

impl SessionRef {
    /// Whether it names no session at all: no session has the id 0, or no name.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Id(id) => *id == 0,
            Self::Name(name) => name.is_empty(),
        }
    }
}

/// What to do with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Say how it is.
    Query,
    /// Collect all, finalise the file, disable all providers.
    Stop,
    /// Change it.
    Update(Update),
    /// Write out what is buffered; a flight recorder writes its snapshot to the file passed along, or to its own.
    Flush {
        /// Name of the file passed along, for the header.
        log_file: Option<PathBuf>,
    },
    /// Say how it was at its end, where it has ended not long ago: by itself, or by whomever.
    Outcome,
    /// A row of files: go on in the next file now (EVENT_TRACE_CONTROL_INCREMENT_FILE).
    Increment,
    /// Finish the file and deliver live from now on (EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME).
    ConvertToRealTime,
}

/// What an update changes; `None` leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Seconds.
    pub flush_timer: Option<u32>,
    /// Buffers at most.
    pub maximum_buffers: Option<u32>,
    /// Real-time delivery on or off.
    pub real_time: Option<bool>,
    /// A new log file; its descriptor comes along.
    pub log_file: Option<PathBuf>,
    /// Kernel event groups, of system sessions only.
    pub enable_flags: Option<u32>,
}

/// A session to be started (EVENT_TRACE_PROPERTIES as far as it is input).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionConfig {
    /// Unique name.
    pub name: String,
    /// Unique GUID; null: one is made.
    pub guid: Guid,
    /// `EVENT_TRACE_…_MODE` bits.
    pub log_file_mode: u32,
    /// Clock: 0 default, 1 counter, 2 system time, 3 cycles.
    pub clock: u32,
    /// KiB; 0: 64.
    pub buffer_size: u32,
    /// Buffers at least.
    pub minimum_buffers: u32,
    /// Buffers at most; 0: minimum + 20.
    pub maximum_buffers: u32,
    /// MiB, or KiB by the mode; 0: no limit.
    pub maximum_file_size: u32,
    /// Seconds; 0: only full buffers (real-time: 1).
    pub flush_timer: u32,
    /// Absolute path of the log file, whose descriptor comes along. For a row of files (`EVENT_TRACE_FILE_MODE_NEWFILE`) the pattern with its `%d`:
    /// the first file comes along, and behind it the folder, as a path descriptor.
    pub log_file: Option<PathBuf>,
    /// Kernel event groups (EnableFlags), of system sessions only.
    pub enable_flags: u32,
    /// Filled buffers before a flush (FlushThreshold); 0: each is written when it is full.
    pub flush_threshold: u32,
    /// V2Options.
    pub options: u64,
    /// Processes that take part in a private session (V2 FilterDesc): by process id and executable name.
    pub filters: Vec<Filter>,
    /// Wake the owner at the first event instead of when a ring fills.
    pub low_latency: bool,
    /// Bytes of one ring in each process; 0: by the buffers.
    pub ring_bytes: u32,
    /// The session is stopped when the connection that started it ends.
    pub tied: bool,
}

/// A session as it is (EVENT_TRACE_PROPERTIES as output, and more counters).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Session id: generation in the upper bits, logger id in the low 16.
    pub id: u64,
    /// Configuration as adjusted.
    pub config: SessionConfig,
    /// Buffers allocated.
    pub number_of_buffers: u32,
    /// Of those, unused.
    pub free_buffers: u32,
    /// Buffers written to the file, the header buffer included.
    pub buffers_written: u32,
    /// Events lost before they reached the session's buffers, or with buffers that could not be written.
    pub events_lost: u64,
    /// Buffers that could not be written to the file.
    pub log_buffers_lost: u32,
    /// Buffers that a live consumer did not get.
    pub real_time_buffers_lost: u32,
    /// Events in those.
    pub real_time_events_lost: u64,
    /// Thread id of the collector.
    pub logger_thread_id: u32,
    /// Events collected into buffers so far.
    pub events: u64,
    /// Why events were lost: by cause, `events_lost` is their sum.
    pub lost_by_cause: LostByCause,
    /// Processes that write to it now.
    pub processes: u32,
    /// Live consumers now.
    pub consumers: u32,
    /// Regions given up because their process broke the rules.
    pub damaged_regions: u32,
    /// Processor time that collecting took, nanoseconds.
    pub collector_ns: u64,
    /// The Win32 status for which the session ended by itself; 0 while it runs or when it was stopped.
    pub end_status: u32,
}

/// Causes of lost events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostByCause {
    /// A ring was full, or the event was larger than the session's buffers; counted by the process.
    pub no_room: u64,
    /// In buffers that could not be written.
    pub not_written: u64,
    /// In regions whose process broke the rules.
    pub damaged: u64,
    /// Of processes for whose rings the session had no memory left.
    pub no_region: u64,
}

impl LostByCause {
    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self { no_room, not_written, damaged, no_region } = *self;
        no_room.saturating_add(not_written).saturating_add(damaged).saturating_add(no_region)
    }
}

/// What an enable call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnableCode {
    /// EVENT_CONTROL_CODE_DISABLE_PROVIDER.
    Disable,
    /// EVENT_CONTROL_CODE_ENABLE_PROVIDER.
    Enable,
    /// EVENT_CONTROL_CODE_CAPTURE_STATE.
    CaptureState,
}

/// One filter of an enable call (EVENT_FILTER_DESCRIPTOR).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// EVENT_FILTER_TYPE_….
    pub kind: u32,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A property from a daemon to a process, beside those that controllers ask for: the session is independent, and neither withholds an event from other
/// sessions nor has it withheld by them.
pub const PROPERTY_INDEPENDENT: u32 = 0x8000_0000;

/// What a session wants from a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableParams {
    /// Highest level; 0: all.
    pub level: u8,
    /// Any of these bits; 0: all.
    pub match_any: u64,
    /// All of these bits.
    pub match_all: u64,
    /// `EVENT_ENABLE_PROPERTY_…`.
    pub property: u32,
    /// Who asks.
    pub source: Guid,
    /// At most [`MAX_FILTERS`].
    pub filters: Vec<Filter>,
}

/// What a session wants of a provider, as a daemon tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableEntry {
    /// The session's id.
    pub session: u64,
    /// Highest level; 0: all.
    pub level: u8,
    /// Any of these keywords; 0: all.
    pub any: u64,
    /// All of these keywords.
    pub all: u64,
    /// `EVENT_ENABLE_PROPERTY_…`.
    pub property: u32,
    /// Types of its filters, `EVENT_FILTER_TYPE_…`; at most [`MAX_FILTERS`].
    pub filters: Vec<u32>,
}

/// A provider as a daemon knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderEntry {
    /// Its GUID.
    pub provider: Guid,
    /// Its name, where its traits give one.
    pub name: String,
    /// Processes that have it registered (empty: enabled ahead).
    pub pids: Vec<u32>,
    /// Sessions that enable it.
    pub sessions: Vec<EnableEntry>,
    /// Groups that registrations of it have joined by their traits.
    pub groups: Vec<Guid>,
    /// Whether this is the GUID of a group: its `pids` are those of the members.
    pub is_group: bool,
    /// Whether its registrations are classic ones.
    pub is_classic: bool,
}

/// Everything that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of whoever connects, or of a provider to which a daemon connected.
    Hello {
        /// Lowest and highest version spoken.
        versions: (u16, u16),
        /// Why.
        role: Role,
        /// A random number for the life of the process's library.
        instance: u64,
        /// Name of the program.
        program: String,
    },
    /// First message of a daemon that connects to a provider: please say hello.
    Knock {
        /// Lowest and highest version spoken.
        versions: (u16, u16),
    },
    /// The answer to `Hello`.
    Welcome {
        /// The version from now on.
        version: u16,
        /// A random number for the life of the daemon.
        daemon: u64,
    },
    /// A request failed, or a connection is refused.
    Refused {
        /// Win32 status.
        status: u32,
        /// For people.
        reason: String,
    },
    /// A request without further answer was carried out.
    Done,

    /// Provider: a registration.
    Register {
        /// Number in the process.
        registration: u32,
        /// GUID.
        provider: Guid,
        /// Traits, if set.
        traits: Vec<u8>,
        /// Registered by RegisterTraceGuids: one session has it at a time, and gets level and flags only.
        classic: bool,
    },
    /// Provider: traits for a registration that came without; it joins the group that they name. All that is enabled there was said when the
    /// answer comes.
    SetTraits {
        /// Number in the process.
        registration: u32,
        /// Traits.
        traits: Vec<u8>,
    },
    /// Provider: it is gone.
    Unregister {
        /// Number in the process.
        registration: u32,
    },
    /// Provider: everything up to this order was carried out.
    Ack {
        /// Number of the order.
        order: u32,
    },
    /// Provider: an order, or a region, could not be carried out. Said before the acknowledgement of that order.
    Failed {
        /// Number of the order; 0 where it has none.
        order: u32,
        /// The registration that is not as it was to be; none where it is the session as a whole.
        registration: Option<u32>,
        /// Session id.
        session: u64,
        /// Win32 status.
        status: u32,
        /// For people.
        reason: String,
    },
    /// Daemon: the registration is known, and all that belongs to it was said.
    Registered {
        /// Number in the process.
        registration: u32,
    },
    /// Daemon: memory for a session; with memory file and wake eventfd.
    Region {
        /// Session id.
        session: u64,
        /// How to use it.
        params: RegionParams,
    },
    /// Daemon: a session wants, or no longer wants, a registration.
    Enable {
        /// To be acknowledged; 0: not.
        order: u32,
        /// Number in the process.
        registration: u32,
        /// Session id.
        session: u64,
        /// What.
        code: EnableCode,
        /// How.
        params: Box<EnableParams>,
    },
    /// Daemon: the session ends; write nothing more to it, then acknowledge.
    CloseSession {
        /// To be acknowledged.
        order: u32,
        /// Session id.
        session: u64,
    },
    /// Daemon: run this private session in your own memory, with your own rights; answered with `PrivateState`.
    PrivateStart {
        /// Repeated in the answer.
        order: u32,
        /// Session id.
        session: u64,
        /// The user who asks for it.
        starter: u32,
        /// The session, with the log file that is this process's.
        config: Box<SessionConfig>,
    },
    /// Daemon: the same to the private session of that id.
    PrivateControl {
        /// Repeated in the answer.
        order: u32,
        /// Session id.
        session: u64,
        /// The user who asks for it.
        asker: u32,
        /// What; files are opened by the process.
        control: Control,
    },
    /// Daemon: the private session wants, or no longer wants, a provider of this process.
    PrivateEnable {
        /// Repeated in the answer.
        order: u32,
        /// Session id.
        session: u64,
        /// Provider.
        provider: Guid,
        /// What.
        code: EnableCode,
        /// How.
        params: Box<EnableParams>,
    },
    /// Provider: what came of an order about a private session.
    PrivateState {
        /// Which order.
        order: u32,
        /// Session id.
        session: u64,
        /// Win32 status; 0: it was carried out.
        status: u32,
        /// For people, where it was not.
        reason: String,
        /// How the session is in this process.
        properties: Box<Properties>,
    },

    /// Controller: start a session; with the log file's descriptor where there is one.
    Start(Box<SessionConfig>),
    /// Controller: control a session; with the new log file's descriptor where one is named.
    Control {
        /// Which.
        session: SessionRef,
        /// What.
        control: Control,
    },
    /// Daemon: the session after what was asked.
    Properties(Box<Properties>),
    /// Controller: all sessions, from this index on.
    QueryAll {
        /// First index.
        from: u32,
    },
    /// Daemon: sessions from the index asked for; `total` of all.
    Sessions {
        /// Number of all.
        total: u32,
        /// Those that fit.
        sessions: Vec<Properties>,
    },
    /// Controller: sessions that have ended, the latest first, from this index on. Answered by `Sessions`.
    QueryEnded {
        /// First index.
        from: u32,
    },
    /// Controller: enable, disable or ask for state.
    EnableProvider {
        /// Which session.
        session: SessionRef,
        /// Provider.
        provider: Guid,
        /// What.
        code: EnableCode,
        /// How.
        params: Box<EnableParams>,
        /// Wait so long for all processes; 0: do not wait.
        timeout_ms: u32,
    },
    /// Controller: all providers, from this index on.
    QueryProviders {
        /// First index.
        from: u32,
    },
    /// Daemon: providers from the index asked for.
    Providers {
        /// Number of all.
        total: u32,
        /// Those that fit.
        providers: Vec<ProviderEntry>,
    },
    /// Controller: change who may do what with a session, provider or group (EventAccessControl).
    SetAccess {
        /// Session, provider or group.
        object: Guid,
        /// EVENTSECURITYOPERATION: 0 set DACL, 1 set SACL, 2 add DACL, 3 add SACL.
        operation: u32,
        /// Whom it concerns, as the bytes of a SID.
        sid: Vec<u8>,
        /// WMIGUID_… and TRACELOG_….
        rights: u32,
        /// Granted or denied.
        allow: bool,
    },
    /// Controller: who may do what (EventAccessQuery).
    QueryAccess {
        /// Session, provider or group.
        object: Guid,
    },
    /// Daemon: the self-relative security descriptor that holds.
    Access {
        /// Its bytes.
        descriptor: Vec<u8>,
    },
    /// Controller: the default holds again (EventAccessRemove).
    RemoveAccess {
        /// Session, provider or group.
        object: Guid,
    },

    /// Controller: what has a list of its own, from this index on.
    QueryAccessLists {
        /// First index.
        from: u32,
    },
    /// Daemon: sessions, providers and groups with a list of their own, from the index asked for.
    AccessLists {
        /// Number of all.
        total: u32,
        /// Those that fit.
        objects: Vec<Guid>,
    },

    /// Consumer: read a live session.
    OpenConsumer {
        /// Which.
        session: SessionRef,
    },
    /// Daemon: the queue; with queue, cursor and signal.
    Consumer {
        /// The session.
        properties: Box<Properties>,
        /// Slots of the queue.
        slots: u32,
        /// Bytes of a slot.
        buffer_bytes: u32,
        /// The valid bytes of the log-file header buffer: clock, names, machine.
        header: Vec<u8>,
    },
}
