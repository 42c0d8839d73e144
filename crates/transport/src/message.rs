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

mod hello;
mod layout;
mod page;
mod provider;
mod session;
pub mod wire;

pub use hello::{Role, VERSIONS, common_version};
pub use page::MAX_PIDS;
pub use provider::{
    EnableCode, EnableEntry, EnableParams, Filter, PROPERTY_INDEPENDENT, ProviderEntry, RegistrationEntry,
};
pub use session::{Control, LostByCause, Properties, SessionConfig, SessionRef, Update};

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests;

use traceweir_format::Guid;
use traceweir_format::spec::enable::MAX_EVENT_FILTERS_COUNT;

use crate::abi::RegionParams;

/// The largest message.
pub const MAX_MESSAGE: usize = 60 * 1024;
/// The most descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 4;
/// The longest session name and file name, in UTF-16 units without the terminator.
pub const MAX_NAME: usize = 1023;

/// The longest name that an enable call gives its provider, in UTF-16 units.
pub const MAX_PROVIDER_NAME: usize = 255;

/// The most filters of one enable call.
pub const MAX_FILTERS: usize = MAX_EVENT_FILTERS_COUNT;
/// The most registrations of one process.
pub const MAX_REGISTRATIONS: usize = 1024;

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
    /// Daemon: a session wants, or no longer wants, some registrations: all that are to be told the same, so that large filters are said once.
    Enable {
        /// To be acknowledged; 0: not.
        order: u32,
        /// Numbers in the process; at most [`MAX_REGISTRATIONS`].
        registrations: Vec<u32>,
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
    /// Daemon: tell a session which modules these registrations live in, by records in its region.
    TellModules {
        /// Numbers in the process; at most [`MAX_REGISTRATIONS`].
        registrations: Vec<u32>,
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
        /// What the provider is called by who asks, at most [`MAX_PROVIDER_NAME`] and no control characters; empty: nothing. Remembered with an
        /// enable, for people.
        name: String,
        /// Wait so long for all processes; 0: do not wait.
        timeout_ms: u32,
    },
    /// Controller: may I enable these? Changes nothing; answered by `Done`, or refused as the enable would be.
    CheckEnables {
        /// Providers and groups.
        providers: Vec<Guid>,
    },
    /// Controller: all providers, page by page.
    QueryProviders {
        /// GUID of the last one that was told, and whether it is a group; none: from the first on.
        after: Option<(Guid, bool)>,
    },
    /// Daemon: the providers behind the one that was named, by their GUIDs, and then the groups.
    Providers {
        /// Others follow.
        more: bool,
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

    /// Controller: set information (TraceSetInformation).
    SetInformation {
        /// Of which session; the id 0 where it is about the system.
        session: SessionRef,
        /// TRACE_INFO_CLASS.
        class: u32,
        /// The buffer of that class.
        data: Vec<u8>,
    },
    /// Controller: record the last branches of a session at kernel events, all of it or nothing (TraceConfigureLastBranchRecord).
    ConfigureBranches {
        /// Of which session.
        session: SessionRef,
        /// Which branches, as the class `TraceLbrConfigurationInfo` says it.
        configuration: u32,
        /// CLASSIC_EVENT_IDs, one after the other.
        events: Vec<u8>,
    },
    /// Controller: query information (TraceQueryInformation). Answered by `Information`.
    QueryInformation {
        /// Of which session; the id 0 where it is about the system.
        session: SessionRef,
        /// TRACE_INFO_CLASS.
        class: u32,
        /// What the buffer said: a profile source or processor.
        input: u32,
    },
    /// Daemon: what was asked for.
    Information {
        /// The buffer of that class.
        data: Vec<u8>,
    },
    /// Controller: kernel events of a session that found no room. Answered by `KernelLosses`.
    QueryKernelLosses {
        /// Of which session.
        session: SessionRef,
    },
    /// Daemon: kernel events that the kernel itself had no room for.
    KernelLosses {
        /// By processor; none where the session receives no kernel events.
        lost: Vec<u64>,
    },
    /// Controller: the registrations of a provider, from this index on.
    QueryRegistrations {
        /// Which.
        provider: Guid,
        /// First index.
        from: u32,
    },
    /// Daemon: registrations from the index asked for.
    Registrations {
        /// Number of all.
        total: u32,
        /// Those that fit.
        registrations: Vec<RegistrationEntry>,
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
