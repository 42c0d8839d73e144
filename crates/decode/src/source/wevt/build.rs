//! Builds compiled manifests, message tables and property arrays for tests, and damages them.

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::Put;

/// The GUID of the provider in [`compiled`].
pub(in crate::source) const PROVIDER: Guid = Guid::from_u128(0x11223344_5566_7788_99aa_bbccddeeff00);

/// Encodes a text record: size, text, NUL, padding to 4 bytes.
pub(in crate::source) fn record(text: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_wide_z(text);
    body.resize(body.len().next_multiple_of(4), 0);
    let mut out = Vec::new();
    out.put_u32(body.len() as u32 + 4).put(&body);
    out
}

/// Builds a message table; consecutive ids share a block.
pub(in crate::source) fn message_table(messages: &[(u32, &str)]) -> Vec<u8> {
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

/// Bytes with numbers that are filled in when they are known.
#[derive(Default)]
pub(in crate::source) struct Bytes(pub(in crate::source) Vec<u8>);

impl Bytes {
    pub(in crate::source) fn here(&self) -> u32 {
        self.0.len() as u32
    }

    /// Reserves space for a number and returns its offset.
    pub(in crate::source) fn hole(&mut self) -> usize {
        self.0.put_u32(0);
        self.0.len() - 4
    }

    pub(in crate::source) fn fill(&mut self, hole: usize, value: u32) {
        self.0[hole..hole + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Fills a hole with the current offset.
    pub(in crate::source) fn land(&mut self, hole: usize) {
        self.fill(hole, self.here());
    }

    /// Writes the text records whose offsets belong into these holes.
    pub(in crate::source) fn records(&mut self, names: Vec<(usize, &str)>) {
        for (hole, name) in names {
            self.land(hole);
            self.0.put(&record(name));
        }
    }

    /// Begins an element: signature, size to be filled in, count.
    fn element(&mut self, signature: &[u8; 4], count: u32) -> usize {
        self.0.put(signature);
        let size = self.hole();
        self.0.put_u32(count);
        size
    }

    fn end_element(&mut self, size: usize) {
        self.fill(size, self.here() - size as u32 + 4);
    }
}

/// Builds the messages that [`compiled`] refers to. Id 9 and those of the last level, opcode and
/// map value are missing on purpose.
pub(in crate::source) fn messages() -> Vec<u8> {
    message_table(&[
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

/// Builds a manifest of one provider with every kind of element.
///
/// `flag_word` selects the map layout of version 5.1 instead of that of 3.1. Events: 1 version 0
/// (full), 1 version 1 (no template), 2 version 0 (template, no references to names).
pub(in crate::source) fn compiled(flag_word: bool) -> Vec<u8> {
    let mut b = Bytes::default();
    b.0.put(b"CRIM");
    let size = b.hole();
    b.0.put_u16(if flag_word { 5 } else { 3 }).put_u16(1).put_u32(1).put_guid(&PROVIDER);
    let block = b.hole();
    b.land(block);
    b.0.put(b"WEVT");
    let block_size = b.hole();
    b.0.put_u32(u32::MAX).put_u32(9);
    // The type numbers are wrong on purpose, because only signatures count.
    let elements: Vec<_> = (0..9)
        .map(|_| {
            b.0.put_u32(77);
            b.hole()
        })
        .collect();

    b.land(elements[0]);
    let maps = maps(&mut b, flag_word);
    b.land(elements[1]);
    let template = template(&mut b, &maps);
    b.land(elements[2]);
    let element = b.element(b"PRVA", 1);
    b.0.put_u32(super::PROVIDER_NAME);
    let name = b.hole();
    b.land(name);
    b.0.put_wide_z("Example-Provider");
    b.end_element(element);

    b.land(elements[3]);
    let opcodes = table(&mut b, b"OPCO", &[(0x1_0000, 99, "win:Start"), (0x1_0007, 3, "OwnStart")]);
    b.land(elements[4]);
    let levels = table(&mut b, b"LEVL", &[(2, 1, "win:Error"), (4, 99, "win:Informational")]);
    b.land(elements[5]);
    let tasks = table(&mut b, b"TASK", &[(7, 2, "WorkTask")]);
    b.land(elements[6]);
    let keywords = table(&mut b, b"KEYW", &[(0x10, 4, "NetKeyword"), (1 << 40, u32::MAX, "DiskKeyword")]);
    b.land(elements[7]);
    table(&mut b, b"CHAN", &[(16, 2, "Example-Provider/Operational")]);

    b.land(elements[8]);
    let element = b.element(b"EVNT", 3);
    b.0.put_u32(0);
    let mut event = |id, version, message, template, names: [u32; 3], keyword_count| {
        let keyword = 0x10 | 1 << 40;
        let d = EventDescriptor { id, version, channel: 16, level: 2, opcode: 1, task: 7, keyword };
        b.0.put(&d.to_bytes()).put_u32(message).put_u32(template);
        b.0.put_u32(names[0]).put_u32(names[1]).put_u32(names[2]).put_u32(keyword_count);
        let array = b.hole();
        b.0.put_u32(0);
        array
    };
    let array = event(1, 0, 5, template, [opcodes[1], levels[0], tasks[0]], 2);
    event(1, 1, u32::MAX, 0, [opcodes[0], levels[1], tasks[0]], 0);
    event(2, 0, 9, template, [0; 3], 0);
    b.land(array);
    b.0.put_u32(keywords[0]).put_u32(keywords[1]);
    b.end_element(element);
    b.fill(block_size, b.here() - block_size as u32 + 4);
    b.fill(size, b.here());
    b.0
}

/// Writes a name table; returns the offsets of its entries.
fn table(b: &mut Bytes, signature: &[u8; 4], entries: &[(u64, u32, &'static str)]) -> Vec<u32> {
    let size = b.element(signature, entries.len() as u32);
    let (mut offsets, mut names) = (Vec::new(), Vec::new());
    for &(value, message, name) in entries {
        offsets.push(b.here());
        match signature {
            b"KEYW" => b.0.put_u64(value),
            _ => b.0.put_u32(value as u32),
        };
        match signature {
            b"CHAN" => {
                names.push((b.hole(), name));
                b.0.put_u32(0).put_u32(message);
            }
            _ => {
                b.0.put_u32(message);
                if signature == b"TASK" {
                    b.0.put_guid(&Guid::NULL);
                }
                names.push((b.hole(), name));
            }
        }
    }
    b.records(names);
    b.end_element(size);
    offsets
}

/// Writes a value map and a bit map; returns their offsets.
fn maps(b: &mut Bytes, flag_word: bool) -> Vec<u32> {
    let size = b.element(b"MAPS", 2);
    let holes = if flag_word { vec![b.hole(), b.hole()] } else { vec![b.hole()] };
    let (mut offsets, mut names) = (Vec::new(), Vec::new());
    for (signature, name, entries) in
        [(b"VMAP", "SizeMap", [(9, 7), (1, 6), (5, 99)]), (b"BMAP", "AccessMap", [(1, 20), (2, 21), (4, 99)])]
    {
        offsets.push(b.here());
        b.0.put(signature).put_u32(if flag_word { 20 } else { 16 } + 8 * entries.len() as u32);
        names.push((b.hole(), name));
        if flag_word {
            b.0.put_u32(u32::from(signature == b"BMAP"));
        }
        b.0.put_u32(entries.len() as u32);
        for (value, message) in entries {
            b.0.put_u32(value).put_u32(message);
        }
    }
    for (hole, offset) in holes.into_iter().rev().zip(offsets.iter().rev()) {
        b.fill(hole, *offset);
    }
    b.records(names);
    b.end_element(size);
    offsets
}

/// One item of a template: flags, the four type bytes, map, count, length, name.
type Item = (u32, [u8; 4], u32, u16, u16, &'static str);

/// Writes a template with each form of count and length and a structure; returns its offset.
fn template(b: &mut Bytes, maps: &[u32]) -> u32 {
    let items: [Item; 9] = [
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
    let size = b.element(b"TTBL", 1);
    let offset = b.here();
    b.0.put(b"TEMP");
    let temp_size = b.hole();
    b.0.put_u32(7).put_u32(items.len() as u32);
    let array = b.hole();
    b.0.put_u32(1).put_guid(&Guid::NULL).put(&[0x0F, 1, 1, 0, 0, 0, 0, 0]);
    b.land(array);
    let mut names = Vec::new();
    for (flags, kind, map, count, length, name) in items {
        b.0.put_u32(flags).put(&kind).put_u32(map).put_u16(count).put_u16(length);
        names.push((b.hole(), name));
    }
    b.records(names);
    b.fill(temp_size, b.here() - offset);
    b.end_element(size);
    offset
}

/// Calls a parser with every truncation of `bytes`, every single-bit flip, and every aligned word
/// replaced by boundary values.
pub(in crate::source) fn hostile(bytes: &[u8], mut parse: impl FnMut(&[u8])) {
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
