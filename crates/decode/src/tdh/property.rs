//! Finds the bytes of one property in a payload.
//!
//! ```text
//!   steps        Values[1] · Name                   path   (field 1, element 1) · (field 3, all)
//!   payload      Count │ ┌ Values[0]: Id Name ┐ ┌ Values[1]: Id Name ┐
//!                                                               ╰──╯ found
//! ```
//!
//! The walk ends after the property. The result borrows the bytes from the payload:
//! strings with their terminator, counted strings and binaries with their count, and arrays without
//! the count before them.

use std::ops::Range;

use super::{Answer, Refusal};
use crate::error::Undecoded;
use crate::schema::{Count, Field, FieldKind, MAX_DEPTH, Schema};
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// One step of the path to a property: a name, and an element if the name is that of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyStep<'n> {
    /// Name of the property, case-sensitive.
    pub name: &'n str,
    /// Index of the element; `None` selects the complete property.
    pub element: Option<u32>,
}

/// A step of the path with the name resolved to an index.
#[derive(Clone, Copy, Debug)]
struct ResolvedStep {
    index: usize,
    element: Option<usize>,
}

/// Finds the bytes of a property in a payload that a schema describes.
pub(super) fn find_property<'p>(
    schema: &Schema,
    payload: &'p [u8],
    pointer_size: usize,
    steps: &[PropertyStep<'_>],
) -> Answer<&'p [u8]> {
    let path = resolve_path(schema, steps)?;
    let mut finder = PropertyFinder { path: &path, ..PropertyFinder::default() };
    let end = Walker::default().walk(schema, payload, pointer_size, &mut finder);
    match (finder.range, end) {
        // `TooLarge` means that the finder ended the walk. After other errors the range is not
        // used: the finder also sees the end of structures and arrays that the payload cuts short.
        (Some(range), Ok(_) | Err(Undecoded::TooLarge)) => {
            payload.get(range).ok_or(Refusal::Data("the payload ends before the property"))
        }
        (_, Err(reason)) => Err(reason.into()),
        (None, Ok(_)) => Err(Refusal::NotFound("there is no such element in the payload")),
    }
}

/// Resolves names to indexes of fields.
fn resolve_path(schema: &Schema, steps: &[PropertyStep<'_>]) -> Answer<Vec<ResolvedStep>> {
    if steps.is_empty() || steps.len() > MAX_DEPTH.saturating_add(1) {
        return Err(Refusal::Invalid("the path to the property is empty or too long"));
    }
    let mut path = Vec::with_capacity(steps.len());
    let (mut first, mut scope) = (0, schema.top());
    for (at, step) in steps.iter().enumerate() {
        let position = scope.iter().position(|field| *field.name == *step.name);
        let position = position.ok_or(Refusal::NotFound("there is no property of this name"))?;
        let field = scope.get(position).ok_or(Refusal::NotFound("there is no property of this name"))?;
        let is_last = at.saturating_add(1) == steps.len();
        let element = step.element.and_then(|e| usize::try_from(e).ok());
        if field.count == Count::One && element.is_some_and(|element| element != 0) {
            return Err(Refusal::Invalid("the property is not an array"));
        }
        if !is_last && field.count != Count::One && element.is_none() {
            return Err(Refusal::Invalid("an element of an array of structures needs its index"));
        }
        path.push(ResolvedStep { index: position.saturating_add(first), element });
        match field.kind {
            FieldKind::Struct { first: start, members } => {
                (first, scope) = (usize::from(start), schema.members(start, members))
            }
            FieldKind::Value { .. } => (first, scope) = (0, &[]),
        }
    }
    Ok(path)
}

/// The visitor that finds a property. It tracks how deep the walk is in structures and how much of
/// the path it has matched.
#[derive(Debug, Default)]
struct PropertyFinder<'w> {
    path: &'w [ResolvedStep],
    offset: usize,
    /// Number of structures that are open.
    depth: usize,
    /// Number of open structures that are steps of the path.
    matched: usize,
    /// At each depth, the index of the current element if an array is open there.
    elements: [Option<usize>; MAX_DEPTH + 1],
    /// Start offset and depth of the property while it is open.
    open: Option<(usize, usize)>,
    /// The last value, if it is or contains the property; the end of the value is not known yet.
    pending: Option<PendingProperty>,
    /// The range of the property in the payload, once it has ended.
    range: Option<Range<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct PendingProperty {
    /// The offset of the value.
    start: usize,
    /// Index and size in bytes of an element in an array of characters, which arrives as one text.
    character: Option<(usize, usize)>,
}

impl PropertyFinder<'_> {
    /// Returns the step of the path that this field matches at the current depth, and whether it is
    /// the last step.
    fn matching_step(&self, index: usize) -> Option<(ResolvedStep, bool)> {
        let step =
            self.path.get(self.matched).filter(|step| self.matched == self.depth && step.index == index)?;
        Some((*step, self.matched.saturating_add(1) == self.path.len()))
    }

    fn current_element(&self) -> Option<usize> {
        self.elements.get(self.depth).copied().flatten()
    }

    fn set_element(&mut self, element: Option<usize>) {
        if let Some(slot) = self.elements.get_mut(self.depth) {
            *slot = element;
        }
    }

    fn advance_element(&mut self) {
        self.set_element(self.current_element().map(|element| element.saturating_add(1)));
    }

    /// Returns whether the step selects the current element.
    fn is_selected(&self, step: &ResolvedStep) -> bool {
        match self.current_element() {
            Some(element) => step.element == Some(element),
            None => step.element.unwrap_or(0) == 0,
        }
    }

    fn end_property(&mut self) {
        if let Some((start, _)) = self.open.take_if(|(_, depth)| *depth == self.depth) {
            self.range = Some(start..self.offset);
        }
    }
}

impl<'p> Visitor<'p> for PropertyFinder<'_> {
    fn value(&mut self, index: usize, field: &Field, _value: Value<'p>) {
        if let Some((step, true)) = self.matching_step(index) {
            let is_text = self.current_element().is_none() && field.count != Count::One;
            let size = match &field.kind {
                FieldKind::Value { input, .. } => input.size(8).unwrap_or(1),
                FieldKind::Struct { .. } => 1,
            };
            let character = step.element.filter(|_| is_text).map(|element| (element, size));
            if character.is_some() || self.is_selected(&step) {
                self.pending = Some(PendingProperty { start: self.offset, character });
            }
        }
        self.advance_element();
    }

    fn begin_array(&mut self, index: usize, _field: &Field, _count: usize) {
        if let Some((ResolvedStep { element: None, .. }, true)) = self.matching_step(index) {
            self.open = Some((self.offset, self.depth));
        }
        self.set_element(Some(0));
    }

    fn end_array(&mut self, _index: usize, _field: &Field) {
        self.set_element(None);
        self.end_property();
    }

    fn begin_struct(&mut self, index: usize, _field: &Field) {
        if let Some((step, is_last)) = self.matching_step(index)
            && self.is_selected(&step)
        {
            if is_last {
                self.open = Some((self.offset, self.depth));
            } else {
                self.matched = self.matched.saturating_add(1);
            }
        }
        self.depth = self.depth.saturating_add(1);
        self.set_element(None);
    }

    fn end_struct(&mut self, _index: usize, _field: &Field) {
        self.depth = self.depth.saturating_sub(1);
        self.matched = self.matched.min(self.depth);
        // If the caller wants the complete array, the end of an element does not end the property.
        if self.current_element().is_none()
            || self.path.get(self.matched).is_some_and(|step| step.element.is_some())
        {
            self.end_property();
        }
        self.advance_element();
    }

    fn set_offset(&mut self, offset: usize) {
        if let Some(PendingProperty { start, character }) = self.pending.take() {
            let (start, end) = match character {
                None => (start, offset),
                Some((element, size)) => {
                    let from = start.saturating_add(element.saturating_mul(size));
                    (from, from.saturating_add(size))
                }
            };
            if end <= offset {
                self.range = Some(start..end);
            }
        }
        self.offset = offset;
    }

    fn is_full(&self) -> bool {
        self.range.is_some()
    }
}
