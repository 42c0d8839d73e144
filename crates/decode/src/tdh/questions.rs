//! Queries about one event, for a decoder that has its schema: the decoder of a
//! [`Library`](super::Library), or one that has read a trace.

use std::borrow::Cow;

use traceweir_format::wire::u16_at;

use super::expand::MetadataSizes;
use super::image::{Image, map_info};
use super::property::{self, Wanted};
use super::{Answer, MAX_ANSWER, Refusal};
use crate::schema::{Count, Field, Kind, Schema};
use crate::source::{Decoder, Event, Found};
use crate::value::Value;
use crate::walk::{Visitor, Walker};

impl Decoder {
    /// Returns the TRACE_EVENT_INFO of an event; the caller fills in the descriptor.
    pub fn event_info(&mut self, event: &Event<'_>, pointer_size: usize) -> Answer<Cow<'_, [u8]>> {
        let found = self.find_event(event)?;
        if let Some(sizes) = metadata_sizes(event, &found) {
            let image = Image::with_metadata_before(&found.known.schema, Some(sizes));
            return Ok(info_of(&image, &found.known.schema, event.payload, pointer_size)?
                .into_owned()
                .into());
        }
        info_of(found.known.image(), &found.known.schema, found.payload, pointer_size)
    }

    /// Returns the bytes of a property.
    pub fn property<'p>(
        &mut self,
        event: &Event<'p>,
        pointer_size: usize,
        wanted: &[Wanted<'_>],
    ) -> Answer<&'p [u8]> {
        let found = self.find_event(event)?;
        if let Some(sizes) = metadata_sizes(event, &found) {
            let image = Image::with_metadata_before(&found.known.schema, Some(sizes));
            return property::find(image.schema(&found.known.schema), event.payload, pointer_size, wanted);
        }
        let schema = found.known.image().schema(&found.known.schema);
        property::find(schema, found.payload, pointer_size, wanted)
    }

    /// Returns the EVENT_MAP_INFO of a map of the event, by its name.
    pub fn map(&mut self, event: &Event<'_>, name: &str) -> Answer<Vec<u8>> {
        let map = map_of(&self.find_event(event)?.known.schema, name);
        map.ok_or(Refusal::NotFound("map of this name")).and_then(bounded)
    }
}

/// Returns the sizes of the metadata before the payload that a schema describes; `None` if the
/// schema describes all of it, which is the usual case.
#[inline]
fn metadata_sizes(event: &Event<'_>, found: &Found<'_, '_>) -> Option<MetadataSizes> {
    let size = event.payload.len().checked_sub(found.payload.len()).filter(|size| *size > 0)?;
    let traits = u16_at(event.payload, 0);
    let metadata = u16::try_from(size).ok()?.checked_sub(traits)?;
    Some([traits, metadata])
}

fn info_of<'i>(image: &'i Image, own: &Schema, payload: &[u8], pointer_size: usize) -> Answer<Cow<'i, [u8]>> {
    let bytes = image.bytes().ok_or(Refusal::TooLarge)?;
    let Some(open) = image.open_property() else { return Ok(bytes.into()) };
    let mut count = Elements { index: open.index(), count: 0 };
    // If the payload is too short, the elements that it holds count.
    let _ = Walker::default().walk(image.schema(own), payload, pointer_size, &mut count);
    Ok(image.closed(open, count.count).into())
}

/// Encodes the map of this name that a field of the schema has, as EVENT_MAP_INFO.
pub(super) fn map_of(schema: &Schema, name: &str) -> Option<Vec<u8>> {
    schema.fields().iter().find_map(|field| match &field.kind {
        Kind::Value { map: Some(map), .. } if *map.name == *name => Some(map_info(map, schema.origin)),
        _ => None,
    })
}

/// Returns a structure unless it is larger than [`MAX_ANSWER`].
pub(super) fn bounded(bytes: Vec<u8>) -> Answer<Vec<u8>> {
    if bytes.len() > MAX_ANSWER { Err(Refusal::TooLarge) } else { Ok(bytes) }
}

/// Counts the elements of one array, or the bytes of one value.
struct Elements {
    index: usize,
    count: u16,
}

impl<'p> Visitor<'p> for Elements {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        // An array of characters arrives as one text.
        let met = match (value, &field.kind) {
            (Value::Text16(text), Kind::Value { input, .. }) if input.size(8).is_some() => text.len() / 2,
            (Value::Text8(text), Kind::Value { input, .. }) if input.size(8).is_some() => text.len(),
            (Value::Bytes(bytes), _) if field.count == Count::One => bytes.len(),
            _ => 1,
        };
        if index == self.index {
            self.count = self.count.saturating_add(u16::try_from(met).unwrap_or(u16::MAX));
        }
    }
    fn begin_array(&mut self, _index: usize, _field: &Field, _count: usize) {}
    fn end_array(&mut self, _index: usize, _field: &Field) {}
    fn begin_struct(&mut self, index: usize, _field: &Field) {
        if index == self.index {
            self.count = self.count.saturating_add(1);
        }
    }
    fn end_struct(&mut self, _index: usize, _field: &Field) {}
}
