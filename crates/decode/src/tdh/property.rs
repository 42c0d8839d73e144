//! The bytes of one property in a payload.
//!
//! ```text
//!   descriptors   Values[1] · Name                   path   (field 1, element 1) · (field 3, whole)
//!   payload       Count │ ┌ Values[0]: Id Name ┐ ┌ Values[1]: Id Name ┐
//!                                                                ╰──╯ found
//! ```
//!
//! A payload is walked until the property has passed. Bytes are those of the payload: texts with their terminator, counted ones with their count.

use std::ops::Range;

use super::{Answer, Refusal};
use crate::error::Undecoded;
use crate::schema::{Count, Field, Kind, MAX_DEPTH, Schema};
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// One step to a property: its name, and which element of an array is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'n> {
    /// The name; case counts.
    pub name: &'n str,
    /// The element; `None` is all of it.
    pub element: Option<u32>,
}

/// A step as the walk meets it.
#[derive(Clone, Copy, Debug)]
struct Step {
    index: usize,
    element: Option<usize>,
}

/// The bytes of a property in a payload that a schema describes.
pub(super) fn find<'p>(
    schema: &Schema,
    payload: &'p [u8],
    pointer_size: usize,
    wanted: &[Wanted<'_>],
) -> Answer<&'p [u8]> {
    let path = path(schema, wanted)?;
    let mut finder = Finder { path: &path, ..Finder::default() };
    let end = Walker::default().walk(schema, payload, pointer_size, &mut finder);
    match (finder.found, end) {
        // Structures and arrays end for the visitor where the payload ends within them, too.
        (Some(range), Ok(_) | Err(Undecoded::TooLarge)) => {
            payload.get(range).ok_or(Refusal::Data("the payload ends before the property"))
        }
        (_, Err(why)) => Err(why.into()),
        (None, Ok(_)) => Err(Refusal::NotFound("such element in the payload")),
    }
}

/// Names as indexes of fields.
fn path(schema: &Schema, wanted: &[Wanted<'_>]) -> Answer<Vec<Step>> {
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
            return Err(Refusal::Invalid("the property is no array"));
        }
        if !is_last && field.count != Count::One && element.is_none() {
            return Err(Refusal::Invalid("which element of an array of structures is meant has to be said"));
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

/// How deep the walk is in structures, and where on the path.
#[derive(Debug, Default)]
struct Finder<'w> {
    path: &'w [Step],
    at: usize,
    /// Structures that are open.
    depth: usize,
    /// As many of them as are those of the path.
    matched: usize,
    /// At each depth, the element that comes next, within an array.
    next: [Option<usize>; MAX_DEPTH + 1],
    /// Where the property began, and at which depth, while it is open.
    open: Option<(usize, usize)>,
    /// Which part of the value that has just been told is the property, once its end is known.
    told: Option<Part>,
    found: Option<Range<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    start: usize,
    /// Element and bytes of each, in a row of characters that is told as one text.
    character: Option<(usize, usize)>,
}

impl Finder<'_> {
    /// The step that the walk is looking for here, if this field is it.
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

    /// Whether the step means the element that comes now.
    fn is_meant(&self, step: &Step) -> bool {
        match self.element() {
            Some(element) => step.element == Some(element),
            None => step.element.unwrap_or(0) == 0,
        }
    }

    fn close(&mut self) {
        if let Some((start, _)) = self.open.take_if(|(_, depth)| *depth == self.depth) {
            self.found = Some(start..self.at);
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
            if character.is_some() || self.is_meant(&step) {
                self.told = Some(Part { start: self.at, character });
            }
        }
        self.advance();
    }

    fn begin_array(&mut self, index: usize, _field: &Field, _count: usize) {
        if let Some((Step { element: None, .. }, true)) = self.step(index) {
            self.open = Some((self.at, self.depth));
        }
        self.set_next(Some(0));
    }

    fn end_array(&mut self, _index: usize, _field: &Field) {
        self.set_next(None);
        self.close();
    }

    fn begin_struct(&mut self, index: usize, _field: &Field) {
        if let Some((step, is_last)) = self.step(index)
            && self.is_meant(&step)
        {
            if is_last {
                self.open = Some((self.at, self.depth));
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
        // Of an array that is wanted as a whole no element is its end.
        if self.element().is_none() || self.path.get(self.matched).is_some_and(|step| step.element.is_some())
        {
            self.close();
        }
        self.advance();
    }

    fn at(&mut self, offset: usize) {
        if let Some(Part { start, character }) = self.told.take() {
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
        self.at = offset;
    }

    fn is_full(&self) -> bool {
        self.found.is_some()
    }
}
