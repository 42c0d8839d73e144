//! A start tag with its attributes, and the definitions that need nothing but the attributes.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;

use super::invalid;
use super::raw::{Channel, Definition, Event, Field, Filter, Map, MapEntry, Shape, Size};
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
            let attribute = attribute.map_err(|e| invalid(offset, e.to_string()))?;
            if attributes.len() >= MAX_ATTRIBUTES {
                return Err(invalid(offset, "too many attributes"));
            }
            let value = attribute
                .normalized_value(XmlVersion::Explicit1_0)
                .map_err(|e| invalid(offset, e.to_string()))?;
            attributes.push((attribute.key.0, value));
        }
        Ok(Self { offset, name: start.local_name().into_inner(), attributes })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }

    /// Returns whether an attribute has a value, ignoring case.
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name).is_some_and(|v| v.eq_ignore_ascii_case(value))
    }

    /// Removes and returns an attribute. An empty one counts as absent, because EventSource writes
    /// such attributes for what it cannot name.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let (_, value) = self.attributes.iter_mut().find(|(key, _)| *key == name)?;
        let value = std::mem::take(value);
        if value.trim().is_empty() { None } else { Some(value.into_owned()) }
    }

    /// Removes and returns an attribute that must be present.
    pub(super) fn required(&mut self, name: &str) -> Result<String> {
        let present = self.get(name).is_some();
        let text = self.text(name);
        text.or_else(|| present.then(String::new)).ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> crate::Error {
        invalid(self.offset, format!("element {} has no attribute {name}", self.name))
    }

    /// Returns an attribute that events, fields and filters do not have; attributes of other
    /// namespaces are allowed.
    pub(super) fn unknown_attribute(&self) -> Option<&'t str> {
        let known: &[&str] = match self.name {
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
        keys.filter(|key| *key != "xmlns" && !key.contains(':')).find(|key| !known.contains(key))
    }

    /// Parses a number up to `most`, decimal or hexadecimal with `0x`.
    fn number(&self, name: &str, most: u64) -> Result<Option<u64>> {
        let Some(text) = self.get(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
        match parse_number(text).filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(self.offset, format!("{name} {text} is not a number up to {most}"))),
        }
    }

    /// Parses a number that must be present.
    pub(super) fn required_number(&self, name: &str, most: u64) -> Result<u64> {
        self.number(name, most)?.ok_or_else(|| self.missing(name))
    }

    fn byte(&self, name: &str) -> Result<Option<u8>> {
        Ok(self.number(name, u8::MAX.into())?.and_then(|n| u8::try_from(n).ok()))
    }

    /// Reads a name for a number, which is in attribute `value`.
    pub(super) fn definition(&mut self, value: &str, most: u64) -> Result<Definition> {
        let value = self.required_number(value, most)?;
        Ok(Definition {
            offset: self.offset,
            name: self.required("name")?,
            value,
            message: self.text("message"),
            symbol: self.text("symbol"),
        })
    }

    pub(super) fn channel(&mut self) -> Result<Channel> {
        let (value, imported) = (self.byte("value")?, self.name == "importChannel");
        Ok(Channel {
            offset: self.offset,
            id: self.text("chid"),
            name: self.required("name")?,
            value,
            message: self.text("message"),
            symbol: self.text("symbol"),
            imported,
        })
    }

    pub(super) fn map(&mut self) -> Result<Map> {
        let (offset, bits) = (self.offset, self.name == "bitMap");
        Ok(Map {
            offset,
            name: self.required("name")?,
            bits,
            symbol: self.text("symbol"),
            entries: Vec::new(),
        })
    }

    pub(super) fn map_entry(&mut self) -> Result<MapEntry> {
        Ok(MapEntry {
            offset: self.offset,
            value: self.required_number("value", u64::MAX)?,
            message: self.text("message").unwrap_or_default(),
            symbol: self.text("symbol"),
        })
    }

    pub(super) fn data(&mut self) -> Result<Field> {
        let input = self.required("inType")?;
        let input = winmeta::in_type(&input)
            .ok_or_else(|| invalid(self.offset, format!("inType {input} is not known")))?;
        let output = self.text("outType").map(|name| winmeta::out_type(&name)).unwrap_or_default();
        let map = self.text("map");
        self.field(Shape::Value { input, output, map })
    }

    pub(super) fn field(&mut self, shape: Shape) -> Result<Field> {
        let (count, length) = (self.size("count")?, self.size("length")?);
        Ok(Field { offset: self.offset, name: self.required("name")?, shape, count, length })
    }

    /// Reads a count or length. Names of fields do not start with a digit.
    fn size(&mut self, name: &str) -> Result<Option<Size>> {
        let is_number =
            self.get(name).is_some_and(|text| text.trim().starts_with(|c: char| c.is_ascii_digit()));
        if is_number {
            let number = self.number(name, u16::MAX.into())?.and_then(|n| u16::try_from(n).ok());
            return Ok(number.map(Size::Number));
        }
        Ok(self.text(name).map(Size::Field))
    }

    pub(super) fn event(&mut self) -> Result<Event> {
        let id = u16::try_from(self.required_number("value", u16::MAX.into())?).unwrap_or_default();
        Ok(Event {
            offset: self.offset,
            id,
            version: self.byte("version")?.unwrap_or(0),
            level: self.text("level"),
            opcode: self.text("opcode"),
            task: self.text("task"),
            keywords: self.text("keywords"),
            channel: self.text("channel"),
            template: self.text("template"),
            message: self.text("message"),
            symbol: self.text("symbol"),
        })
    }

    pub(super) fn filter(&mut self) -> Result<Filter> {
        let id = u8::try_from(self.required_number("value", u8::MAX.into())?).unwrap_or_default();
        self.required("name")?;
        Ok(Filter {
            offset: self.offset,
            id,
            version: self.byte("version")?.unwrap_or(0),
            template: self.text("tid"),
            message: self.text("message"),
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
