//! Writes the extended data items that `@sid @tsid @key @start-key @event-key @container` add to an
//! event.
//!
//! ```text
//!   type     data           name        value
//!   item  2  SID            sid         S-1-22-1-1000
//!   item  3  u32            session     terminal session (Windows) or audit session (Linux)
//!   item  9  UTF-16         app         package or unit
//!   item 10  u64            event_key   identical in each session that received the event
//!   item 13  u64            start_key   start key of the process
//!   item 16  8-bit text     container   id of the container
//! ```
//!
//! Items whose data does not fit their type are left out.

use traceweir_decode::format::{hex_lower, push_decimal, push_escaped_text, push_json_string};
use traceweir_format::header::Record;
use traceweir_format::header::extended::Item;
use traceweir_format::security::Sid;
use traceweir_format::spec::event::ExtType;

/// The names of items, in the order of their columns.
pub(super) const ITEM_NAMES: [&str; 6] = ["sid", "session", "app", "start_key", "event_key", "container"];

#[derive(Debug, PartialEq, Eq)]
enum ItemValue {
    Text(String),
    Number(u32),
    Key(u64),
}

/// Returns the SID of the user who wrote the event, if an item contains it.
pub(super) fn find_sid(record: &Record<'_>) -> Option<Sid> {
    record.items().data_of(ExtType::SID).and_then(|data| Sid::parse(data).ok())
}

/// Appends `,"name":value` for each known item.
pub(super) fn push_json(record: &Record<'_>, out: &mut Vec<u8>) {
    for (name, value) in record.items().filter_map(parse_item) {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            ItemValue::Text(text) => push_json_string(&text, out),
            ItemValue::Number(number) => push_decimal(number, out),
            ItemValue::Key(key) => {
                out.extend_from_slice(b"\"0x");
                hex_lower(key, out);
                out.push(b'"');
            }
        }
    }
}

/// Appends ` {name=value …}`, if there are known items.
pub(super) fn push_text(record: &Record<'_>, out: &mut Vec<u8>) {
    let mut is_first = true;
    for (name, value) in record.items().filter_map(parse_item) {
        out.extend_from_slice(if is_first { b" {" } else { b" " });
        is_first = false;
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        push_item_value(&value, out);
    }
    if !is_first {
        out.push(b'}');
    }
}

/// Appends the value of the item of this name, if the event has it.
pub(super) fn push_item(record: &Record<'_>, name: &str, out: &mut Vec<u8>) {
    if let Some((_, value)) = record.items().filter_map(parse_item).find(|(key, _)| *key == name) {
        push_item_value(&value, out);
    }
}

fn push_item_value(value: &ItemValue, out: &mut Vec<u8>) {
    match value {
        ItemValue::Text(text) => push_escaped_text(text.as_bytes(), out),
        ItemValue::Number(number) => push_decimal(*number, out),
        ItemValue::Key(key) => {
            out.extend_from_slice(b"0x");
            hex_lower(*key, out);
        }
    }
}

fn parse_item(item: Item<'_>) -> Option<(&'static str, ItemValue)> {
    let parse_key = |data: &[u8]| data.try_into().ok().map(u64::from_le_bytes).map(ItemValue::Key);
    Some(match item.kind {
        ExtType::SID => ("sid", ItemValue::Text(Sid::parse(item.data).ok()?.to_string())),
        ExtType::TS_ID => ("session", ItemValue::Number(u32::from_le_bytes(item.data.try_into().ok()?))),
        ExtType::PSM_KEY => ("app", ItemValue::Text(decode_utf16_z(item.data))),
        ExtType::EVENT_KEY => ("event_key", parse_key(item.data)?),
        ExtType::PROCESS_START_KEY => ("start_key", parse_key(item.data)?),
        ExtType::CONTAINER_ID => {
            let text = item.data.split(|byte| *byte == 0).next().unwrap_or_default();
            ("container", ItemValue::Text(String::from_utf8_lossy(text).into_owned()))
        }
        _ => return None,
    })
}

/// Decodes UTF-16 text up to its NUL.
fn decode_utf16_z(data: &[u8]) -> String {
    let units = data.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units.take_while(|unit| *unit != 0)).map(|c| c.unwrap_or('\u{FFFD}')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_item_data(kind: ExtType, data: &[u8]) -> Option<(&'static str, ItemValue)> {
        parse_item(Item { kind, data })
    }

    #[test]
    fn known_items_parse_and_invalid_ones_are_left_out() {
        let sid = [1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xE8, 3, 0, 0];
        let text = |text: &str| ItemValue::Text(text.to_owned());
        assert_eq!(parse_item_data(ExtType::SID, &sid), Some(("sid", text("S-1-22-1-1000"))));
        assert_eq!(parse_item_data(ExtType::SID, &sid[..15]), None);
        assert_eq!(parse_item_data(ExtType::TS_ID, &[7, 0, 0, 0]), Some(("session", ItemValue::Number(7))));
        assert_eq!(parse_item_data(ExtType::TS_ID, &[7]), None);
        assert_eq!(parse_item_data(ExtType::PSM_KEY, b"a\0b\0\0\0c\0"), Some(("app", text("ab"))));
        assert_eq!(parse_item_data(ExtType::PSM_KEY, &[0, 0xD8, 1]), Some(("app", text("\u{FFFD}"))));
        assert_eq!(
            parse_item_data(ExtType::EVENT_KEY, &9_u64.to_le_bytes()),
            Some(("event_key", ItemValue::Key(9)))
        );
        assert_eq!(parse_item_data(ExtType::PROCESS_START_KEY, &[0; 7]), None);
        assert_eq!(parse_item_data(ExtType::CONTAINER_ID, b"abc\0\0"), Some(("container", text("abc"))));
        assert_eq!(parse_item_data(ExtType::STACK_TRACE64, &[0; 16]), None);
    }
}
