//! Item types: the layout of one argument of a WPP message in the payload.
//!
//! ```text
//!   ItemLong                         i32               ItemString    bytes, NUL
//!   ItemPtr                          4 or 8 bytes      ItemPWString  u16 byte count, UTF-16
//!   ItemListByte(false,true)         u8, value → name  ItemHEXDump   u16 byte count, bytes
//!   ItemSetLong(Read,Write,Delete)   u32, bit → name   ItemSid       SID
//! ```
//!
//! Item types are compared ignoring case. The list entries in parentheses name the values or bits
//! from 0 on. `ItemEnum` refers to a type in the PDB: the value is shown as a number, because the
//! names are not looked up.
//!
//! Source: Documented for the meaning ("What are the WPP extended format specification strings?",
//! `defaultwpp.ini` of the Windows SDK); sizes as in public readers of WPP traces.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::spec::types::{InType, OutType};

use crate::schema::{Count, Field, Length, ValueMap};

/// The most names in all lists of one file together.
const MAX_NAMES: usize = 1_000_000;

/// Item name, in type, out type, and the length in bytes if the type needs one (else 0).
#[rustfmt::skip]
const ITEM_TYPES: &[(&str, InType, OutType, u16)] = &[
    ("ItemChar",         InType::ANSICHAR,          OutType::NULL,       0),
    ("ItemUChar",        InType::UINT8,             OutType::NULL,       0),
    ("ItemWChar",        InType::UNICODECHAR,       OutType::NULL,       0),
    ("ItemChar4",        InType::ANSISTRING,        OutType::NULL,       4),
    ("ItemShort",        InType::INT16,             OutType::NULL,       0),
    ("ItemUShort",       InType::UINT16,            OutType::NULL,       0),
    ("ItemLong",         InType::INT32,             OutType::NULL,       0),
    ("ItemULong",        InType::UINT32,            OutType::NULL,       0),
    ("ItemULongX",       InType::HEXINT32,          OutType::NULL,       0),
    ("ItemLongLong",     InType::INT64,             OutType::NULL,       0),
    ("ItemULongLong",    InType::UINT64,            OutType::NULL,       0),
    ("ItemLongLongX",    InType::HEXINT64,          OutType::NULL,       0),
    ("ItemLongLongXX",   InType::HEXINT64,          OutType::NULL,       0),
    ("ItemLongLongO",    InType::INT64,             OutType::NULL,       0),
    ("ItemULongLongX",   InType::HEXINT64,          OutType::NULL,       0),
    ("ItemULongLongXX",  InType::HEXINT64,          OutType::NULL,       0),
    ("ItemFloat",        InType::FLOAT,             OutType::NULL,       0),
    ("ItemDouble",       InType::DOUBLE,            OutType::NULL,       0),
    ("ItemPtr",          InType::POINTER,           OutType::NULL,       0),
    ("ItemEnum",         InType::INT32,             OutType::NULL,       0),
    ("ItemFlagsEnum",    InType::HEXINT32,          OutType::NULL,       0),
    ("ItemListByte",     InType::UINT8,             OutType::NULL,       0),
    ("ItemListShort",    InType::UINT16,            OutType::NULL,       0),
    ("ItemListLong",     InType::UINT32,            OutType::NULL,       0),
    ("ItemSetByte",      InType::UINT8,             OutType::HEXINT8,    0),
    ("ItemSetShort",     InType::UINT16,            OutType::HEXINT16,   0),
    ("ItemSetLong",      InType::UINT32,            OutType::HEXINT32,   0),
    ("ItemNTSTATUS",     InType::UINT32,            OutType::NTSTATUS,   0),
    ("ItemNTerror",      InType::UINT32,            OutType::NTSTATUS,   0),
    ("ItemHRESULT",      InType::INT32,             OutType::HRESULT,    0),
    ("ItemWINERROR",     InType::UINT32,            OutType::WIN32ERROR, 0),
    ("ItemNDIS_STATUS",  InType::UINT32,            OutType::NTSTATUS,   0),
    ("ItemNDIS_OID",     InType::HEXINT32,          OutType::NULL,       0),
    ("ItemIPAddr",       InType::UINT32,            OutType::IPV4,       0),
    ("ItemIPV6Addr",     InType::BINARY,            OutType::IPV6,      16),
    ("ItemPort",         InType::UINT16,            OutType::PORT,       0),
    ("ItemMACAddr",      InType::BINARY,            OutType::HEXBINARY,  6),
    ("ItemTimestamp",    InType::FILETIME,          OutType::NULL,       0),
    ("ItemTimeDelta",    InType::INT64,             OutType::NULL,       0),
    ("ItemWaitTime",     InType::INT64,             OutType::NULL,       0),
    ("ItemGuid",         InType::GUID,              OutType::NULL,       0),
    ("ItemCLSID",        InType::GUID,              OutType::NULL,       0),
    ("ItemIID",          InType::GUID,              OutType::NULL,       0),
    ("ItemLIBID",        InType::GUID,              OutType::NULL,       0),
    ("ItemString",       InType::ANSISTRING,        OutType::NULL,       0),
    ("ItemRString",      InType::ANSISTRING,        OutType::NULL,       0),
    ("ItemWString",      InType::UNICODESTRING,     OutType::NULL,       0),
    ("ItemRWString",     InType::UNICODESTRING,     OutType::NULL,       0),
    ("ItemPString",      InType::COUNTEDANSISTRING, OutType::NULL,       0),
    ("ItemPWString",     InType::COUNTEDSTRING,     OutType::NULL,       0),
    ("ItemHEXDump",      InType::COUNTEDBINARY,     OutType::NULL,       0),
    ("ItemSid",          InType::SID,               OutType::NULL,       0),
];

/// The name lists of one file. The same few lists recur in thousands of messages, so each is kept
/// once.
#[derive(Debug, Default)]
pub(super) struct NameLists {
    maps: HashMap<String, Arc<ValueMap>>,
    name_count: usize,
}

impl NameLists {
    /// Returns the map of the names in the parentheses of an item type. Returns `None` if the type
    /// is neither a list nor a set, or if there are no names, or too many in the file.
    fn find_or_add(&mut self, item: &str, input: InType, names: &str) -> Option<Arc<ValueMap>> {
        let is_set = starts_with_ignoring_case(item, "ItemSet");
        if !is_set && !starts_with_ignoring_case(item, "ItemList") || names.trim().is_empty() {
            return None;
        }
        let key = format!("{item}({names})");
        if let Some(map) = self.maps.get(&key) {
            return Some(map.clone());
        }
        let bit_count = input.size(8).unwrap_or(0).saturating_mul(8);
        let count = names.split(',').count();
        self.name_count = self.name_count.saturating_add(count);
        if self.name_count > MAX_NAMES {
            return None;
        }
        let entries = names.split(',').zip(0_u32..).filter_map(|(name, index)| {
            let value = if is_set { 1_u64.checked_shl(index) } else { Some(u64::from(index)) };
            let name = name.trim();
            // Names of bits that the type does not have are dropped.
            value
                .filter(|_| !name.is_empty() && (!is_set || (index as usize) < bit_count))
                .map(|v| (v, name.to_owned()))
        });
        let map = Arc::new(ValueMap::new(item, is_set, entries));
        self.maps.insert(key, map.clone());
        Some(map)
    }
}

/// Builds the field of an argument from its name, its item type and the names in parentheses after
/// the type. Returns `None` for an unknown type.
pub(super) fn build_field(name: &str, item: &str, names: &str, lists: &mut NameLists) -> Option<Field> {
    let &(_, input, output, length) = ITEM_TYPES.iter().find(|row| row.0.eq_ignore_ascii_case(item))?;
    let length = if length == 0 { Length::Natural } else { Length::Fixed(length) };
    let map = lists.find_or_add(item, input, names);
    Some(Field::value(name, input, output).with_length(length).with_map(map))
}

/// Creates a field of raw bytes for the rest of the payload.
pub(super) fn raw_field_to_end(name: &str) -> Field {
    Field::value(name, InType::UINT8, OutType::HEXINT8).with_count(Count::ToEnd)
}

fn starts_with_ignoring_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::FieldKind;

    #[test]
    fn every_item_type_has_its_layout_and_format() {
        /// Item, in type, out type, fixed length, size with 64-bit pointers.
        type ItemTypeRow = (&'static str, u16, u16, Option<u16>, Option<usize>);
        #[rustfmt::skip]
        let expected: &[ItemTypeRow] = &[
            ("ItemChar", 307, 0, None, Some(1)), ("ItemUChar", 4, 0, None, Some(1)),
            ("ItemWChar", 306, 0, None, Some(2)), ("ItemChar4", 2, 0, Some(4), None),
            ("ItemShort", 5, 0, None, Some(2)), ("ItemUShort", 6, 0, None, Some(2)),
            ("ItemLong", 7, 0, None, Some(4)), ("ItemULong", 8, 0, None, Some(4)),
            ("ItemULongX", 20, 0, None, Some(4)),
            ("ItemLongLong", 9, 0, None, Some(8)), ("ItemULongLong", 10, 0, None, Some(8)),
            ("ItemLongLongX", 21, 0, None, Some(8)), ("ItemLongLongXX", 21, 0, None, Some(8)),
            ("ItemLongLongO", 9, 0, None, Some(8)),
            ("ItemULongLongX", 21, 0, None, Some(8)), ("ItemULongLongXX", 21, 0, None, Some(8)),
            ("ItemFloat", 11, 0, None, Some(4)), ("ItemDouble", 12, 0, None, Some(8)),
            ("ItemPtr", 16, 0, None, Some(8)),
            ("ItemEnum", 7, 0, None, Some(4)), ("ItemFlagsEnum", 20, 0, None, Some(4)),
            ("ItemListByte", 4, 0, None, Some(1)), ("ItemListShort", 6, 0, None, Some(2)),
            ("ItemListLong", 8, 0, None, Some(4)),
            ("ItemSetByte", 4, 16, None, Some(1)), ("ItemSetShort", 6, 17, None, Some(2)),
            ("ItemSetLong", 8, 18, None, Some(4)),
            ("ItemNTSTATUS", 8, 31, None, Some(4)), ("ItemNTerror", 8, 31, None, Some(4)),
            ("ItemHRESULT", 7, 32, None, Some(4)), ("ItemWINERROR", 8, 30, None, Some(4)),
            ("ItemNDIS_STATUS", 8, 31, None, Some(4)), ("ItemNDIS_OID", 20, 0, None, Some(4)),
            ("ItemIPAddr", 8, 23, None, Some(4)), ("ItemIPV6Addr", 14, 24, Some(16), None),
            ("ItemPort", 6, 22, None, Some(2)), ("ItemMACAddr", 14, 15, Some(6), None),
            ("ItemTimestamp", 17, 0, None, Some(8)), ("ItemTimeDelta", 9, 0, None, Some(8)),
            ("ItemWaitTime", 9, 0, None, Some(8)),
            ("ItemGuid", 15, 0, None, Some(16)), ("ItemCLSID", 15, 0, None, Some(16)),
            ("ItemIID", 15, 0, None, Some(16)), ("ItemLIBID", 15, 0, None, Some(16)),
            ("ItemString", 2, 0, None, None), ("ItemRString", 2, 0, None, None),
            ("ItemWString", 1, 0, None, None), ("ItemRWString", 1, 0, None, None),
            ("ItemPString", 23, 0, None, None), ("ItemPWString", 22, 0, None, None),
            ("ItemHEXDump", 25, 0, None, None), ("ItemSid", 19, 0, None, None),
        ];
        assert_eq!(expected.len(), ITEM_TYPES.len());
        for &(item, input, output, fixed, size) in expected {
            let field = build_field("x", item, "", &mut NameLists::default()).expect(item);
            assert_eq!(
                field.kind,
                FieldKind::Value { input: InType(input), output: OutType(output), map: None },
                "{item}"
            );
            assert_eq!(field.length, fixed.map_or(Length::Natural, Length::Fixed), "{item}");
            assert_eq!(field.count, Count::One, "{item}");
            assert_eq!(InType(input).size(8), size, "{item}");
        }
    }

    fn value_map(item: &str, names: &str) -> Option<Arc<ValueMap>> {
        match build_field("x", item, names, &mut NameLists::default()).unwrap().kind {
            FieldKind::Value { map, .. } => map,
            FieldKind::Struct { .. } => panic!("not a value"),
        }
    }

    #[test]
    fn lists_name_values_and_sets_name_bits() {
        let list = value_map("ItemListByte", "Low, APC,DPC").unwrap();
        assert!(!list.is_bit_map);
        assert_eq!(
            (list.value(0), list.value(1), list.value(2), list.value(3)),
            (Some("Low"), Some("APC"), Some("DPC"), None)
        );

        let set = value_map("ItemSetLong", "Read,,Delete").unwrap();
        assert!(set.is_bit_map);
        let entries: Vec<_> = set.entries().iter().map(|(v, t)| (*v, &**t)).collect();
        assert_eq!(entries, [(1, "Read"), (4, "Delete")], "an empty name must keep its bit");

        let nine = value_map("ItemSetByte", "a,b,c,d,e,f,g,h,i").unwrap();
        assert_eq!(nine.entries().last().unwrap().0, 0x80, "names beyond the eighth bit must be dropped");
        assert_eq!(value_map("ItemEnum", "POOL_TYPE"), None);
        assert_eq!(value_map("ItemListLong", " "), None);
    }

    #[test]
    fn equal_lists_are_kept_once_and_all_lists_together_are_bounded() {
        let mut lists = NameLists::default();
        let first = lists.find_or_add("ItemListLong", InType::UINT32, "a,b").unwrap();
        let again = lists.find_or_add("ItemListLong", InType::UINT32, "a,b").unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let too_many_names = format!("x{}", ",".repeat(MAX_NAMES));
        assert_eq!(lists.find_or_add("ItemListLong", InType::UINT32, &too_many_names), None);
    }

    #[test]
    fn unknown_item_types_are_refused_and_case_is_ignored() {
        assert_eq!(build_field("x", "ItemLonger", "", &mut NameLists::default()), None);
        assert!(
            build_field("x", "itemhexdump", "", &mut NameLists::default()).is_some(),
            "item types must ignore case"
        );
    }
}
