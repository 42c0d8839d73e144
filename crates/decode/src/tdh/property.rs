//! Finds the bytes of one property in a payload.
//!
//! ```text
//!   descriptors  Values[1] · Name                   path   (field 1, element 1) · (field 3, whole)
//!   payload      Count │ ┌ Values[0]: Id Name ┐ ┌ Values[1]: Id Name ┐
//!                                                               ╰──╯ found
//! ```
//!
//! The payload is walked until the property has passed. The result is the payload's own bytes:
//! texts with their terminator, counted values with their count.

use std::ops::Range;

use super::{Answer, Refusal};
use crate::error::Undecoded;
use crate::schema::{Count, Field, Kind, MAX_DEPTH, Schema};
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// One step of the path to a property: a name, and the element if it is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyStep<'n> {
    /// Name of the property, case-sensitive.
    pub name: &'n str,
    /// Index of the element; `None` selects the whole property.
    pub element: Option<u32>,
}

/// A step of the path with the name resolved to an index.
#[derive(Clone, Copy, Debug)]
struct Step {
    index: usize,
    element: Option<usize>,
}

/// Finds the bytes of a property in a payload that a schema describes.
pub(super) fn find<'p>(
    schema: &Schema,
    payload: &'p [u8],
    pointer_size: usize,
    wanted: &[PropertyStep<'_>],
) -> Answer<&'p [u8]> {
    let path = path(schema, wanted)?;
    let mut finder = Finder { path: &path, ..Finder::default() };
    let end = Walker::default().walk(schema, payload, pointer_size, &mut finder);
    match (finder.found, end) {
        // The visitor also sees the end of structures and arrays that the payload cuts short.
        (Some(range), Ok(_) | Err(Undecoded::TooLarge)) => {
            payload.get(range).ok_or(Refusal::Data("the payload ends before the property"))
        }
        (_, Err(reason)) => Err(reason.into()),
        (None, Ok(_)) => Err(Refusal::NotFound("such element in the payload")),
    }
}

/// Resolves names to indexes of fields.
fn path(schema: &Schema, wanted: &[PropertyStep<'_>]) -> Answer<Vec<Step>> {
    if wanted.is_empty() || wanted.len() > MAX_DEPTH.saturating_add(1) {
        return Err(Refusal::Invalid("a property is named by itself, or by its structures and itself"));
    }
    let mut path = Vec::with_capacity(wanted.len());
    let (mut first, mut scope) = (0, schema.top());
    for (at, step) in wanted.iter().enumerate() {
        let place = scope.iter().position(|field| *field.name == *step.name);
        let place = place.ok_or(Refusal::NotFound("property of this name"))?;
        let field = scope.get(place).ok_or(Refusal::NotFound("property of this name"))?;
        let is_last = at.saturating_add(1) == wanted.len();
        let element = step.element.and_then(|e| usize::try_from(e).ok());
        if field.count == Count::One && element.is_some_and(|element| element != 0) {
            return Err(Refusal::Invalid("the property is not an array"));
        }
        if !is_last && field.count != Count::One && element.is_none() {
            return Err(Refusal::Invalid("an element of an array of structures needs its index"));
        }
        path.push(Step { index: place.saturating_add(first), element });
        match field.kind {
            Kind::Struct { first: start, members } => {
                (first, scope) = (usize::from(start), schema.members(start, members))
            }
            Kind::Value { .. } => (first, scope) = (0, &[]),
        }
    }
    Ok(path)
}

/// The visitor that finds a property: its depth in structures and its position on the path.
#[derive(Debug, Default)]
struct Finder<'w> {
    path: &'w [Step],
    offset: usize,
    /// Number of structures that are open.
    depth: usize,
    /// Number of open structures that are steps of the path.
    matched: usize,
    /// At each depth inside an array, the index of the next element.
    next: [Option<usize>; MAX_DEPTH + 1],
    /// Start offset and depth of the property while it is open.
    open: Option<(usize, usize)>,
    /// The start of the property if the last value is or contains it; its end is not known yet.
    pending: Option<Part>,
    found: Option<Range<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    start: usize,
    /// Index and size in bytes of an element in an array of characters, which arrives as one text.
    character: Option<(usize, usize)>,
}

impl Finder<'_> {
    /// Returns the step of the path that this field is at this depth, and whether it is the last
    /// one.
    fn step(&self, index: usize) -> Option<(Step, bool)> {
        let step =
            self.path.get(self.matched).filter(|step| self.matched == self.depth && step.index == index)?;
        Some((*step, self.matched.saturating_add(1) == self.path.len()))
    }

    fn element(&self) -> Option<usize> {
        self.next.get(self.depth).copied().flatten()
    }

    fn set_next(&mut self, next: Option<usize>) {
        if let Some(place) = self.next.get_mut(self.depth) {
            *place = next;
        }
    }

    fn advance(&mut self) {
        self.set_next(self.element().map(|element| element.saturating_add(1)));
    }

    /// Returns whether the step selects the current element.
    fn is_selected(&self, step: &Step) -> bool {
        match self.element() {
            Some(element) => step.element == Some(element),
            None => step.element.unwrap_or(0) == 0,
        }
    }

    fn close(&mut self) {
        if let Some((start, _)) = self.open.take_if(|(_, depth)| *depth == self.depth) {
            self.found = Some(start..self.offset);
        }
    }
}

impl<'p> Visitor<'p> for Finder<'_> {
    fn value(&mut self, index: usize, field: &Field, _value: Value<'p>) {
        if let Some((step, true)) = self.step(index) {
            let is_text = self.element().is_none() && field.count != Count::One;
            let size = match &field.kind {
                Kind::Value { input, .. } => input.size(8).unwrap_or(1),
                Kind::Struct { .. } => 1,
            };
            let character = step.element.filter(|_| is_text).map(|element| (element, size));
            if character.is_some() || self.is_selected(&step) {
                self.pending = Some(Part { start: self.offset, character });
            }
        }
        self.advance();
    }

    fn begin_array(&mut self, index: usize, _field: &Field, _count: usize) {
        if let Some((Step { element: None, .. }, true)) = self.step(index) {
            self.open = Some((self.offset, self.depth));
        }
        self.set_next(Some(0));
    }

    fn end_array(&mut self, _index: usize, _field: &Field) {
        self.set_next(None);
        self.close();
    }

    fn begin_struct(&mut self, index: usize, _field: &Field) {
        if let Some((step, is_last)) = self.step(index)
            && self.is_selected(&step)
        {
            if is_last {
                self.open = Some((self.offset, self.depth));
            } else {
                self.matched = self.matched.saturating_add(1);
            }
        }
        self.depth = self.depth.saturating_add(1);
        self.set_next(None);
    }

    fn end_struct(&mut self, _index: usize, _field: &Field) {
        self.depth = self.depth.saturating_sub(1);
        self.matched = self.matched.min(self.depth);
        // If the whole array is wanted, the end of an element is not its end.
        if self.element().is_none() || self.path.get(self.matched).is_some_and(|step| step.element.is_some())
        {
            self.close();
        }
        self.advance();
    }

    fn set_offset(&mut self, offset: usize) {
        if let Some(Part { start, character }) = self.pending.take() {
            let (start, end) = match character {
                None => (start, offset),
                Some((element, size)) => {
                    let from = start.saturating_add(element.saturating_mul(size));
                    (from, from.saturating_add(size))
                }
            };
            if end <= offset {
                self.found = Some(start..end);
            }
        }
        self.offset = offset;
    }

    fn is_full(&self) -> bool {
        self.found.is_some()
    }
}
