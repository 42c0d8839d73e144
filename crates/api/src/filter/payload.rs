//! Payload filters: compilation, and evaluation over the blocks of an event.
//!
//! ```text
//!   section      number of filters │ filter…
//!   filter       its size in words │ id, version << 16, flags << 24, number of fields << 32,
//!                number of predicates << 40 │ field… │ predicate…
//!   field        as in the filter that was sent (`traceweir_format::filter::payload`)
//!   predicate    its size in words │ field, type << 8, operator << 16 │ operand
//!   operand      of a number: low │ high       of a GUID: two words
//!                of a text: number of characters │ character, fallback << 32…
//! ```
//!
//! Text search uses the method of Knuth, Morris and Pratt: each character of the payload is read
//! once, so blocks need not be joined and a long repetitive payload costs no more than another.
//! `fallback` is its table.
//!
//! A payload that ends before a field fails the predicates on it. A field that refers to such a
//! field ends the walk as well.

use traceweir_format::filter::payload::{Count, Field, Filters, MAX_FIELDS, Shape, Type, Value, fold_case};
use traceweir_format::spec::enable::PayloadOperator as Operator;

use super::bytes::{FoldedText, PayloadReader};
use super::cells::CellWords;
use crate::event::CallerEvent;

/// Flag of a filter that passes an event if any predicate holds, instead of all.
const FLAG_ANY: u64 = 1 << 24;
/// Flag of a filter that must pass, whatever the other filters do.
const FLAG_REQUIRED: u64 = 2 << 24;
/// The bits of a filter's head that hold the event id and version.
const EVENT_KEY_MASK: u64 = 0xFF_FFFF;
const FILTER_HEAD_WORDS: usize = 2;
const PREDICATE_HEAD_WORDS: usize = 2;

/// Compiles the section of a payload filter.
pub(super) fn compile(filters: &Filters<'_>) -> Vec<u64> {
    let mut out = vec![filters.iter().count() as u64];
    for filter in filters.iter() {
        let start = out.len();
        let (fields, predicates) = (filter.fields().count() as u64, filter.predicates().count() as u64);
        let flags = if filter.any { FLAG_ANY } else { 0 } | if filter.required { FLAG_REQUIRED } else { 0 };
        let head = event_key(filter.event_id, filter.event_version) | flags | fields << 32 | predicates << 40;
        out.extend([0, head]);
        out.extend(filter.fields().map(Field::to_word));
        for predicate in filter.predicates() {
            let operand = compile_operand(&predicate.value);
            let head = u64::from(predicate.field)
                | u64::from(predicate.kind.to_byte()) << 8
                | u64::from(predicate.operator.0) << 16;
            out.extend([(PREDICATE_HEAD_WORDS + operand.len()) as u64, head]);
            out.extend(operand);
        }
        out[start] = (out.len() - start) as u64;
    }
    out
}

#[inline(always)]
fn event_key(id: u16, version: u8) -> u64 {
    u64::from(id) | u64::from(version) << 16
}

fn compile_operand(value: &Value<'_>) -> Vec<u64> {
    match value {
        // The lower 64 bits hold every number; the type of the field determines the sign.
        Value::Numbers(low, high) => vec![*low as u64, *high as u64],
        Value::Guid(guid) => {
            guid.to_bytes().as_chunks().0.iter().map(|half| u64::from_le_bytes(*half)).collect()
        }
        Value::Text(text) => {
            let characters: Vec<u32> = text.chars().map(|c| fold_case(c.into())).collect();
            let mut out = vec![characters.len() as u64];
            let fallbacks = failure_function(&characters);
            out.extend(characters.iter().zip(fallbacks).map(|(c, back)| u64::from(*c) | back << 32));
            out
        }
    }
}

/// Returns the failure function: for each position, the length of the longest proper prefix of the
/// text that also ends there.
fn failure_function(text: &[u32]) -> Vec<u64> {
    let mut out = vec![0; text.len()];
    let mut length = 0;
    for at in 1..text.len() {
        while length > 0 && text[at] != text[length] {
            length = out[length - 1] as usize;
        }
        length += usize::from(text[at] == text[length]);
        out[at] = length as u64;
    }
    out
}

/// Returns whether a payload filter passes an event: of the filters for its id and version, all
/// required ones pass and, if there are others, one of them does.
#[inline(never)] // So that the frames of id and name checks do not include its frame.
pub(super) fn passes(words: CellWords<'_>, at: usize, event: &CallerEvent<'_>) -> bool {
    let (mut has_optional, mut has_passed) = (false, false);
    let mut filter = at + 1;
    for _ in 0..words.size(at) {
        let head = words.get(filter + 1);
        if head & EVENT_KEY_MASK == event_key(event.descriptor.id, event.descriptor.version) {
            let passes = || filter_passes(words, filter, head, event);
            if head & FLAG_REQUIRED != 0 {
                if !passes() {
                    return false;
                }
            } else {
                has_optional = true;
                has_passed = has_passed || passes();
            }
        }
        filter += words.size(filter);
    }
    !has_optional || has_passed
}

fn filter_passes(words: CellWords<'_>, at: usize, head: u64, event: &CallerEvent<'_>) -> bool {
    let (fields, predicates) = ((head >> 32) as usize & 0xFF, head >> 40 & 0xFF);
    let payload = PayloadReader::new(event);
    let mut positions = FieldPositions { fields: [(0, 0); MAX_FIELDS], count: 0 };
    find_fields(&mut positions, words, at + FILTER_HEAD_WORDS, fields, payload);
    let is_any = head & FLAG_ANY != 0;
    let mut predicate = at + FILTER_HEAD_WORDS + fields;
    for _ in 0..predicates {
        let holds = predicate_holds(words, predicate, &positions, payload).unwrap_or(false);
        if holds == is_any {
            return is_any;
        }
        predicate += words.size(predicate);
    }
    !is_any
}

/// The positions of the fields: the start of each and the bytes of its first element. Both have 16
/// bits, which suffices for a record: this may be on the small stack of a signal handler.
struct FieldPositions {
    fields: [(u16, u16); MAX_FIELDS],
    count: usize,
}

impl FieldPositions {
    /// Returns start and size of a field; `None` if the payload ends before it.
    fn get(&self, field: u8) -> Option<(u32, u32)> {
        let (start, first) = *self.fields.get(..self.count)?.get(usize::from(field))?;
        Some((start.into(), first.into()))
    }

    /// Adds the next field; `None` if there are too many.
    fn push(&mut self, start: u32, first: u32) -> Option<()> {
        *self.fields.get_mut(self.count)? = (u16::try_from(start).ok()?, u16::try_from(first).ok()?);
        self.count += 1;
        Some(())
    }
}

/// Finds the positions of the fields, up to the first field that the payload does not contain.
#[inline(never)]
fn find_fields(
    positions: &mut FieldPositions,
    words: CellWords<'_>,
    at: usize,
    count: usize,
    payload: PayloadReader<'_, '_>,
) {
    let mut start = 0;
    for index in 0..count {
        let Some(field) = Field::from_word(words.get(at + index)) else { break };
        let read_earlier = |earlier: u8| {
            let (start, bytes) = positions.get(earlier)?;
            u32::try_from(payload.read_number(start, bytes.min(8))?).ok()
        };
        let Some((first, total)) = measure_field(field, start, read_earlier, payload) else { break };
        let Some(()) = positions.push(start, first) else { break };
        start += total;
    }
}

/// Returns the bytes of a field's first element and of all elements; `None` if the payload ends
/// before the field does.
fn measure_field(
    field: Field,
    start: u32,
    read_earlier: impl Fn(u8) -> Option<u32>,
    payload: PayloadReader<'_, '_>,
) -> Option<(u32, u32)> {
    let count = match field.count {
        Count::Fixed(count) => u32::from(count),
        Count::Field(earlier) => read_earlier(earlier)?,
    };
    let fixed = match field.shape {
        Shape::Fixed(bytes) => Some(u32::from(bytes)),
        Shape::Length { field, unit } => Some(read_earlier(field)?.checked_mul(u32::from(unit))?),
        _ => None,
    };
    if let Some(bytes) = fixed {
        let total = bytes.checked_mul(count)?;
        return (start.checked_add(total)? <= payload.length())
            .then_some((if count == 0 { 0 } else { bytes }, total));
    }
    let (mut first, mut total) = (None, 0);
    // Each element takes at least one byte, so the payload bounds the steps.
    for _ in 0..count {
        let bytes = measure_element(field.shape, start + total, payload)?;
        first = first.or(Some(bytes));
        total += bytes;
    }
    Some((first.unwrap_or(0), total))
}

/// Returns the bytes of an element that encodes its own length.
fn measure_element(shape: Shape, start: u32, payload: PayloadReader<'_, '_>) -> Option<u32> {
    let bytes = match shape {
        Shape::Utf16Z => payload.bytes_until_nul(start, 2)?,
        Shape::AnsiZ => payload.bytes_until_nul(start, 1)?,
        Shape::Counted => 2 + payload.read_number(start, 2)? as u32,
        // Revision, number of parts, authority of six bytes, parts of four.
        Shape::Sid => 8 + 4 * payload.read_number(start + 1, 1)? as u32,
        Shape::Fixed(_) | Shape::Length { .. } => return None,
    };
    (start + bytes <= payload.length()).then_some(bytes)
}

/// Returns whether a predicate holds; `None` if its field is missing.
#[inline(never)]
fn predicate_holds(
    words: CellWords<'_>,
    at: usize,
    positions: &FieldPositions,
    payload: PayloadReader<'_, '_>,
) -> Option<bool> {
    let head = words.get(at + 1);
    let (field, kind, operator) =
        (head as u8, Type::from_byte((head >> 8) as u8)?, Operator((head >> 16) as u16));
    let (start, bytes) = positions.get(field)?;
    let operand = at + PREDICATE_HEAD_WORDS;
    Some(match kind {
        Type::Integer { bytes: width, signed } => {
            let value = payload.read_number(start, u32::from(width)).filter(|_| bytes >= u32::from(width))?;
            let low = extend(words.get(operand), 8, signed);
            compare(operator, extend(value, width, signed), low, extend(words.get(operand + 1), 8, signed))
        }
        Type::Guid => {
            let halves =
                (payload.read_number(start, 8)?, payload.read_number(start + 8, 8).filter(|_| bytes >= 16)?);
            let is_equal = halves == (words.get(operand), words.get(operand + 1));
            is_equal == (operator == Operator::IS)
        }
        Type::Utf16 => text_holds(words, operand, operator, payload.read_text(start, bytes, true)),
        Type::Ansi => text_holds(words, operand, operator, payload.read_text(start, bytes, false)),
    })
}

/// Sign-extends or zero-extends a number of `bytes` bytes.
fn extend(bits: u64, bytes: u8, signed: bool) -> i128 {
    let shift = 64 - 8 * u32::from(bytes.clamp(1, 8));
    if signed {
        i128::from((bits << shift).cast_signed() >> shift)
    } else {
        i128::from(bits << shift >> shift)
    }
}

fn compare(operator: Operator, value: i128, low: i128, high: i128) -> bool {
    match operator {
        Operator::EQ | Operator::IS => value == low,
        Operator::NE | Operator::ISNOT => value != low,
        Operator::LE => value <= low,
        Operator::GT => value > low,
        Operator::LT => value < low,
        Operator::GE => value >= low,
        Operator::BETWEEN => (low..=high).contains(&value),
        Operator::NOTBETWEEN => !(low..=high).contains(&value),
        Operator::MODULO => value.checked_rem(low) == Some(0),
        _ => false,
    }
}

fn text_holds(words: CellWords<'_>, at: usize, operator: Operator, text: FoldedText<'_>) -> bool {
    match operator {
        Operator::CONTAINS => contains(words, at, text),
        Operator::DOESNTCONTAIN => !contains(words, at, text),
        Operator::IS => text_equals(words, at, text),
        _ => !text_equals(words, at, text),
    }
}

fn text_equals(words: CellWords<'_>, at: usize, text: FoldedText<'_>) -> bool {
    let length = words.size(at);
    let mut seen = 0;
    for character in text {
        if seen >= length || words.get(at + 1 + seen) as u32 != character {
            return false;
        }
        seen += 1;
    }
    seen == length
}

fn contains(words: CellWords<'_>, at: usize, text: FoldedText<'_>) -> bool {
    let length = words.size(at);
    let wanted_character = |index: usize| words.get(at + 1 + index) as u32;
    let mut matched = 0;
    for character in text {
        while matched > 0 && (matched >= length || wanted_character(matched) != character) {
            // Always a step back, whatever the word contains: the content may be changing.
            let back = (words.get(at + matched) >> 32) as usize;
            matched = back.min(matched - 1);
        }
        matched += usize::from(wanted_character(matched) == character);
        if matched >= length {
            return true;
        }
    }
    length == 0
}
