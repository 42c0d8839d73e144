//! The extended data items of an event that say more about its writer.

use traceweir_format::header::Record;
use traceweir_format::header::extended::Item;
use traceweir_format::security::Sid;
use traceweir_format::spec::event::ExtType;

/// The value of an extended data item.
pub(crate) enum ItemValue {
    /// A text, such as a SID.
    Text(String),
    /// A number, such as a key.
    Number(u64),
}

/// Returns the names and values of the known items. Items whose data does not fit their type are
/// left out.
pub(crate) fn list_items(record: &Record<'_>) -> Vec<(&'static str, ItemValue)> {
    record.items().filter_map(parse_item).collect()
}

fn parse_item(item: Item<'_>) -> Option<(&'static str, ItemValue)> {
    let read_key = || item.data.try_into().ok().map(u64::from_le_bytes).map(ItemValue::Number);
    Some(match item.kind {
        ExtType::SID => ("sid", ItemValue::Text(Sid::parse(item.data).ok()?.to_string())),
        ExtType::TS_ID => {
            ("session", ItemValue::Number(u32::from_le_bytes(item.data.try_into().ok()?).into()))
        }
        ExtType::PSM_KEY => ("app", ItemValue::Text(decode_utf16_until_nul(item.data))),
        ExtType::EVENT_KEY => ("event_key", read_key()?),
        ExtType::PROCESS_START_KEY => ("start_key", read_key()?),
        ExtType::CONTAINER_ID => {
            let text = item.data.split(|byte| *byte == 0).next().unwrap_or_default();
            ("container", ItemValue::Text(String::from_utf8_lossy(text).into_owned()))
        }
        _ => return None,
    })
}

fn decode_utf16_until_nul(data: &[u8]) -> String {
    let units = data.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units.take_while(|unit| *unit != 0))
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}
