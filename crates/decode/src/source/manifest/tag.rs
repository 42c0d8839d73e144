//! A start tag with its attributes, and the definitions that need nothing but the attributes.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;

use super::manifest_error;
use super::raw::{
    RawChannel, RawDefinition, RawEvent, RawField, RawFilter, RawMap, RawMapEntry, RawShape, RawSize,
};
use super::winmeta;
use crate::Result;

/// The most attributes of an element; the check for duplicates compares each with each.
const MAX_ATTRIBUTES: usize = 64;

pub(super) struct Tag<'t> {
    /// Byte offset of the tag.
    pub(super) offset: u64,
    /// Name of the element without prefix.
    pub(super) name: &'t str,
    attributes: Vec<(&'t str, Cow<'t, str>)>,
}

impl<'t> Tag<'t> {
    pub(super) fn new(start: &'t BytesStart<'_>, offset: u64) -> Result<Self> {
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|e| manifest_error(offset, e.to_string()))?;
            if attributes.len() >= MAX_ATTRIBUTES {
                return Err(manifest_error(offset, "too many attributes"));
            }
            let value = attribute
                .normalized_value(XmlVersion::Explicit1_0)
                .map_err(|e| manifest_error(offset, e.to_string()))?;
            attributes.push((attribute.key.0, value));
        }
        Ok(Self { offset, name: start.local_name().into_inner(), attributes })
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }

    /// Returns whether an attribute has this value, ignoring case.
    pub(super) fn attribute_equals(&self, name: &str, value: &str) -> bool {
        self.attribute(name).is_some_and(|v| v.eq_ignore_ascii_case(value))
    }

    /// Takes the value out of an attribute. An empty attribute counts as absent, because
    /// EventSource writes empty attributes for names that it does not have.
    pub(super) fn take_text(&mut self, name: &str) -> Option<String> {
        let (_, value) = self.attributes.iter_mut().find(|(key, _)| *key == name)?;
        let value = std::mem::take(value);
        if value.trim().is_empty() { None } else { Some(value.into_owned()) }
    }

    /// Takes the value out of an attribute that must be present but may be empty.
    pub(super) fn take_required(&mut self, name: &str) -> Result<String> {
        let is_present = self.attribute(name).is_some();
        let text = self.take_text(name);
        text.or_else(|| is_present.then(String::new)).ok_or_else(|| self.missing_attribute(name))
    }

    fn missing_attribute(&self, name: &str) -> crate::Error {
        manifest_error(self.offset, format!("element {} has no attribute {name}", self.name))
    }

    /// Returns an attribute that an event, field or filter must not have; attributes of other
    /// namespaces are allowed.
    pub(super) fn unknown_attribute(&self) -> Option<&'t str> {
        let attributes: &[&str] = match self.name {
            "event" => &[
                "value",
                "version",
                "symbol",
                "level",
                "task",
                "opcode",
                "keywords",
                "channel",
                "template",
                "message",
                "notLogged",
                "attributes",
                "tags",
            ],
            "data" => &["name", "inType", "outType", "map", "count", "length", "tags"],
            "struct" => &["name", "count", "tags"],
            "filter" => &["name", "value", "version", "tid", "symbol", "message"],
            _ => return None,
        };
        let keys = self.attributes.iter().map(|(key, _)| *key);
        keys.filter(|key| *key != "xmlns" && !key.contains(':')).find(|key| !attributes.contains(key))
    }

    /// Parses an attribute as a number up to `max`, decimal or hexadecimal with `0x`. Returns
    /// `None` if the attribute is absent or empty.
    fn parse_optional_number(&self, name: &str, max: u64) -> Result<Option<u64>> {
        let Some(text) = self.attribute(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
        match parse_number(text).filter(|number| *number <= max) {
            Some(number) => Ok(Some(number)),
            None => Err(manifest_error(self.offset, format!("{name} {text} is not a number up to {max}"))),
        }
    }

    /// Parses an attribute that must be present as a number up to `max`.
    pub(super) fn parse_required_number(&self, name: &str, max: u64) -> Result<u64> {
        self.parse_optional_number(name, max)?.ok_or_else(|| self.missing_attribute(name))
    }

    fn parse_optional_byte(&self, name: &str) -> Result<Option<u8>> {
        Ok(self.parse_optional_number(name, u8::MAX.into())?.and_then(|n| u8::try_from(n).ok()))
    }

    /// Reads a name for a number. The number is in attribute `number_attribute`.
    pub(super) fn read_definition(&mut self, number_attribute: &str, max: u64) -> Result<RawDefinition> {
        let value = self.parse_required_number(number_attribute, max)?;
        Ok(RawDefinition {
            offset: self.offset,
            name: self.take_required("name")?,
            value,
            message: self.take_text("message"),
            symbol: self.take_text("symbol"),
        })
    }

    pub(super) fn read_channel(&mut self) -> Result<RawChannel> {
        let (value, is_imported) = (self.parse_optional_byte("value")?, self.name == "importChannel");
        Ok(RawChannel {
            offset: self.offset,
            id: self.take_text("chid"),
            name: self.take_required("name")?,
            value,
            message: self.take_text("message"),
            symbol: self.take_text("symbol"),
            is_imported,
        })
    }

    pub(super) fn read_map(&mut self) -> Result<RawMap> {
        let (offset, is_bit_map) = (self.offset, self.name == "bitMap");
        Ok(RawMap {
            offset,
            name: self.take_required("name")?,
            is_bit_map,
            symbol: self.take_text("symbol"),
            entries: Vec::new(),
        })
    }

    pub(super) fn read_map_entry(&mut self) -> Result<RawMapEntry> {
        Ok(RawMapEntry {
            offset: self.offset,
            value: self.parse_required_number("value", u64::MAX)?,
            message: self.take_text("message").unwrap_or_default(),
            symbol: self.take_text("symbol"),
        })
    }

    pub(super) fn read_data_field(&mut self) -> Result<RawField> {
        let input = self.take_required("inType")?;
        let input = winmeta::find_in_type(&input)
            .ok_or_else(|| manifest_error(self.offset, format!("inType {input} is not known")))?;
        let output = self.take_text("outType").map(|name| winmeta::find_out_type(&name)).unwrap_or_default();
        let map = self.take_text("map");
        self.read_field(RawShape::Value { input, output, map })
    }

    pub(super) fn read_field(&mut self, shape: RawShape) -> Result<RawField> {
        let (count, length) = (self.read_size("count")?, self.read_size("length")?);
        Ok(RawField { offset: self.offset, name: self.take_required("name")?, shape, count, length })
    }

    /// Reads a count or length: a number if it starts with a digit, else the name of a field.
    fn read_size(&mut self, name: &str) -> Result<Option<RawSize>> {
        let is_number =
            self.attribute(name).is_some_and(|text| text.trim().starts_with(|c: char| c.is_ascii_digit()));
        if is_number {
            let number =
                self.parse_optional_number(name, u16::MAX.into())?.and_then(|n| u16::try_from(n).ok());
            return Ok(number.map(RawSize::Number));
        }
        Ok(self.take_text(name).map(RawSize::Field))
    }

    pub(super) fn read_event(&mut self) -> Result<RawEvent> {
        let id = u16::try_from(self.parse_required_number("value", u16::MAX.into())?).unwrap_or_default();
        Ok(RawEvent {
            offset: self.offset,
            id,
            version: self.parse_optional_byte("version")?.unwrap_or(0),
            level: self.take_text("level"),
            opcode: self.take_text("opcode"),
            task: self.take_text("task"),
            keywords: self.take_text("keywords"),
            channel: self.take_text("channel"),
            template: self.take_text("template"),
            message: self.take_text("message"),
            symbol: self.take_text("symbol"),
        })
    }

    pub(super) fn read_filter(&mut self) -> Result<RawFilter> {
        let id = u8::try_from(self.parse_required_number("value", u8::MAX.into())?).unwrap_or_default();
        self.take_required("name")?;
        Ok(RawFilter {
            offset: self.offset,
            id,
            version: self.parse_optional_byte("version")?.unwrap_or(0),
            template: self.take_text("tid"),
            message: self.take_text("message"),
        })
    }
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}
