//! Checks that the expected outputs are valid in their formats, and agree with each other.

use quick_xml::events::Event;
use serde_json::Value;

use super::{make, run_view};

/// Parses CSV text into rows of cells. Fails if the text violates RFC 4180.
pub(crate) fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                assert!(cell.is_empty(), "a quote is inside an unquoted cell: {cell}");
                loop {
                    match chars.next().expect("a quoted cell does not end") {
                        '"' if chars.peek() == Some(&'"') => {
                            chars.next();
                            cell.push('"');
                        }
                        '"' => break,
                        c => cell.push(c),
                    }
                }
                assert!(
                    matches!(chars.peek(), Some(',' | '\r')),
                    "neither a comma nor a line ending follows the closing quote of {cell}"
                );
            }
            ',' => row.push(std::mem::take(&mut cell)),
            '\r' => {
                assert_eq!(chars.next(), Some('\n'), "a carriage return without a line feed");
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            '\n' => panic!("a line feed without a carriage return"),
            c => cell.push(c),
        }
    }
    assert!(row.is_empty() && cell.is_empty(), "the last row has no line ending");
    rows
}

/// Parses an XML document and returns the names of all its elements. Fails if the document is not
/// well-formed.
pub(crate) fn parse_xml(text: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let (mut names, mut depth) = (Vec::new(), 0_usize);
    loop {
        match reader
            .read_event()
            .unwrap_or_else(|error| panic!("the XML is invalid at {}: {error}", reader.error_position()))
        {
            Event::Start(element) => {
                depth += 1;
                check_attributes(&element);
                names.push(element.name().as_ref().to_owned());
            }
            Event::Empty(element) => {
                check_attributes(&element);
                names.push(element.name().as_ref().to_owned());
            }
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "an element is not closed");
    let is_forbidden = |c: char| (c < ' ' && !"\t\r\n".contains(c)) || matches!(c, '\u{FFFE}' | '\u{FFFF}');
    assert!(!text.contains(is_forbidden), "a character is not allowed in XML 1.0");
    names
}

fn check_attributes(element: &quick_xml::events::BytesStart<'_>) {
    for attribute in element.attributes() {
        attribute.unwrap_or_else(|error| panic!("an attribute is invalid: {error}"));
    }
}

#[test]
fn all_formats_hold_the_same_events() {
    for (trace, _) in make::make_fixtures() {
        let json = run_view(trace, "jsonl").json();
        let rows = parse_csv(&run_view(trace, "csv").text());
        let elements = parse_xml(&run_view(trace, "xml").text());
        let lines = run_view(trace, "text").text().lines().count();
        let events = json.len();
        assert!(events > 0, "{trace} has no events");
        assert_eq!(rows.len() - 1, events, "{trace}: CSV rows");
        assert_eq!(elements.iter().filter(|name| *name == "Event").count(), events, "{trace}: XML events");
        // Each fixture has one event that describes the file: its header.
        assert_eq!(lines, events - 1, "{trace}: lines of text");
        let column = |name: &str| rows[0].iter().position(|cell| cell == name).unwrap();
        for (object, row) in json.iter().zip(&rows[1..]) {
            assert_eq!(row.len(), rows[0].len(), "{trace}: cells of {row:?}");
            assert_eq!(object["time"], row[column("time")], "{trace}");
            assert_eq!(object["event"].as_str().unwrap_or_default(), row[column("event")], "{trace}");
            assert_eq!(object["undecoded"].as_str().unwrap_or_default(), row[column("undecoded")], "{trace}");
            assert_eq!(object["raw"].as_str().unwrap_or_default(), row[column("raw")], "{trace}");
        }
    }
}

#[test]
fn every_undecodable_event_has_a_reason_and_keeps_its_bytes() {
    for object in run_view("undecodable", "jsonl").json() {
        // The log-file header, payloads that are too long, and texts without a terminator are
        // decoded.
        let name = object["event"].as_str().unwrap_or_default();
        if matches!(name, "Header" | "EventTrace/Header" | "Long" | "NoEnd") {
            assert_eq!(object["undecoded"], Value::Null, "{object}");
            continue;
        }
        assert!(object["undecoded"].as_str().is_some_and(|reason| !reason.is_empty()), "no reason: {object}");
        assert!(object["raw"].is_string(), "no bytes: {object}");
    }
}
