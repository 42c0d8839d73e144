//! A decoded event.

use std::sync::Arc;

use traceweir_decode::Undecoded;
use traceweir_format::Guid;
use traceweir_format::spec::event::{EventDescriptor, Keywords};
use traceweir_format::time::FileTime;

use super::{Field, Value};
use crate::error::{Error, Result};
use crate::tracelogging::{Level, Opcode};

/// An event with its fields, which [`Trace::decoded`](crate::Trace::decoded) delivers.
#[derive(Clone, Debug)]
pub struct DecodedEvent {
    pub(super) time: FileTime,
    pub(super) provider: Guid,
    pub(super) provider_name: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) descriptor: EventDescriptor,
    pub(super) process_id: u32,
    pub(super) thread_id: u32,
    pub(super) cpu: u16,
    pub(super) activity: Option<Guid>,
    pub(super) trace: usize,
    pub(super) fields: Vec<Field>,
    pub(super) undecoded: Option<Undecoded>,
    pub(super) payload: Vec<u8>,
}

impl DecodedEvent {
    /// Returns the wall time of the event.
    #[must_use]
    pub fn time(&self) -> FileTime {
        self.time
    }

    /// Returns the name of the provider. If it is unknown, returns its GUID as text, or `Windows
    /// Kernel` for a kernel event.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider_name
    }

    /// Returns the GUID of the provider, or the class GUID of a classic event.
    #[must_use]
    pub fn provider_guid(&self) -> Guid {
        self.provider
    }

    /// Returns the name of the event, or `Event` and its id if it has no known name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of the event within its provider; 0 for self-describing events.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.descriptor.id
    }

    /// Returns the level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.descriptor.level.into()
    }

    /// Returns the opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        self.descriptor.opcode.into()
    }

    /// Returns the keywords.
    #[must_use]
    pub fn keywords(&self) -> Keywords {
        Keywords::new(self.descriptor.keyword)
    }

    /// Returns the descriptor: id, version, channel, level, opcode, task and keywords.
    #[must_use]
    pub fn descriptor(&self) -> &EventDescriptor {
        &self.descriptor
    }

    /// Returns the id of the process that wrote the event; `u32::MAX` if the record has none.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Returns the id of the thread that wrote the event; `u32::MAX` if the record has none.
    #[must_use]
    pub fn thread_id(&self) -> u32 {
        self.thread_id
    }

    /// Returns the number of the processor on which the event was written.
    #[must_use]
    pub fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Returns the activity that the event belongs to.
    #[must_use]
    pub fn activity(&self) -> Option<Guid> {
        self.activity
    }

    /// Returns the index of the trace that the event comes from.
    #[must_use]
    pub fn trace(&self) -> usize {
        self.trace
    }

    /// Returns the fields in the order of the payload.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the value of a field, the first if several have this name.
    ///
    /// Fails with [`Error::NoField`] if the event has no such field, and with
    /// [`Error::Undecoded`] if the event could not be decoded, or only up to a field before this
    /// one.
    pub fn field(&self, name: &str) -> Result<&Value> {
        match self.fields.iter().find(|field| field.name() == name) {
            Some(field) => Ok(field.value()),
            None => Err(self.undecoded.clone().map_or_else(
                || Error::NoField { event: self.name.to_string(), field: name.to_owned() },
                Error::Undecoded,
            )),
        }
    }

    /// Returns the value of a field as a number, `bool`, `String`, [`Guid`] or [`FileTime`].
    ///
    /// Fails like [`field`](Self::field), and with [`Error::ValueType`] if the value is of another
    /// type.
    pub fn get<'e, T: TryFrom<&'e Value, Error = Error>>(&'e self, name: &str) -> Result<T> {
        T::try_from(self.field(name)?)
    }

    /// Returns why the event has no decoded fields, or not all of them.
    #[must_use]
    pub fn undecoded(&self) -> Option<&Undecoded> {
        self.undecoded.as_ref()
    }

    /// Returns the bytes of the payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}
