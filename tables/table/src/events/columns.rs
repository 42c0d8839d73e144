//! The columns of the table `events`.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::column::{list_type, name_type, time_type};

/// A column of the table `events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // `docs/tables.md` describes the columns.
pub enum EventColumn {
    Time,
    Host,
    Provider,
    ProviderId,
    Event,
    Id,
    Version,
    Opcode,
    Task,
    Level,
    Keywords,
    ProcessId,
    Process,
    ThreadId,
    WriterProcessId,
    WriterThreadId,
    Cpu,
    Activity,
    RelatedActivity,
    PayloadBytes,
    Payload,
    Message,
    Stack,
    Functions,
    Undecoded,
    Raw,
}

impl EventColumn {
    /// All columns, in the order of the table.
    pub const ALL: [Self; 26] = [
        Self::Time,
        Self::Host,
        Self::Provider,
        Self::ProviderId,
        Self::Event,
        Self::Id,
        Self::Version,
        Self::Opcode,
        Self::Task,
        Self::Level,
        Self::Keywords,
        Self::ProcessId,
        Self::Process,
        Self::ThreadId,
        Self::WriterProcessId,
        Self::WriterThreadId,
        Self::Cpu,
        Self::Activity,
        Self::RelatedActivity,
        Self::PayloadBytes,
        Self::Payload,
        Self::Message,
        Self::Stack,
        Self::Functions,
        Self::Undecoded,
        Self::Raw,
    ];

    /// Returns the name of the column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Host => "host",
            Self::Provider => "provider",
            Self::ProviderId => "provider_id",
            Self::Event => "event",
            Self::Id => "id",
            Self::Version => "version",
            Self::Opcode => "opcode",
            Self::Task => "task",
            Self::Level => "level",
            Self::Keywords => "keywords",
            Self::ProcessId => "process_id",
            Self::Process => "process",
            Self::ThreadId => "thread_id",
            Self::WriterProcessId => "writer_process_id",
            Self::WriterThreadId => "writer_thread_id",
            Self::Cpu => "cpu",
            Self::Activity => "activity",
            Self::RelatedActivity => "related_activity",
            Self::PayloadBytes => "payload_bytes",
            Self::Payload => "payload",
            Self::Message => "message",
            Self::Stack => "stack",
            Self::Functions => "functions",
            Self::Undecoded => "undecoded",
            Self::Raw => "raw",
        }
    }

    /// Returns the column with a name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Time => time_type(),
            Self::Host
            | Self::Provider
            | Self::ProviderId
            | Self::Event
            | Self::Process
            | Self::Undecoded => name_type(),
            Self::Version | Self::Opcode | Self::Level => DataType::UInt8,
            Self::Id | Self::Task | Self::Cpu => DataType::UInt16,
            Self::ProcessId
            | Self::ThreadId
            | Self::WriterProcessId
            | Self::WriterThreadId
            | Self::PayloadBytes => DataType::UInt32,
            Self::Keywords => DataType::UInt64,
            Self::Activity | Self::RelatedActivity | Self::Payload | Self::Message => DataType::Utf8,
            Self::Stack => list_type(DataType::UInt64),
            Self::Functions => list_type(DataType::Utf8),
            Self::Raw => DataType::Binary,
        }
    }

    fn field(self) -> Field {
        Field::new(self.name(), self.data_type(), true)
    }
}

/// A set of columns of the table `events`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ColumnSet(u32);

impl ColumnSet {
    /// All columns.
    pub const ALL: Self = Self((1 << EventColumn::ALL.len()) - 1);

    /// Returns a set of these columns.
    #[must_use]
    pub fn new(columns: &[EventColumn]) -> Self {
        Self(columns.iter().fold(0, |bits, column| bits | 1 << *column as u8))
    }

    /// Returns whether the set contains a column.
    #[inline]
    #[must_use]
    pub const fn contains(self, column: EventColumn) -> bool {
        self.0 & 1 << column as u8 != 0
    }

    /// Returns the set without a column.
    #[must_use]
    pub const fn without(self, column: EventColumn) -> Self {
        Self(self.0 & !(1 << column as u8))
    }

    /// Returns whether the columns need the fields of events.
    pub(crate) fn needs_fields(self) -> bool {
        [EventColumn::Payload, EventColumn::Message, EventColumn::Undecoded, EventColumn::Raw]
            .iter()
            .any(|column| self.contains(*column))
    }

    /// Returns the columns in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = EventColumn> {
        EventColumn::ALL.into_iter().filter(move |column| self.contains(*column))
    }

    /// Returns the Arrow schema of the columns.
    #[must_use]
    pub fn schema(self) -> SchemaRef {
        Arc::new(Schema::new(self.iter().map(EventColumn::field).collect::<Vec<_>>()))
    }
}

impl fmt::Debug for ColumnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(EventColumn::name)).finish()
    }
}
