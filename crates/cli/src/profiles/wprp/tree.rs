//! Reads the XML of a recording profile to a tree of elements, with limits.
//!
//! Text between elements is ignored, because a recording profile keeps its values in attributes.
//! Declarations of document types and entities are refused, so the tree is never larger than the
//! file.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use crate::profiles::file::ProfileError;

pub(super) type ProfileResult<T> = Result<T, ProfileError>;

/// The deepest nesting; profiles need 8.
const MAX_DEPTH: usize = 32;
const MAX_ELEMENTS: usize = 5_000;
/// The most attributes of an element; the check for duplicates compares each with each.
const MAX_ATTRIBUTES: usize = 64;

/// An element with its attributes and children.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) children: Vec<Element>,
    attributes: Vec<(String, String)>,
}

impl Element {
    /// Returns the value of an attribute; an empty value counts as absent.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns an attribute that must be present.
    pub(super) fn required(&self, name: &str) -> ProfileResult<&str> {
        self.attribute(name).ok_or_else(|| self.error(format!("{} has no attribute {name}", self.name)))
    }

    /// Returns whether a Boolean attribute is set.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.attribute(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }

    /// Returns the children with a name.
    pub(super) fn children_named<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the first child with a name.
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns an error at this element.
    pub(super) fn error(&self, reason: impl Into<String>) -> ProfileError {
        ProfileError { line: self.line, column: 1, reason: reason.into() }
    }
}

/// Reads the tree, and returns its root.
pub(super) fn parse(text: &str) -> ProfileResult<Element> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut lines = LineCounter { text, offset: 0, line: 1 };
    // The first entry is a parent for the root.
    let mut open = vec![Element::default()];
    let mut count = 0;
    loop {
        let line = lines.line_at(reader.buffer_position());
        let error = |reason: String| ProfileError { line, column: 1, reason };
        match reader.read_event().map_err(|cause| error(format!("invalid XML: {cause}")))? {
            Event::Start(start) => {
                count += 1;
                if count > MAX_ELEMENTS || open.len() > MAX_DEPTH {
                    let limits = format!("at most {MAX_ELEMENTS} elements, nested {MAX_DEPTH} deep");
                    return Err(error(format!("a profile has {limits}")));
                }
                open.push(read_element(&start, line).map_err(error)?);
            }
            Event::End(_) => {
                let Some(element) = open.pop() else { break };
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => break,
                }
            }
            Event::DocType(_) => {
                return Err(error("document type declarations are not accepted".to_owned()));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let last_line = lines.line_at(text.len() as u64);
    let end_error = |reason: &str| ProfileError { line: last_line, column: 1, reason: reason.to_owned() };
    match (open.pop(), open.is_empty()) {
        (Some(document), true) => {
            document.children.into_iter().next().ok_or_else(|| end_error("the file has no element"))
        }
        _ => Err(end_error("the file ends inside an element")),
    }
}

fn read_element(start: &BytesStart<'_>, line: usize) -> Result<Element, String> {
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        if attributes.len() >= MAX_ATTRIBUTES {
            return Err("too many attributes".to_owned());
        }
        let value = attribute.normalized_value(XmlVersion::Explicit1_0).map_err(|error| error.to_string())?;
        attributes.push((attribute.key.local_name().into_inner().to_owned(), value.into_owned()));
    }
    let name = start.local_name().into_inner().to_owned();
    Ok(Element { name, line, attributes, children: Vec::new() })
}

/// Counts lines up to offsets that increase.
struct LineCounter<'t> {
    text: &'t str,
    offset: usize,
    line: usize,
}

impl LineCounter<'_> {
    fn line_at(&mut self, offset: u64) -> usize {
        let end = usize::try_from(offset).unwrap_or(usize::MAX).min(self.text.len());
        let passed = self.text.as_bytes().get(self.offset..end).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.offset = self.offset.max(end);
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_has_attributes_children_and_lines() {
        let root =
            parse("<?xml version=\"1.0\"?>\n<A x='1' y=''>\n <B/>\n <n:C v='a &amp; b'/>text</A>").unwrap();
        assert_eq!((root.name.as_str(), root.line, root.children.len()), ("A", 2, 2));
        assert_eq!((root.attribute("x"), root.attribute("y")), (Some("1"), None));
        assert_eq!((root.children[1].line, root.children[1].attribute("v")), (4, Some("a & b")));
    }

    #[test]
    fn hostile_xml_is_refused_with_its_line() {
        let deep = "<a>".repeat(MAX_DEPTH + 1);
        let wide = format!("<a>{}</a>", "<b/>".repeat(MAX_ELEMENTS));
        let attributes: String = (0..=MAX_ATTRIBUTES).map(|n| format!(" a{n}='1'")).collect();
        for (text, expected) in [
            ("", "no element"),
            ("\n\n<a>", "ends inside"),
            ("<a></b>", "invalid XML"),
            ("<a x='1' x='2'/>", "duplicated"),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "not accepted"),
            ("<a x='&b;'/>", "b"),
            (deep.as_str(), "nested"),
            (wide.as_str(), "elements"),
            (format!("<a{attributes}/>").as_str(), "too many attributes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.reason.contains(expected), "{text:.40}: {error:?}");
        }
        assert_eq!(parse("\n\n<a>").unwrap_err().line, 3);
    }
}
