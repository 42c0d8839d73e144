//! Control messages between providers, controllers, consumers and a daemon.
//!
//! ```text
//!   provider ──Hello──▶ daemon      controller ──Hello──▶ daemon   consumer ──Hello──▶ daemon
//!            ◀─Welcome─                        ◀─Welcome─                   ◀─Welcome─
//!            ──Register──▶                     ──Start + file──▶            ──OpenConsumer──▶
//!            ◀─Region + memory, wake─          ◀─Properties─                ◀─Consumer + queue,
//!            ◀─Enable (for each session)─      ──EnableProvider──▶            cursor, signal─
//!            ◀─Registered─                     ◀─Done─                      (closes when done)
//!            ──Ack──▶                          ──Control──▶
//!            ◀─CloseSession─  ──Ack──▶         ◀─Properties─
//!            ◀─PrivateStart, PrivateControl, PrivateEnable─  ──PrivateState──▶
//! ```
//!
//! When a registration call returns, the process has carried out every order that the daemon sent
//! before `Registered`.
//!
//! 1. One packet is one message. A reply carries the number of its request, which is not 0. Orders
//!    of a daemon are not requests: their request number is 0. An order that must be acknowledged
//!    has an order number. An `Ack` confirms all orders up to a number. Before it, the process
//!    sends a `Failed` for each order that it could not carry out.
//! 2. Received data is not trusted: [`wire`] checks whether it is a message, and the receiver
//!    checks whether the message is expected.
//! 3. Long lists are requested page by page ([`Message::sessions_page`],
//!    [`Message::providers_page`], [`Message::registrations_page`],
//!    [`Message::access_lists_page`]).
//!
//! The encoding is in [`wire`] and `message/layout.rs`; [`socket`](crate::socket) carries the
//! messages.
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
pub use session::{
    Control, LostByCause, MAX_PROCESS_TREES, ProcessTree, Properties, SessionConfig, SessionRef, Update,
};

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests;

use traceweir_format::Guid;
use traceweir_format::spec::enable::MAX_EVENT_FILTERS_COUNT;

use crate::abi::RegionParams;

/// Size of the largest message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 60 * 1024;
/// Largest number of descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 4;
/// Length of the longest session name and file name, in UTF-16 units without the terminator.
pub const MAX_NAME_UNITS: usize = 1023;

/// Length of the longest provider name in an enable call, in UTF-16 units.
pub const MAX_PROVIDER_NAME_UNITS: usize = 255;

/// Largest number of filters of one enable call.
pub const MAX_FILTERS: usize = MAX_EVENT_FILTERS_COUNT;
/// Largest number of registrations of one process.
pub const MAX_REGISTRATIONS: usize = 1024;

/// A control message. The comments of the variants after `Done` begin with the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of a client that connects, or of a provider to which a daemon connected.
    Hello {
        /// Lowest and highest supported protocol version.
        versions: (u16, u16),
        /// Role of the client.
        role: Role,
        /// Random number that identifies the library in this process.
        instance: u64,
        /// Name of the program.
        program: String,
    },
    /// First message of a daemon that connects to a provider: asks for `Hello`.
    Knock {
        /// Lowest and highest supported protocol version.
        versions: (u16, u16),
    },
    /// Answer to `Hello`.
    Welcome {
        /// Protocol version from now on.
        version: u16,
        /// Random number that identifies the daemon.
        daemon: u64,
    },
    /// A request failed, or a connection is refused.
    Refused {
        /// Win32 status of the failure.
        status: u32,
        /// Reason, as text for people.
        reason: String,
    },
    /// Answer to a request that returns no data.
    Done,

    /// Provider: registers a provider.
    Register {
        /// Number of the registration in the process.
        registration: u32,
        /// GUID of the provider.
        provider: Guid,
        /// Provider traits, if set.
        traits: Vec<u8>,
        /// Whether RegisterTraceGuids registered it: only one session at a time can enable it, and
        /// only with a level and flags.
        classic: bool,
    },
    /// Provider: sets the traits of a registration that had none; the registration joins the group
    /// that the traits name. The daemon sends the enables of the group before the answer.
    SetTraits {
        /// Number of the registration in the process.
        registration: u32,
        /// Traits to set (EventSetInformation).
        traits: Vec<u8>,
    },
    /// Provider: removes a registration.
    Unregister {
        /// Number of the registration in the process.
        registration: u32,
    },
    /// Provider: confirms all orders up to `order`.
    Ack {
        /// Number of the order.
        order: u32,
    },
    /// Provider: reports that an order failed, or that a region could not be used. Sent before the
    /// acknowledgement of that order.
    Failed {
        /// Number of the order; 0 for a region or an order without a number.
        order: u32,
        /// The registration that the failure concerns; `None` if it concerns the entire session.
        registration: Option<u32>,
        /// Id of the session.
        session: u64,
        /// Win32 status of the failure.
        status: u32,
        /// Reason, as text for people.
        reason: String,
    },
    /// Daemon: confirms a registration, after the regions and enables of the registration.
    Registered {
        /// Number of the registration in the process.
        registration: u32,
    },
    /// Daemon: provides the memory for a session, with the descriptors of the memory file and the
    /// wake eventfd. A provider sends this message with memory that the provider created itself,
    /// for the daemon to adopt.
    Region {
        /// Id of the session.
        session: u64,
        /// Layout and use of the memory.
        params: RegionParams,
    },
    /// Daemon: enables or disables registrations for a session. One message names all registrations
    /// that get the same parameters, so that large filters are sent once.
    Enable {
        /// Number to acknowledge; 0 for none.
        order: u32,
        /// Numbers of the registrations in the process; at most [`MAX_REGISTRATIONS`].
        registrations: Vec<u32>,
        /// Id of the session.
        session: u64,
        /// Enable, disable or capture state.
        code: EnableCode,
        /// Level, keywords, properties and filters.
        params: Box<EnableParams>,
    },
    /// Daemon: ends a session; the process stops writing to it, then acknowledges.
    CloseSession {
        /// Number to acknowledge.
        order: u32,
        /// Id of the session.
        session: u64,
    },
    /// Daemon: asks for records in a session's region that name the modules of these registrations.
    ReportModules {
        /// Numbers of the registrations in the process; at most [`MAX_REGISTRATIONS`].
        registrations: Vec<u32>,
        /// Id of the session.
        session: u64,
    },
    /// Daemon: starts a private session inside the process, which uses its own memory and
    /// privileges for it. Answered with `PrivateState`.
    PrivateStart {
        /// Number of the order, which the answer repeats.
        order: u32,
        /// Id of the session.
        session: u64,
        /// Id of the user who starts the session.
        starter: u32,
        /// Configuration of the session, with the log file of this process.
        config: Box<SessionConfig>,
    },
    /// Daemon: controls a private session.
    PrivateControl {
        /// Number of the order, which the answer repeats.
        order: u32,
        /// Id of the session.
        session: u64,
        /// Id of the user who requests the operation.
        user: u32,
        /// The operation; the process opens files itself.
        control: Control,
    },
    /// Daemon: enables or disables a provider of this process for a private session.
    PrivateEnable {
        /// Number of the order, which the answer repeats.
        order: u32,
        /// Id of the session.
        session: u64,
        /// GUID of the provider.
        provider: Guid,
        /// Enable, disable or capture state.
        code: EnableCode,
        /// Level, keywords, properties and filters.
        params: Box<EnableParams>,
    },
    /// Provider: reports the result of an order about a private session.
    PrivateState {
        /// Number of the order.
        order: u32,
        /// Id of the session.
        session: u64,
        /// Win32 status; 0 if the order was carried out.
        status: u32,
        /// Reason of a failure, as text for people.
        reason: String,
        /// State of the session in this process.
        properties: Box<Properties>,
    },

    /// Controller: starts a session; with the descriptor of the log file, if the session has one.
    Start(Box<SessionConfig>),
    /// Controller: controls a session; with the descriptor of the new log file, if the operation
    /// names one.
    Control {
        /// The session to operate on.
        session: SessionRef,
        /// The operation on the session.
        control: Control,
    },
    /// Daemon: returns the state of the session after the request.
    Properties(Box<Properties>),
    /// Controller: queries all sessions, from this index on.
    QueryAll {
        /// Index of the first entry.
        from: u32,
    },
    /// Daemon: returns sessions from the requested index on.
    Sessions {
        /// Total number of entries.
        total: u32,
        /// Entries that fit into the message.
        sessions: Vec<Properties>,
    },
    /// Controller: queries sessions that have ended, the latest first, from this index on. Answered
    /// by `Sessions`.
    QueryEnded {
        /// Index of the first entry.
        from: u32,
    },
    /// Controller: enables or disables a provider, or requests its state.
    EnableProvider {
        /// The session to operate on.
        session: SessionRef,
        /// GUID of the provider or, with `EVENT_ENABLE_PROPERTY_PROVIDER_GROUP`, of the group.
        provider: Guid,
        /// Enable, disable or capture state.
        code: EnableCode,
        /// Level, keywords, properties and filters.
        params: Box<EnableParams>,
        /// Name of the provider as the caller knows it: at most [`MAX_PROVIDER_NAME_UNITS`] units,
        /// without control characters; may be empty. The daemon stores it with the enable.
        name: String,
        /// Time to wait until all processes have acknowledged, in milliseconds; 0 for no wait.
        timeout_ms: u32,
    },
    /// Controller: checks whether the caller may enable these providers. Changes nothing; answered
    /// by `Done`, or refused as the enable would be.
    CheckEnables {
        /// Providers and groups to check.
        providers: Vec<Guid>,
    },
    /// Controller: queries all providers, page by page.
    QueryProviders {
        /// GUID of the last entry of the previous page, and whether it is a group; none for the
        /// first page.
        after: Option<(Guid, bool)>,
    },
    /// Daemon: returns the entries after the one that the request names: the providers in the order
    /// of their GUIDs, then the groups.
    Providers {
        /// Whether more entries follow.
        more: bool,
        /// Entries that fit into the message.
        providers: Vec<ProviderEntry>,
    },
    /// Controller: changes the access rights of a session, provider or group (EventAccessControl).
    SetAccess {
        /// GUID of the session, provider or group.
        object: Guid,
        /// EVENTSECURITYOPERATION: 0 set DACL, 1 set SACL, 2 add DACL, 3 add SACL.
        operation: u32,
        /// SID of the trustee, in binary form.
        sid: Vec<u8>,
        /// Access mask of WMIGUID_… and TRACELOG_… bits.
        rights: u32,
        /// Whether the rights are granted instead of denied.
        allow: bool,
    },
    /// Controller: queries access rights (EventAccessQuery).
    QueryAccess {
        /// GUID of the session, provider or group.
        object: Guid,
    },
    /// Daemon: returns the effective security descriptor, self-relative.
    Access {
        /// The security descriptor in binary form.
        descriptor: Vec<u8>,
    },
    /// Controller: restores default access rights (EventAccessRemove).
    RemoveAccess {
        /// GUID of the session, provider or group.
        object: Guid,
    },

    /// Controller: queries the objects with their own access list, from this index on.
    QueryAccessLists {
        /// Index of the first entry.
        from: u32,
    },
    /// Daemon: returns sessions, providers and groups with their own access list, from the
    /// requested index on.
    AccessLists {
        /// Total number of entries.
        total: u32,
        /// Entries that fit into the message.
        objects: Vec<Guid>,
    },

    /// Controller: sets information (TraceSetInformation).
    SetInformation {
        /// The session; id 0 for the system.
        session: SessionRef,
        /// Information class (TRACE_INFO_CLASS).
        class: u32,
        /// The buffer of that class.
        data: Vec<u8>,
    },
    /// Controller: configures the kernel events at which a session gets last branch records. A
    /// failed request changes nothing (TraceConfigureLastBranchRecord).
    ConfigureBranches {
        /// The session to operate on.
        session: SessionRef,
        /// Kinds of branches, as in the class `TraceLbrConfigurationInfo`.
        configuration: u32,
        /// CLASSIC_EVENT_IDs, one after the other.
        events: Vec<u8>,
    },
    /// Controller: queries information (TraceQueryInformation). Answered by `Information`.
    QueryInformation {
        /// The session; id 0 for the system.
        session: SessionRef,
        /// Information class (TRACE_INFO_CLASS).
        class: u32,
        /// Input value of the buffer: a profile source or CPU.
        input: u32,
    },
    /// Daemon: returns the requested information.
    Information {
        /// The buffer of that class.
        data: Vec<u8>,
    },
    /// Controller: queries lost kernel events of a session. Answered by `KernelLosses`.
    QueryKernelLosses {
        /// The session to operate on.
        session: SessionRef,
    },
    /// Daemon: returns the kernel events that did not fit into the kernel's buffers.
    KernelLosses {
        /// Number of lost events per CPU; empty if the session receives no kernel events.
        lost: Vec<u64>,
    },
    /// Controller: queries the registrations of a provider, from this index on.
    QueryRegistrations {
        /// GUID of the provider.
        provider: Guid,
        /// Index of the first entry.
        from: u32,
    },
    /// Daemon: returns registrations from the requested index on.
    Registrations {
        /// Total number of entries.
        total: u32,
        /// Entries that fit into the message.
        registrations: Vec<RegistrationEntry>,
    },

    /// Consumer: opens a live session.
    OpenConsumer {
        /// The session to operate on.
        session: SessionRef,
    },
    /// Daemon: returns the queue of a live session; with queue, cursor and signal descriptors.
    Consumer {
        /// State of the session.
        properties: Box<Properties>,
        /// Slots of the queue.
        slots: u32,
        /// Bytes of a slot.
        buffer_bytes: u32,
        /// Valid bytes of the log-file header buffer: clock, names, machine.
        header: Vec<u8>,
    },
}
