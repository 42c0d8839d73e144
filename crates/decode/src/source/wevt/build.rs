//! Builds compiled manifests, message tables and property arrays for tests, and damages them.

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::Put;

/// The GUID of the provider in [`compile_test_manifest`].
pub(in crate::source) const PROVIDER: Guid = Guid::from_u128(0x11223344_5566_7788_99aa_bbccddeeff00);

/// Encodes a text record: size, text, NUL, padding to 4 bytes.
pub(in crate::source) fn encode_text_record(text: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_wide_z(text);
    body.resize(body.len().next_multiple_of(4), 0);
    let mut out = Vec::new();
    out.put_u32(body.len() as u32 + 4).put(&body);
    out
}

/// Builds a message table; consecutive ids share a block.
pub(in crate::source) fn encode_message_table(messages: &[(u32, &str)]) -> Vec<u8> {
    let mut blocks: Vec<Vec<(u32, &str)>> = Vec::new();
    for &(id, text) in messages {
        match blocks.last_mut() {
            Some(block) if block.last().is_some_and(|m| m.0 + 1 == id) => block.push((id, text)),
            _ => blocks.push(vec![(id, text)]),
        }
    }
    let (mut out, mut entries) = (Vec::new(), Vec::new());
    out.put_u32(blocks.len() as u32);
    for block in &blocks {
        let offset = 4 + blocks.len() * 12 + entries.len();
        out.put_u32(block[0].0).put_u32(block[block.len() - 1].0).put_u32(offset as u32);
        for (_, text) in block {
            let mut body = Vec::new();
            body.put_wide_z(text);
            body.resize(body.len().next_multiple_of(4), 0);
            entries.put_u16(body.len() as u16 + 4).put_u16(1).put(&body);
        }
    }
    out.put(&entries);
    out
}

/// Bytes with holes: numbers that are filled in when they are known.
#[derive(Default)]
pub(in crate::source) struct PatchedBytes(pub(in crate::source) Vec<u8>);

impl PatchedBytes {
    pub(in crate::source) fn position(&self) -> u32 {
        self.0.len() as u32
    }

    /// Appends a hole and returns its offset.
    pub(in crate::source) fn reserve_u32(&mut self) -> usize {
        self.0.put_u32(0);
        self.0.len() - 4
    }

    pub(in crate::source) fn fill_u32(&mut self, hole: usize, value: u32) {
        self.0[hole..hole + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Fills a hole with the current end of the bytes.
    pub(in crate::source) fn fill_position(&mut self, hole: usize) {
        self.fill_u32(hole, self.position());
    }

    /// Writes text records and fills their offsets into the holes.
    pub(in crate::source) fn put_text_records(&mut self, names: Vec<(usize, &str)>) {
        for (hole, name) in names {
            self.fill_position(hole);
            self.0.put(&encode_text_record(name));
        }
    }

    /// Begins an element: signature, a hole for the size, count. Returns the offset of the hole.
    fn begin_element(&mut self, signature: &[u8; 4], count: u32) -> usize {
        self.0.put(signature);
        let size = self.reserve_u32();
        self.0.put_u32(count);
        size
    }

    fn end_element(&mut self, size: usize) {
        self.fill_u32(size, self.position() - size as u32 + 4);
    }
}

/// Builds the messages that [`compile_test_manifest`] refers to. Ids 9 and 99 are missing on
/// purpose.
pub(in crate::source) fn encode_messages() -> Vec<u8> {
    encode_message_table(&[
        (1, "Error\r\n"),
        (2, "Work task"),
        (3, "Own begin"),
        (4, "Network"),
        (5, "Did %1 with %2%n"),
        (6, "Small "),
        (7, "Large "),
        (20, "Read "),
        (21, "Write "),
    ])
}

/// Builds a manifest of one provider with every kind of element except SYMB.
///
/// `has_flag_word` selects the map layout of version 5.1 instead of that of 3.1. The events are id
/// 1 version 0 (with everything), id 1 version 1 (no template) and id 2 version 0 (a template, but
/// no references to names).
pub(in crate::source) fn compile_test_manifest(has_flag_word: bool) -> Vec<u8> {
    let mut b = PatchedBytes::default();
    b.0.put(b"CRIM");
    let size = b.reserve_u32();
    b.0.put_u16(if has_flag_word { 5 } else { 3 }).put_u16(1).put_u32(1).put_guid(&PROVIDER);
    let block = b.reserve_u32();
    b.fill_position(block);
    b.0.put(b"WEVT");
    let block_size = b.reserve_u32();
    // No message, nine elements.
    b.0.put_u32(u32::MAX).put_u32(9);
    // The type numbers are wrong on purpose, because only signatures matter.
    let elements: Vec<_> = (0..9)
        .map(|_| {
            b.0.put_u32(77);
            b.reserve_u32()
        })
        .collect();

    b.fill_position(elements[0]);
    let maps = put_maps(&mut b, has_flag_word);
    b.fill_position(elements[1]);
    let template = put_template(&mut b, &maps);
    b.fill_position(elements[2]);
    let element = b.begin_element(b"PRVA", 1);
    b.0.put_u32(super::PROVIDER_NAME_ATTRIBUTE);
    let name = b.reserve_u32();
    b.fill_position(name);
    b.0.put_wide_z("Example-Provider");
    b.end_element(element);

    b.fill_position(elements[3]);
    let opcodes = put_name_table(&mut b, b"OPCO", &[(0x1_0000, 99, "win:Start"), (0x1_0007, 3, "OwnStart")]);
    b.fill_position(elements[4]);
    let levels = put_name_table(&mut b, b"LEVL", &[(2, 1, "win:Error"), (4, 99, "win:Informational")]);
    b.fill_position(elements[5]);
    let tasks = put_name_table(&mut b, b"TASK", &[(7, 2, "WorkTask")]);
    b.fill_position(elements[6]);
    let keywords =
        put_name_table(&mut b, b"KEYW", &[(0x10, 4, "NetKeyword"), (1 << 40, u32::MAX, "DiskKeyword")]);
    b.fill_position(elements[7]);
    put_name_table(&mut b, b"CHAN", &[(16, 2, "Example-Provider/Operational")]);

    b.fill_position(elements[8]);
    let element = b.begin_element(b"EVNT", 3);
    b.0.put_u32(0);
    let mut put_event = |id, version, message, template, names: [u32; 3], keyword_count| {
        let keyword = 0x10 | 1 << 40;
        let d = EventDescriptor { id, version, channel: 16, level: 2, opcode: 1, task: 7, keyword };
        b.0.put(&d.to_bytes()).put_u32(message).put_u32(template);
        b.0.put_u32(names[0]).put_u32(names[1]).put_u32(names[2]).put_u32(keyword_count);
        let array = b.reserve_u32();
        b.0.put_u32(0);
        array
    };
    let array = put_event(1, 0, 5, template, [opcodes[1], levels[0], tasks[0]], 2);
    put_event(1, 1, u32::MAX, 0, [opcodes[0], levels[1], tasks[0]], 0);
    put_event(2, 0, 9, template, [0; 3], 0);
    b.fill_position(array);
    b.0.put_u32(keywords[0]).put_u32(keywords[1]);
    b.end_element(element);
    b.fill_u32(block_size, b.position() - block_size as u32 + 4);
    b.fill_u32(size, b.position());
    b.0
}

/// Writes a name table with entries of value, message id and name. Returns the offsets of the
/// entries.
fn put_name_table(
    b: &mut PatchedBytes,
    signature: &[u8; 4],
    entries: &[(u64, u32, &'static str)],
) -> Vec<u32> {
    let size = b.begin_element(signature, entries.len() as u32);
    let (mut offsets, mut names) = (Vec::new(), Vec::new());
    for &(value, message, name) in entries {
        offsets.push(b.position());
        match signature {
            b"KEYW" => b.0.put_u64(value),
            _ => b.0.put_u32(value as u32),
        };
        match signature {
            b"CHAN" => {
                names.push((b.reserve_u32(), name));
                b.0.put_u32(0).put_u32(message);
            }
            _ => {
                b.0.put_u32(message);
                if signature == b"TASK" {
                    b.0.put_guid(&Guid::NULL);
                }
                names.push((b.reserve_u32(), name));
            }
        }
    }
    b.put_text_records(names);
    b.end_element(size);
    offsets
}

/// Writes a value map and a bit map; returns their offsets.
fn put_maps(b: &mut PatchedBytes, has_flag_word: bool) -> Vec<u32> {
    let size = b.begin_element(b"MAPS", 2);
    let holes = if has_flag_word { vec![b.reserve_u32(), b.reserve_u32()] } else { vec![b.reserve_u32()] };
    let (mut offsets, mut names) = (Vec::new(), Vec::new());
    for (signature, name, entries) in
        [(b"VMAP", "SizeMap", [(9, 7), (1, 6), (5, 99)]), (b"BMAP", "AccessMap", [(1, 20), (2, 21), (4, 99)])]
    {
        offsets.push(b.position());
        b.0.put(signature).put_u32(if has_flag_word { 20 } else { 16 } + 8 * entries.len() as u32);
        names.push((b.reserve_u32(), name));
        if has_flag_word {
            b.0.put_u32(u32::from(signature == b"BMAP"));
        }
        b.0.put_u32(entries.len() as u32);
        for (value, message) in entries {
            b.0.put_u32(value).put_u32(message);
        }
    }
    // In version 3.1 the array has no offset of the first map, which follows the array.
    for (hole, offset) in holes.into_iter().rev().zip(offsets.iter().rev()) {
        b.fill_u32(hole, *offset);
    }
    b.put_text_records(names);
    b.end_element(size);
    offsets
}

/// One item of a template: flags, the four type bytes, map, count, length, name. The type bytes are
/// in type, out type, 0, 0 or, of a structure, the first member and the number of members, 16 bits
/// each.
type TemplateItem = (u32, [u8; 4], u32, u16, u16, &'static str);

/// Writes a template with each form of count and length and a structure; returns its offset.
fn put_template(b: &mut PatchedBytes, maps: &[u32]) -> u32 {
    let items: [TemplateItem; 9] = [
        (0, [8, 8, 0, 0], maps[0], 0, 0, "Size"),
        (0, [6, 6, 0, 0], 0, 0, 0, "Length"),
        (0x04, [14, 15, 0, 0], 0, 0, 1, "Data"),
        (0x02, [1, 1, 0, 0], 0, 0, 12, "Label"),
        (0x08, [16, 19, 0, 0], 0, 2, 0, "Stack"),
        (0x10, [8, 8, 0, 0], maps[1], 1, 0, "Accesses"),
        (0x11, [7, 0, 2, 0], 0, 1, 0, "Values"),
        (0, [10, 19, 0, 0], 0, 0, 0, "Key"),
        (0, [1, 1, 0, 0], 0, 0, 0, "Name"),
    ];
    let size = b.begin_element(b"TTBL", 1);
    let offset = b.position();
    b.0.put(b"TEMP");
    let temp_size = b.reserve_u32();
    b.0.put_u32(7).put_u32(items.len() as u32);
    let array = b.reserve_u32();
    // Kind, GUID, and the start of BinXML, which is not read.
    b.0.put_u32(1).put_guid(&Guid::NULL).put(&[0x0F, 1, 1, 0, 0, 0, 0, 0]);
    b.fill_position(array);
    let mut names = Vec::new();
    for (flags, kind, map, count, length, name) in items {
        b.0.put_u32(flags).put(&kind).put_u32(map).put_u16(count).put_u16(length);
        names.push((b.reserve_u32(), name));
    }
    b.put_text_records(names);
    b.fill_u32(temp_size, b.position() - offset);
    b.end_element(size);
    offset
}

/// Calls a parser with every truncation of `bytes`, every single-bit flip, and every aligned word
/// replaced with boundary values.
pub(in crate::source) fn for_each_damaged_copy(bytes: &[u8], mut parse: impl FnMut(&[u8])) {
    for end in 0..bytes.len() {
        parse(&bytes[..end]);
    }
    let mut damaged = bytes.to_vec();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            damaged[at] ^= 1 << bit;
            parse(&damaged);
            damaged[at] = bytes[at];
        }
    }
    let words = [0, 1, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, u32::MAX, bytes.len() as u32, bytes.len() as u32 - 1];
    for at in (0..bytes.len() & !3).step_by(4) {
        for word in words.into_iter().chain([at as u32]) {
            damaged[at..at + 4].copy_from_slice(&word.to_le_bytes());
            parse(&damaged);
        }
        damaged[at..at + 4].copy_from_slice(&bytes[at..at + 4]);
    }
}
