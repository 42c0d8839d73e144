//! Shapes of the classic kernel events, and of the events that merging adds, as field tables.
//!
//! ```text
//!   Shape { class, version, types: [(10, "Load"), …], fields: [FieldShape { name, … }, …] }
//!
//!   payload   │ f0 │ f1 │ f2 … │ unused │        packed, no padding between fields;
//!                                               `Ptr` is 4 or 8 bytes, depending on the event
//! ```
//!
//! One table serves the decoder, which turns it into a schema, and writers of events
//! ([`put_kernel_event!`](crate::put_kernel_event)). Each family of events is in one file. The
//! group in a hook id determines the class (`spec::event::class::GROUPS`).
//!
//! The tables rely on these rules, which the tests check:
//!
//! * A version that is not listed is read with the highest listed version below it; a version below
//!   all listed ones with the lowest.
//! * A payload that ends at a field boundary lacks the remaining fields. Fields that newer systems
//!   append without raising the version are therefore last in the table of that version. The excess
//!   bytes of a longer payload are unused.
//! * One type of one class has at most one shape in a version, and a count is the value of an
//!   earlier field.
//! * A field that extends to the end of the payload ([`Ty::Rest`], [`Ty::Lznt1Text`],
//!   [`Repeat::ToEnd`]) is the last field.
//!
//! The tables hold no arrays of structures: records that vary in form or come in groups are
//! described as bytes or as a flat array of pointers. A comment on the field explains them. Groups
//! without a published layout (heap, critical sections, jobs, power, cache manager, thread pool,
//! WNF, hypervisor) are absent, and so are the unversioned layouts of Windows XP's hardware events,
//! which cannot be distinguished from version 0.
//!
//! Names are those of the MOF classes. Source: Documented (the MOF class pages of "Event Tracing")
//! unless a table says "Observed": then its events in real traces decode to exactly the last byte
//! of their payloads.

mod config;
mod disk;
mod encode;
mod file;
pub mod hook;
mod image;
mod memory;
mod merge;
mod misc;
mod names;
mod net;
mod process;
mod profile;
pub mod providers;
mod registry;
mod stack;
mod thread;
pub mod thread_state;
mod trace;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use encode::PayloadBytes;
pub use encode::{FrontField, FrontValue, PayloadLayout, RepeatedValues, TailField, TailValue};
pub use names::{event_name, find_events};

use crate::guid::Guid;
use crate::spec::event::class;

/// The layout of some event types of a class, in some versions.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The class GUID that consumers see.
    pub class: Guid,
    /// Event types (opcodes) that share the layout, each with its name: `Start`, `DCEnd`….
    pub types: &'static [(u8, &'static str)],
    /// First version with this layout.
    pub version: u8,
    /// The fields in order.
    pub fields: &'static [FieldShape],
}

/// One field of a shape.
#[derive(Clone, Copy, Debug)]
pub struct FieldShape {
    /// The documented name.
    pub name: &'static str,
    /// Layout and meaning of the field.
    pub ty: Ty,
    /// How often the field repeats.
    pub repeat: Repeat,
}

/// Layout and meaning of a kernel field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Names without a comment state type and width.
pub enum Ty {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    /// An 8-bit number, shown in hexadecimal.
    Hex8,
    Hex16,
    Hex32,
    Hex64,
    /// Pointer-sized, shown in hexadecimal.
    Ptr,
    /// Pointer-sized, shown in decimal (sizes, ids).
    Size,
    /// A process id, four bytes.
    Pid,
    /// A thread id, four bytes.
    Tid,
    Guid,
    FileTime,
    /// A stamp of the session's raw clock.
    RawTime,
    /// NUL-terminated 8-bit text.
    Az,
    /// NUL-terminated UTF-8 text.
    Utf8z,
    /// NUL-terminated UTF-16 text.
    Wz,
    /// A fixed number of UTF-16 units, NUL-padded.
    W(u16),
    /// A fixed number of raw bytes.
    Bytes(u16),
    /// A fixed number of bytes without meaning: written as zeros, not shown.
    Pad(u16),
    /// A SID after two pointers, or four zero bytes.
    SidBlock,
    /// A port number, big-endian.
    Port,
    Ip4,
    Ip6,
    /// An NTSTATUS code.
    NtStatus,
    /// The remaining bytes of the payload.
    Rest,
    /// `u32` of the uncompressed size, then an LZNT1 stream to the end that holds UTF-16 text.
    Lznt1Text,
}

/// How often a kernel field repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The field occurs once.
    One,
    /// A fixed number of times.
    Times(u16),
    /// As often as the value of an earlier field, given by name.
    By(&'static str),
    /// Up to the end of the payload.
    ToEnd,
}

impl Ty {
    /// Returns the size of one value in bytes, if it does not depend on the content.
    #[must_use]
    pub const fn size(self, pointer_size: usize) -> Option<usize> {
        Some(match self {
            Self::U8 | Self::I8 | Self::Hex8 => 1,
            Self::U16 | Self::I16 | Self::Hex16 | Self::Port => 2,
            Self::U32 | Self::I32 | Self::Hex32 | Self::Pid | Self::Tid | Self::Ip4 | Self::NtStatus => 4,
            Self::U64 | Self::I64 | Self::Hex64 | Self::FileTime | Self::RawTime => 8,
            Self::Guid | Self::Ip6 => 16,
            Self::Ptr | Self::Size => pointer_size,
            Self::W(units) => (units as usize).saturating_mul(2),
            Self::Bytes(n) | Self::Pad(n) => n as usize,
            Self::Az | Self::Utf8z | Self::Wz | Self::SidBlock | Self::Rest | Self::Lznt1Text => return None,
        })
    }
}

impl FieldShape {
    /// Returns the size of the whole field in bytes, if it does not depend on the payload.
    #[must_use]
    pub const fn size(&self, pointer_size: usize) -> Option<usize> {
        match (self.ty.size(pointer_size), self.repeat) {
            (size, Repeat::One) => size,
            (Some(size), Repeat::Times(n)) => Some(size.saturating_mul(n as usize)),
            _ => None,
        }
    }
}

impl Shape {
    /// Returns the size of a payload in bytes, if it does not depend on the content.
    #[must_use]
    pub fn size(&self, pointer_size: usize) -> Option<usize> {
        self.fields.iter().try_fold(0_usize, |sum, f| Some(sum.saturating_add(f.size(pointer_size)?)))
    }

    /// Returns the offsets of the raw stamps in a payload, as far as they do not depend on its
    /// content.
    pub fn raw_time_offsets(&self, pointer_size: usize) -> impl Iterator<Item = usize> {
        let mut at = Some(0_usize);
        self.fields.iter().filter_map(move |field| {
            let offset = at?;
            at = field.size(pointer_size).map(|size| offset.saturating_add(size));
            (field.ty == Ty::RawTime).then_some(offset)
        })
    }

    /// Returns the name of an event type of a class, if this shape describes the type.
    const fn name_in(&self, class: &Guid, opcode: u8) -> Option<&'static str> {
        let ([first, second], [other_first, other_second]) = (self.class.to_words(), class.to_words());
        if first != other_first || second != other_second {
            return None;
        }
        let mut types = self.types;
        while let Some(((known, name), others)) = types.split_first() {
            if *known == opcode {
                return Some(*name);
            }
            types = others;
        }
        None
    }

    /// Returns whether this shape suits `version` better than `other` does.
    const fn suits_better_than(&self, other: &Self, version: u8) -> bool {
        match (self.version <= version, other.version <= version) {
            (true, true) => self.version > other.version,
            (false, false) => self.version < other.version,
            (fits, _) => fits,
        }
    }
}

/// Defines the layout `fields` for the `types` of `class`, from `version` on.
const fn shape(
    class: Guid,
    version: u8,
    types: &'static [(u8, &'static str)],
    fields: &'static [FieldShape],
) -> Shape {
    Shape { class, types, version, fields }
}

/// Defines a field that occurs once.
const fn f(name: &'static str, ty: Ty) -> FieldShape {
    FieldShape { name, ty, repeat: Repeat::One }
}

/// Defines a field that repeats `n` times.
const fn times(name: &'static str, ty: Ty, n: u16) -> FieldShape {
    FieldShape { name, ty, repeat: Repeat::Times(n) }
}

/// Defines a field that repeats as often as the value of the field `count`.
const fn repeated_by(name: &'static str, ty: Ty, count: &'static str) -> FieldShape {
    FieldShape { name, ty, repeat: Repeat::By(count) }
}

/// Defines a field that repeats up to the end of the payload.
const fn to_end(name: &'static str, ty: Ty) -> FieldShape {
    FieldShape { name, ty, repeat: Repeat::ToEnd }
}

/// The tables of all event families.
static FAMILIES: [&[Shape]; 14] = [
    trace::SHAPES,
    disk::SHAPES,
    memory::SHAPES,
    process::SHAPES,
    file::SHAPES,
    thread::SHAPES,
    net::SHAPES,
    registry::SHAPES,
    config::SHAPES,
    profile::SHAPES,
    image::SHAPES,
    stack::SHAPES,
    misc::SHAPES,
    merge::SHAPES,
];

/// Returns all shapes, family by family.
pub fn shapes() -> impl Iterator<Item = &'static Shape> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Returns the shape of an event type in a version, and the name of the type.
///
/// The shape is the one with the highest version not above `version`, else the one with the lowest.
/// The search walks all tables, so callers should cache the result.
#[must_use]
pub const fn shape_of(class: &Guid, opcode: u8, version: u8) -> Option<(&'static Shape, &'static str)> {
    let mut best: Option<(&'static Shape, &'static str)> = None;
    let mut families: &'static [&[Shape]] = &FAMILIES;
    while let Some((family, other_families)) = families.split_first() {
        let mut shapes: &'static [Shape] = family;
        while let Some((shape, others)) = shapes.split_first() {
            if let Some(name) = shape.name_in(class, opcode) {
                match best {
                    Some((other, _)) if !shape.suits_better_than(other, version) => {}
                    _ => best = Some((shape, name)),
                }
            }
            shapes = others;
        }
        families = other_families;
    }
    best
}

/// Returns the name of a class of kernel or merge events.
#[must_use]
pub fn class_name(class: &Guid) -> Option<&'static str> {
    const CLASSES_WITHOUT_GROUP: [(Guid, &str); 5] = [
        (class::LOST_EVENT, "RT_LostEvent"),
        (class::IMAGE_ID, "ImageID"),
        (class::SYS_CONFIG_EX, "SysConfigEx"),
        (class::EVENT_METADATA, "MetaData"),
        (class::WIN_SAT, "WinSat"),
    ];
    class::GROUPS.iter().chain(&CLASSES_WITHOUT_GROUP).find(|(guid, _)| guid == class).map(|(_, name)| *name)
}
