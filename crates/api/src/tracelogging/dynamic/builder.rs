//! A builder for events at run time, reused for one event after the other.

use std::marker::PhantomData;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::{FieldMetadata, MetadataBuilder};

use super::super::macros::descriptor;
use super::super::types::{Channel, InType, Level, Opcode, OutType};
use super::super::values::{Id, Plain, append_any, bytes, counted, counted_size, sid, until_zero};
use super::ProviderWithId;
use crate::event::{Block, Blocks};

/// Builds an event: [`reset`](Self::reset), then fields, then [`write`](Self::write).
///
/// The metadata and the data of an event are two byte sequences; every `add_…` appends to both. The
/// order of the calls is the order of the fields, and a structure comes before its members.
pub type EventBuilder = EventBuilderWithId<Guid>;

/// A builder of events, for programs with their own GUID type `G`.
#[derive(Debug)]
pub struct EventBuilderWithId<G> {
    metadata: MetadataBuilder,
    data: Vec<u8>,
    descriptor: EventDescriptor,
    ids: PhantomData<fn() -> G>,
}

impl<G: Id> EventBuilderWithId<G> {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::new_with_capacity(256, 256)
    }

    /// Creates a builder with space for this many bytes of metadata and data; it grows if needed.
    pub fn new_with_capacity(metadata: u16, data: u16) -> Self {
        let mut builder = MetadataBuilder::new("", 0);
        builder.reserve(usize::from(metadata));
        let descriptor = EventDescriptor::default();
        let data = Vec::with_capacity(usize::from(data));
        Self { metadata: builder, data, descriptor, ids: PhantomData }
    }

    /// Starts another event: channel `TraceLogging`, opcode `Info`, no id, version or task. The tag
    /// has 28 bits; the name ends at its first NUL.
    pub fn reset(&mut self, name: &str, level: Level, keyword: u64, tag: u32) -> &mut Self {
        self.metadata.reset(name, tag);
        self.data.clear();
        self.descriptor = descriptor(0, 0, Channel::TraceLogging, level, Opcode::Info, 0, keyword);
        self
    }

    /// Writes the event to the sessions that want it and returns a Win32 status.
    ///
    /// Returns ERROR_ARITHMETIC_OVERFLOW for metadata of more than 65,535 bytes, and
    /// ERROR_INVALID_HANDLE for an unregistered provider. The event may be written again, also
    /// after more fields were added.
    pub fn write(&mut self, provider: &ProviderWithId<G>, activity: Option<&G>, related: Option<&G>) -> u32 {
        let Ok(metadata) = self.metadata.finish_raw() else {
            return Status::ERROR_ARITHMETIC_OVERFLOW.0;
        };
        let (context, descriptor) = (&provider.context, &self.descriptor);
        // The macros check this before they write; the caller of a builder need not.
        if context.handle() != 0 && !context.enabled(Level::from_int(descriptor.level), descriptor.keyword) {
            return Status::ERROR_SUCCESS.0;
        }
        let [activity, related] = [activity, related].map(|id| id.map(|id| (*id).into()));
        let blocks = [Block::new(&self.data)];
        context.write(descriptor, metadata, activity.as_ref(), related.as_ref(), Blocks::new(&blocks))
    }

    /// Returns the metadata as it will be written; `None` above 65,535 bytes.
    pub fn raw_meta(&mut self) -> Option<&[u8]> {
        self.metadata.finish_raw().ok()
    }

    /// Returns the data as it will be written.
    pub fn raw_data(&self) -> &[u8] {
        &self.data
    }

    /// Sets an explicit id, and the version of its layout.
    pub fn id_version(&mut self, id: u16, version: u8) -> &mut Self {
        self.descriptor.id = id;
        self.descriptor.version = version;
        self
    }

    /// Sets the channel.
    pub fn channel(&mut self, channel: Channel) -> &mut Self {
        self.descriptor.channel = channel.as_int();
        self
    }

    /// Sets the opcode.
    pub fn opcode(&mut self, opcode: Opcode) -> &mut Self {
        self.descriptor.opcode = opcode.as_int();
        self
    }

    /// Sets the task.
    pub fn task(&mut self, task: u16) -> &mut Self {
        self.descriptor.task = task;
        self
    }

    /// Adds a structure of the next `members` fields, at most 127: higher bits are dropped. A nested
    /// structure counts once.
    pub fn add_struct(&mut self, name: &str, members: u8, tag: u32) -> &mut Self {
        let members = OutType::from_int(members & OutType::TypeMask);
        self.raw_add_meta_scalar(name, InType::Struct, members, tag)
    }

    /// Adds the metadata of a field, without its data.
    pub fn raw_add_meta_scalar(&mut self, name: &str, of: InType, out: OutType, tag: u32) -> &mut Self {
        self.metadata.add_raw(&FieldMetadata::scalar(name, of.as_int(), out.as_int(), tag));
        self
    }

    /// Adds the metadata of an array, without its data: a 16-bit count, then as many values.
    pub fn raw_add_meta_vcount(&mut self, name: &str, of: InType, out: OutType, tag: u32) -> &mut Self {
        self.metadata.add_raw(&FieldMetadata::array(name, of.as_int(), out.as_int(), tag));
        self
    }

    /// Adds data without metadata: the bytes of a value, including padding.
    pub fn raw_add_data_value<T: Copy>(&mut self, value: &T) -> &mut Self {
        append_any(&mut self.data, value);
        self
    }

    /// Adds the bytes of several values without metadata or count.
    pub fn raw_add_data_slice<T: Copy>(&mut self, values: &[T]) -> &mut Self {
        values.iter().for_each(|value| append_any(&mut self.data, value));
        self
    }

    pub(super) fn append_value<T: Plain>(&mut self, value: &T) {
        self.data.extend_from_slice(bytes(value));
    }

    pub(super) fn append_counted<T: Plain>(&mut self, values: &[T]) {
        self.data.extend_from_slice(&counted_size(values).to_le_bytes());
        self.data.extend_from_slice(counted(values));
    }

    pub(super) fn append_terminated<T: Plain + Default + PartialEq>(&mut self, values: &[T]) {
        self.data.extend_from_slice(until_zero(values));
        self.data.extend_from_slice(bytes(&T::default()));
    }

    #[track_caller]
    pub(super) fn append_sid(&mut self, value: &[u8]) {
        self.data.extend_from_slice(sid(value));
    }

    /// Appends the count of values, at most 65,535, and the values.
    pub(super) fn append_all<T>(&mut self, values: impl IntoIterator<Item = T>, put: impl Fn(&mut Self, T)) {
        let start = self.data.len();
        self.data.extend_from_slice(&[0; 2]);
        let mut count = 0_u16;
        for value in values.into_iter().take(usize::from(u16::MAX)) {
            put(self, value);
            count += 1;
        }
        if let Some(count_bytes) = self.data.get_mut(start..start + 2) {
            count_bytes.copy_from_slice(&count.to_le_bytes());
        }
    }
}

impl<G: Id> Default for EventBuilderWithId<G> {
    fn default() -> Self {
        Self::new()
    }
}
