//! Search for ids and names in a compiled filter.
//!
//! ```text
//!   id    ─ below the first or above the last id: not listed; else its bit decides
//!   name  ─ quick check: one tag byte, no level/keyword part ─▶ hash of its words ─▶ slot ─▶
//!         │              empty: not listed. Most events end here
//!         └ full check:  all other cases; compares texts where the hash is found
//! ```
//!
//! At most half of the table of names is used, so a search meets an empty slot. A search in words
//! that are being replaced ends after as many steps as the table has slots, or at the end of the
//! cell.

use traceweir_format::filter::Gate;

use super::cells::CellWords;

/// Words before the table of a name filter.
pub(super) const NAMES_HEAD: usize = 3;
/// Words before the bits of an id filter.
pub(super) const IDS_HEAD: usize = 1;

/// An odd number whose bits are well mixed (2⁶⁴ / golden ratio).
const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// In the first word of a section: listed events pass. The lowest eight bits are the level.
pub(super) const FILTER_IN: u64 = 1 << 8;
/// In the first word of a name filter: a level/keyword part limits the events that it applies to.
pub(super) const HAS_LEVEL_KEYWORD_PART: u64 = 1 << 9;
/// Bit offset of the table size in the first word of a name filter.
const TABLE_SIZE_SHIFT: u32 = 16;
/// Bit offset of the first listed id, 16 bits, in the first word of an id filter.
const FIRST_ID_SHIFT: u32 = 16;
/// Bit offset of the number of bits after the first word of an id filter.
const ID_BITS_SHIFT: u32 = 32;

/// The size of a table of 2ⁿ slots.
#[derive(Clone, Copy)]
pub(super) struct HashTableSize {
    /// 64 - n.
    shift: u32,
}

impl HashTableSize {
    /// Returns the size of a table that `count` entries fill at most by half.
    pub(super) const fn for_many(count: usize) -> Self {
        let count = if count == 0 { 1 } else { count };
        Self { shift: 64 - (2 * count).next_power_of_two().trailing_zeros() }
    }

    /// Encodes the size for the first word of a section.
    pub(super) const fn to_bits(self) -> u64 {
        (self.shift as u64) << TABLE_SIZE_SHIFT
    }

    /// Decodes the size from any word: 2³² slots at most.
    #[inline(always)]
    fn from_bits(word: u64) -> Self {
        Self { shift: (word >> TABLE_SIZE_SHIFT) as u32 & 63 | 32 }
    }

    /// Returns the index of the last slot.
    #[inline(always)]
    pub(super) const fn last_slot(self) -> usize {
        (u64::MAX >> self.shift) as usize
    }

    /// Returns the slot where the search for a hash begins.
    #[inline(always)]
    pub(super) const fn first_slot_for(self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Returns the next slot of a search.
    #[inline(always)]
    pub(super) const fn next_slot(self, slot: usize) -> usize {
        (slot + 1) & self.last_slot()
    }
}

/// Returns the words of an id filter: one bit for each id from the first to the last listed one.
pub(super) fn id_words(ids: &[u16], filter_in: bool) -> Vec<u64> {
    let (first, last) = ids.iter().fold((u16::MAX, 0), |(min, max), id| (min.min(*id), max.max(*id)));
    let bits = usize::from(last).checked_sub(usize::from(first)).map_or(0, |distance| distance + 1);
    let mut words = vec![0; IDS_HEAD + bits.div_ceil(64)];
    words[0] = if filter_in { FILTER_IN } else { 0 }
        | u64::from(first) << FIRST_ID_SHIFT
        | (bits as u64) << ID_BITS_SHIFT;
    for id in ids {
        let bit = usize::from(id - first);
        words[IDS_HEAD + bit / 64] |= 1 << (bit % 64);
    }
    words
}

/// Returns whether an id filter passes an event.
#[inline(always)]
pub(super) fn id_passes(words: CellWords<'_>, at: usize, id: u16) -> bool {
    let head = words.get(at);
    // An id before the first one becomes very large.
    let bit = u64::from(id).wrapping_sub(head >> FIRST_ID_SHIFT & 0xFFFF);
    let is_listed =
        bit < head >> ID_BITS_SHIFT && words.get(at + IDS_HEAD + (bit / 64) as usize) >> (bit % 64) & 1 != 0;
    is_listed == (head & FILTER_IN != 0)
}

/// The result of checking an event by its id or name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuickResult {
    /// The event passes.
    Passes,
    /// The event does not pass.
    Fails,
    /// The event needs the full check.
    Unclear,
}

impl QuickResult {
    #[inline(always)]
    pub(super) const fn from_passes(passes: bool) -> Self {
        if passes { Self::Passes } else { Self::Fails }
    }
}

/// Checks a name filter quickly, for the common case that an event has none of the names.
///
/// Names of up to fifteen bytes are checked right here without a call, so that rejecting an event
/// needs no frame.
#[inline(always)]
pub(super) fn quick_check_name(section: CellWords<'_>, metadata: &[u8]) -> QuickResult {
    let head = section.get(0);
    let Some((first, second)) = read_short_name(metadata).filter(|_| head & HAS_LEVEL_KEYWORD_PART == 0)
    else {
        return quick_check_long_name(section, metadata);
    };
    let hash = mix_word(HASH_FACTOR, bytes_below_zero(first, zero_marks(first)));
    let hash = finish_hash(if zero_marks(first) == 0 {
        mix_word(hash, bytes_below_zero(second, zero_marks(second)))
    } else {
        hash
    });
    match section.get(NAMES_HEAD + 2 * HashTableSize::from_bits(head).first_slot_for(hash)) {
        0 => QuickResult::from_passes(head & FILTER_IN == 0),
        _ => quick_check_long_name(section, metadata),
    }
}

/// Returns the first sixteen bytes after the tags of an event's metadata, if the tags are one byte,
/// more than eight bytes follow, and the name ends within the sixteen. Bytes past the end of the
/// metadata are zeros.
#[inline(always)]
fn read_short_name(metadata: &[u8]) -> Option<(u64, u64)> {
    const NAME_OFFSET: usize = 3;
    let [low, high, tag] = *metadata.first_chunk()?;
    let size = usize::from(u16::from_le_bytes([low, high])).min(metadata.len());
    if tag & 0x80 != 0 || size <= NAME_OFFSET + 8 {
        return None;
    }
    let read_word = |at: usize| metadata.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    // If fewer than sixteen bytes follow the tags, the second word is read from the last eight
    // bytes of the metadata, and bytes already read are shifted out.
    let at = (size - 8).min(NAME_OFFSET + 8);
    let (first, second) = (read_word(NAME_OFFSET)?, read_word(at)? >> (8 * (NAME_OFFSET + 8 - at)));
    (zero_marks(first) | zero_marks(second) != 0).then_some((first, second))
}

/// Like [`quick_check_name`], for a name of any length.
#[inline(never)]
fn quick_check_long_name(section: CellWords<'_>, metadata: &[u8]) -> QuickResult {
    let head = section.get(0);
    let Some((name, last)) = find_name_after_one_tag(metadata).filter(|_| head & HAS_LEVEL_KEYWORD_PART == 0)
    else {
        return QuickResult::Unclear;
    };
    let mut hash = HASH_FACTOR;
    for_each_word_of_long(name, last, |word| hash = mix_word(hash, word));
    let (hash, size) = (finish_hash(hash), HashTableSize::from_bits(head));
    let mut slot = size.first_slot_for(hash);
    for _ in 0..size.last_slot() {
        match section.get(NAMES_HEAD + 2 * slot) {
            0 => return QuickResult::from_passes(head & FILTER_IN == 0),
            stored if stored == hash => return QuickResult::Unclear,
            _ => slot = size.next_slot(slot),
        }
    }
    QuickResult::Unclear
}

/// Returns whether a name filter passes an event; an event with unreadable metadata has none of the
/// names.
#[inline(never)] // So that the frames of id checks do not include its frame.
pub(super) fn name_passes(words: CellWords<'_>, at: usize, level: u8, keyword: u64, metadata: &[u8]) -> bool {
    let (head, gate) = read_gate(words, at);
    !gate.admits(level, keyword)
        || name_after_tags(metadata)
            .is_some_and(|name| has_name(words, at, HashTableSize::from_bits(head), name))
            == (head & FILTER_IN != 0)
}

/// Returns the bytes after the tags of an event's metadata, which are its name and then its fields,
/// and the last eight bytes of the metadata. `None` if the tags are several bytes, or the metadata
/// has fewer than eight.
#[inline(always)]
fn find_name_after_one_tag(metadata: &[u8]) -> Option<(&[u8], &[u8; 8])> {
    let [low, high, tag] = *metadata.first_chunk()?;
    if tag & 0x80 != 0 {
        return None;
    }
    let complete = metadata.get(..usize::from(u16::from_le_bytes([low, high])).min(metadata.len()))?;
    let last = complete.last_chunk()?;
    Some((complete.get(3..)?, last))
}

/// Returns the bytes after the tags of an event's metadata.
fn name_after_tags(metadata: &[u8]) -> Option<&[u8]> {
    let size = usize::from(u16::from_le_bytes(*metadata.first_chunk()?));
    let mut remaining = metadata.get(2..size.min(metadata.len()))?;
    loop {
        let (tag, tail) = remaining.split_first()?;
        remaining = tail;
        if tag & 0x80 == 0 {
            return Some(remaining);
        }
    }
}

/// Returns whether a filter by level and keyword passes an event.
pub(super) fn level_keyword_passes(words: CellWords<'_>, at: usize, level: u8, keyword: u64) -> bool {
    let (head, gate) = read_gate(words, at);
    gate.admits(level, keyword) == (head & FILTER_IN != 0)
}

#[inline(always)]
fn read_gate(words: CellWords<'_>, at: usize) -> (u64, Gate) {
    let head = words.get(at);
    (head, Gate { any: words.get(at + 1), all: words.get(at + 2), level: head as u8 })
}

/// Returns whether the name at the start of these bytes is in the table.
fn has_name(words: CellWords<'_>, at: usize, size: HashTableSize, name: &[u8]) -> bool {
    let hash = hash_name(name);
    let mut slot = size.first_slot_for(hash);
    for _ in 0..size.last_slot() {
        let entry = at + NAMES_HEAD + 2 * slot;
        match words.get(entry) {
            0 => return false,
            stored if stored == hash && is_name(words, at, words.get(entry + 1), name) => return true,
            _ => slot = size.next_slot(slot),
        }
    }
    false
}

fn is_name(words: CellWords<'_>, at: usize, location: u64, name: &[u8]) -> bool {
    let (text, mut count) = (at + (location >> 32) as usize, 0);
    let mut is_same = true;
    for_each_word(name, |word| {
        is_same &= words.get(text + count) == word;
        count += 1;
    });
    is_same && location & 0xFFFF_FFFF == count as u64
}

/// Hashes the name at the start of these bytes; never 0, which marks an empty slot.
pub(super) fn hash_name(name: &[u8]) -> u64 {
    let mut hash = HASH_FACTOR;
    for_each_word(name, |word| hash = mix_word(hash, word));
    finish_hash(hash)
}

/// Adds a word to a hash. The upper bits are mixed best, so they are rotated to where the next word
/// meets them.
#[inline(always)]
const fn mix_word(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(HASH_FACTOR)
}

#[inline(always)]
const fn finish_hash(hash: u64) -> u64 {
    hash | 1
}

/// Passes the words of the name at the start of these bytes to `take`. The name ends at a NUL or
/// with the bytes. The last word ends with one or more zeros; it is 0 if the name fills all other
/// words. Different names have different words, because no name contains a zero.
pub(super) fn for_each_word(bytes: &[u8], mut take: impl FnMut(u64)) {
    match bytes.last_chunk() {
        Some(last) => for_each_word_of_long(bytes, last, take),
        None => {
            let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            take(bytes_below_zero(word, zero_marks(word)));
        }
    }
}

/// Like [`for_each_word`], with known last eight bytes, which may include bytes before a short
/// name.
#[inline(always)]
fn for_each_word_of_long(bytes: &[u8], last: &[u8; 8], mut take: impl FnMut(u64)) {
    let mut remaining = bytes;
    while let Some((word, tail)) = remaining.split_first_chunk() {
        let word = u64::from_le_bytes(*word);
        let zeros = zero_marks(word);
        if zeros != 0 {
            return take(bytes_below_zero(word, zeros));
        }
        take(word);
        remaining = tail;
    }
    // Bytes already read are shifted out.
    let word = u64::from_le_bytes(*last).checked_shr(64 - 8 * remaining.len() as u32).unwrap_or(0);
    take(bytes_below_zero(word, zero_marks(word)));
}

/// Marks the zero bytes of a word: the lowest mark is the high bit of the lowest zero byte.
#[inline(always)]
const fn zero_marks(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// Returns the bytes of a word below its lowest zero byte, or all if there is none.
#[inline(always)]
const fn bytes_below_zero(word: u64, zeros: u64) -> u64 {
    // Ones below the lowest mark. The higher marks stay, but `word` has a 0 at each mark.
    word & zeros.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect_words(bytes: &[u8]) -> Vec<u64> {
        let mut words = Vec::new();
        for_each_word(bytes, |word| words.push(word));
        words
    }

    #[test]
    fn different_names_have_different_words_whatever_follows_them() {
        for length in 0..40 {
            let name = vec![b'n'; length];
            let words = collect_words(&name);
            assert_eq!(words.len(), length / 8 + 1);
            for tail in [&b"\0"[..], b"\0x", b"\0longer than a word", b"\0\0\0\0\0\0\0\0\0"] {
                let bytes = [&name, tail].concat();
                assert_eq!(collect_words(&bytes), words, "{length}");
                assert_eq!(hash_name(&bytes), hash_name(&name));
            }
            assert_ne!(collect_words(&[&name[..], b"n"].concat()), words);
            for at in 0..length {
                for byte in [b'm', 0x80, 0xFF, 1] {
                    let mut other = name.clone();
                    other[at] = byte;
                    assert_ne!(collect_words(&other), words, "{length} {at}");
                    assert_ne!(hash_name(&other), hash_name(&name), "{length} {at}");
                }
            }
        }
    }

    #[test]
    fn name_follows_size_and_tags() {
        assert_eq!(name_after_tags(b"\x08\0\0abc\0\x08"), Some(&b"abc\0\x08"[..]));
        assert_eq!(name_after_tags(b"\x08\0\x81\xFF\x01ab\0behind"), Some(&b"ab\0"[..]));
        for broken in [&b""[..], b"\x01", b"\x02\0", b"\x04\0\x80\x80", b"\x01\0\0a\0"] {
            assert_eq!(name_after_tags(broken), None);
            assert_eq!(find_name_after_one_tag(broken), None);
        }
        assert_eq!(
            find_name_after_one_tag(b"\x08\0\0abc\0\x08"),
            Some((&b"abc\0\x08"[..], b"\x08\0\0abc\0\x08"))
        );
        assert_eq!(
            find_name_after_one_tag(b"\x09\0\0abcd\0\x08more"),
            Some((&b"abcd\0\x08"[..], b"\0\0abcd\0\x08"))
        );
        assert_eq!(find_name_after_one_tag(b"\x07\0\0abc\0"), None, "short metadata needs the full check");
        assert_eq!(
            find_name_after_one_tag(b"\x08\0\x81\xFF\x01ab\0behind"),
            None,
            "names after several tag bytes need the full check"
        );
    }
}
