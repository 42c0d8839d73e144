//! Writes the payloads of 64-bit kernel events as the tables of [`kernel`](super) describe them.
//!
//! ```text
//!   const SWITCH: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
//!   put_kernel_event!(&mut payload, SWITCH, { NewThreadId: new, OldThreadId: old, … });
//!
//!   payload   │ f0 │ f1 │ f2 │ … │ text │ SID │ …
//!              front: fixed sizes  tail: from the first field whose size depends on its value
//! ```
//!
//! The compiler looks the fields up in the tables. A front field that is not in the front of the
//! table is a compile error, and so is a tail field that is not in the tail, and a front value
//! whose size differs from its field. Writing a front costs as much as filling an array by hand.
//! Fields of the front that the caller does not name are zeros. The tail may end early, because a
//! payload that ends at a field boundary lacks the remaining fields.

use alloc::vec::Vec;

use super::{FieldShape, Repeat, Ty, hook, shape_of};
use crate::guid::Guid;
use crate::security::Sid;
use crate::wire::Put;

/// The payload that [`put_kernel_event!`](crate::put_kernel_event) appends to.
pub type PayloadBytes = Vec<u8>;

/// The size of pointers in bytes.
const POINTER_SIZE: usize = 8;
/// The two pointers before a SID (TOKEN_USER): the offset of the SID, and its attributes. Readers
/// skip them; a nonzero value says that a SID follows.
const TOKEN_USER: [u64; 2] = [16, 0];
/// Stands for the size of text values in a field of fixed size: the text may have any length.
const TEXT_SIZE: usize = usize::MAX;

/// The fields of an event in one version, for [`put_kernel_event!`](crate::put_kernel_event).
#[derive(Clone, Copy, Debug)]
pub struct PayloadLayout {
    fields: &'static [FieldShape],
    version: u8,
}

/// A field of fixed size in the front of a payload.
#[derive(Clone, Copy, Debug)]
pub struct FrontField {
    ty: Ty,
    offset: usize,
    size: usize,
}

/// A field after the front of a payload.
#[derive(Clone, Copy, Debug)]
pub struct TailField {
    ty: Ty,
}

// Only the compiler evaluates these functions, so a panic here is a compile error.
#[allow(clippy::panic)]
impl PayloadLayout {
    /// Returns the layout of the event with a hook id, in a version.
    ///
    /// # Panics
    /// If no table describes the event.
    #[must_use]
    pub const fn new(hook: u16, version: u8) -> Self {
        Self::for_class(hook::class_of(hook), hook::type_of(hook), version)
    }

    /// Returns the layout of an event type of a class, in a version.
    ///
    /// # Panics
    /// If no table describes the event.
    #[must_use]
    pub const fn for_class(class: Guid, opcode: u8, version: u8) -> Self {
        match shape_of(&class, opcode, version) {
            Some((shape, _)) => Self { fields: shape.fields, version },
            None => panic!("no table describes this event"),
        }
    }

    /// Returns the layout that events with several hook ids share, in a version.
    ///
    /// # Panics
    /// If there are no hook ids, or their events have different tables.
    #[must_use]
    pub const fn shared(hooks: &[u16], version: u8) -> Self {
        let Some((first, mut remaining)) = hooks.split_first() else { panic!("no hook ids") };
        let Some((shape, _)) = shape_of(&hook::class_of(*first), hook::type_of(*first), version) else {
            panic!("no table describes this event")
        };
        while let Some((hook, others)) = remaining.split_first() {
            let (class, opcode) = (hook::class_of(*hook), hook::type_of(*hook));
            // A type of a class has at most one table in a version, so the table is the same if its
            // version is the same and it describes the type.
            match shape_of(&class, opcode, version) {
                Some((other, _)) if other.version == shape.version => {}
                _ => panic!("the events have different tables"),
            }
            if shape.name_in(&class, opcode).is_none() {
                panic!("the events have different tables")
            }
            remaining = others;
        }
        Self { fields: shape.fields, version }
    }

    /// Returns the version of the event.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// Returns the layout without the field `name` and the fields after it, which only newer
    /// systems write.
    ///
    /// # Panics
    /// If the event has no such field.
    #[must_use]
    pub const fn truncate_before(self, name: &str) -> Self {
        let mut remaining = self.fields;
        while let Some((field, after)) = remaining.split_first() {
            if are_equal(field.name, name) {
                let (before, _) = self.fields.split_at(self.fields.len().saturating_sub(remaining.len()));
                return Self { fields: before, version: self.version };
            }
            remaining = after;
        }
        panic!("the event has no such field")
    }

    /// Returns the size of the front in bytes.
    #[must_use]
    pub const fn front_size(&self) -> usize {
        let (mut remaining, mut size) = (self.fields, 0_usize);
        while let Some((field, after)) = remaining.split_first() {
            let Some(bytes) = field.size(POINTER_SIZE) else { return size };
            size = size.saturating_add(bytes);
            remaining = after;
        }
        size
    }

    /// Returns a field of the front.
    ///
    /// # Panics
    /// If the front has no such field, or the field repeats.
    #[must_use]
    pub const fn front_field(&self, name: &str) -> FrontField {
        let (mut remaining, mut offset) = (self.fields, 0_usize);
        while let Some((field, after)) = remaining.split_first() {
            let Some(size) = field.size(POINTER_SIZE) else { break };
            if are_equal(field.name, name) && matches!(field.repeat, Repeat::One) {
                return FrontField { ty: field.ty, offset, size };
            }
            offset = offset.saturating_add(size);
            remaining = after;
        }
        panic!("the front of the payload has no such field")
    }

    /// Returns the field at an index of the tail.
    ///
    /// # Panics
    /// If neither the field at `index` nor a later one has this name: values of the tail are given
    /// in the order of the table.
    #[must_use]
    pub const fn tail_field(&self, mut index: usize, name: &str) -> TailField {
        let mut remaining = self.fields;
        while let Some((field, after)) = remaining.split_first() {
            if field.size(POINTER_SIZE).is_none() {
                break;
            }
            remaining = after;
        }
        while let Some((field, after)) = remaining.split_first() {
            if index == 0 && are_equal(field.name, name) {
                return TailField { ty: field.ty };
            }
            index = index.saturating_sub(1);
            remaining = after;
        }
        panic!("the tail of the payload has a different field at this index")
    }
}

const fn are_equal(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some((first, others)), Some((second, remaining))) = (a.split_first(), b.split_first()) {
        if *first != *second {
            return false;
        }
        (a, b) = (others, remaining);
    }
    a.is_empty() && b.is_empty()
}

/// A value of a field in the front.
pub trait FrontValue {
    /// The size that the field must have.
    const SIZE: usize;

    /// Writes the value into the bytes of its field.
    fn write(self, ty: Ty, bytes: &mut [u8]);
}

/// A value of a field in the tail.
pub trait TailValue {
    /// Appends the value in the form of its type.
    fn append(self, ty: Ty, out: &mut Vec<u8>);
}

impl FrontField {
    /// Returns the size that a value of the field must have.
    #[must_use]
    pub const fn value_size(&self) -> usize {
        if matches!(self.ty, Ty::W(_)) { TEXT_SIZE } else { self.size }
    }

    /// Writes a value into the front of a payload. `SIZE` is the
    /// [`value_size`](Self::value_size) of the field: a value of another size does not compile.
    #[inline(always)]
    pub fn write<const SIZE: usize, V: FrontValue>(self, value: V, front: &mut [u8]) {
        const { assert!(V::SIZE == SIZE, "the size of the value differs from its field") };
        if let Some(bytes) = front.get_mut(self.offset..self.offset.saturating_add(self.size)) {
            value.write(self.ty, bytes);
        }
    }
}

impl TailField {
    /// Appends a value to a payload.
    pub fn append(self, value: impl TailValue, out: &mut Vec<u8>) {
        value.append(self.ty, out);
    }
}

impl<const N: usize> FrontValue for [u8; N] {
    const SIZE: usize = N;

    #[inline(always)]
    fn write(self, _: Ty, bytes: &mut [u8]) {
        bytes.iter_mut().zip(self).for_each(|(to, from)| *to = from);
    }
}

/// Text in a field of fixed size ends with at least one NUL; longer text is truncated between
/// characters.
impl FrontValue for &str {
    const SIZE: usize = TEXT_SIZE;

    fn write(self, _: Ty, bytes: &mut [u8]) {
        let Some((_, mut free_units)) = bytes.as_chunks_mut::<2>().0.split_last_mut() else { return };
        for character in self.chars() {
            let Some((to, remaining)) = free_units.split_at_mut_checked(character.len_utf16()) else {
                return;
            };
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units).iter();
            to.iter_mut().zip(units).for_each(|(to, unit)| *to = unit.to_le_bytes());
            free_units = remaining;
        }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(
            impl FrontValue for $number {
                const SIZE: usize = size_of::<$number>();

                #[inline(always)]
                fn write(self, ty: Ty, bytes: &mut [u8]) {
                    let number = if matches!(ty, Ty::Port) { self.to_be_bytes() } else { self.to_le_bytes() };
                    number.write(ty, bytes);
                }
            }

            impl TailValue for $number {
                fn append(self, ty: Ty, out: &mut Vec<u8>) {
                    debug_assert_eq!(ty.size(POINTER_SIZE), Some(size_of::<$number>()), "{ty:?}");
                    out.put(&self.to_le_bytes());
                }
            }
        )*
    };
}

numbers!(u8 i8 u16 i16 u32 i32 u64 i64);

impl TailValue for &str {
    fn append(self, ty: Ty, out: &mut Vec<u8>) {
        match ty {
            Ty::Wz => out.put_wide_z(self),
            _ => out.put_ansi_z(self),
        };
    }
}

impl TailValue for &[u8] {
    fn append(self, ty: Ty, out: &mut Vec<u8>) {
        out.put(self);
        if matches!(ty, Ty::Az | Ty::Utf8z) {
            out.put_u8(0);
        }
    }
}

impl TailValue for Option<&Sid> {
    fn append(self, _: Ty, out: &mut Vec<u8>) {
        match self {
            Some(sid) => {
                let [offset, attributes] = TOKEN_USER;
                out.put_u64(offset).put_u64(attributes).put(&sid.to_bytes());
            }
            None => drop(out.put_u32(0)),
        }
    }
}

/// The values of a field that repeats.
#[derive(Clone, Copy, Debug)]
pub struct RepeatedValues<I>(pub I);

impl<I> TailValue for RepeatedValues<I>
where
    I: IntoIterator,
    I::Item: TailValue,
{
    fn append(self, ty: Ty, out: &mut Vec<u8>) {
        for value in self.0 {
            value.append(ty, out);
        }
    }
}

/// Appends the payload of a kernel event to a `Vec<u8>`, by the table of the event.
///
/// The layout is a constant. Fields of the front, which have a fixed size, are named in any order;
/// those that are not named are zeros. The fields after the front are named in the order of the
/// table.
///
/// ```
/// use traceweir_format::kernel::{PayloadLayout, hook};
/// use traceweir_format::put_kernel_event;
///
/// const SET_NAME: PayloadLayout = PayloadLayout::new(hook::THREAD_SET_NAME, 2);
/// let mut payload = Vec::new();
/// put_kernel_event!(&mut payload, SET_NAME, { ThreadId: 7_u32, ProcessId: 5_u32 }, { ThreadName: "a" });
/// assert_eq!(payload, [5, 0, 0, 0, 7, 0, 0, 0, b'a', 0, 0, 0]);
/// ```
///
/// A value whose size differs from its field does not compile:
///
/// ```compile_fail
/// use traceweir_format::kernel::{PayloadLayout, hook};
/// use traceweir_format::put_kernel_event;
///
/// const SET_NAME: PayloadLayout = PayloadLayout::new(hook::THREAD_SET_NAME, 2);
/// put_kernel_event!(&mut Vec::new(), SET_NAME, { ThreadId: 7_u16 });
/// ```
#[macro_export]
macro_rules! put_kernel_event {
    (@tail $payload:ident, $layout:expr, $index:expr,) => {};
    (@tail $payload:ident, $layout:expr, $index:expr, $tail:ident: $value:expr, $($others:tt)*) => {
        $crate::kernel::TailField::append(
            const { $layout.tail_field($index, stringify!($tail)) },
            $value,
            $payload,
        );
        $crate::put_kernel_event!(@tail $payload, $layout, $index + 1, $($others)*);
    };
    ($payload:expr, $layout:expr, { $($field:ident: $value:expr),* $(,)? }) => {
        $crate::put_kernel_event!($payload, $layout, { $($field: $value),* }, {})
    };
    (
        $payload:expr, $layout:expr,
        { $($field:ident: $value:expr),* $(,)? }, { $($tail:ident: $tail_value:expr),* $(,)? }
    ) => {{
        #[allow(unused_mut)] // A call that names no fields in the front does not change `front`.
        let mut front = [0_u8; $layout.front_size()];
        $(
            $crate::kernel::FrontField::write::<{ $layout.front_field(stringify!($field)).value_size() }, _>(
                const { $layout.front_field(stringify!($field)) },
                $value,
                &mut front,
            );
        )*
        let payload: &mut $crate::kernel::PayloadBytes = $payload;
        payload.extend_from_slice(&front);
        $crate::put_kernel_event!(@tail payload, $layout, 0_usize, $($tail: $tail_value,)*);
    }};
}

#[cfg(test)]
mod tests;
