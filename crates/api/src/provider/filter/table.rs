//! Looking up ids and names in a compiled filter: the same steps for whoever fills a table and whoever searches it.
//!
//! ```text
//!   id    ─ hash ─▶ place ─▶ empty: not listed; the id: listed; else the next place
//!   name  ─ at sight: one tag, no level/keyword part ─▶ hash of its words ─▶ place ─▶ empty: not listed. Most events end here
//!         └ in full:  whatever at sight does not tell, and texts compared where the hash is found
//! ```
//!
//! At most half of a table is taken, so a search meets an empty place; one in words that are being replaced ends after as many steps as the table says it has
//! places, or where the cell ends.

use traceweir_format::filter::Gate;

use super::cells::Words;
use super::compile::{IDS_HEAD, NAMES_HEAD};

/// An odd number whose bits are well mixed (2⁶⁴ / golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// In the first word of a name filter: how its table is searched. The lowest eight bits are the level.
pub(super) const FILTER_IN: u64 = 1 << 8;
/// It does not look at all events.
pub(super) const HAS_PART: u64 = 1 << 9;
/// Where the size of a table stands in the first word of its section.
pub(super) const SIZE: u32 = 16;

/// A table of 2ⁿ places.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// 64 - n.
    shift: u32,
}

impl Places {
    /// A table of which at most half is taken by so many.
    pub(super) const fn for_many(count: usize) -> Self {
        let count = if count == 0 { 1 } else { count };
        Self { shift: 64 - (2 * count).next_power_of_two().trailing_zeros() }
    }

    /// As it stands in a section.
    pub(super) const fn to_bits(self) -> u64 {
        (self.shift as u64) << SIZE
    }

    /// From there, whatever it says: 2³² places at most.
    #[inline(always)]
    fn from_bits(word: u64) -> Self {
        Self { shift: (word >> SIZE) as u32 & 63 | 32 }
    }

    /// The number of the last one.
    #[inline(always)]
    pub(super) const fn last(self) -> usize {
        (u64::MAX >> self.shift) as usize
    }

    /// Where the search for a hash begins.
    #[inline(always)]
    pub(super) const fn of(self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Where it goes on.
    #[inline(always)]
    pub(super) const fn after(self, place: usize) -> usize {
        (place + 1) & self.last()
    }
}

#[inline(always)]
pub(super) const fn hash_id(id: u16) -> u64 {
    (id as u64).wrapping_mul(MIX)
}

/// Whether an id filter passes an event.
#[inline(always)]
pub(super) fn id_passes(words: Words<'_>, at: usize, id: u16) -> bool {
    let head = words.get(at);
    let place = Places::from_bits(head).of(hash_id(id));
    let is_listed = match words.get(at + IDS_HEAD + place) {
        0 => false,
        entry if entry == u64::from(id) + 1 => true,
        _ => is_listed_further(words, at, place, id),
    };
    is_listed == (head & FILTER_IN != 0)
}

/// Whether an id stands behind a place that another has.
#[inline(never)]
fn is_listed_further(words: Words<'_>, at: usize, mut place: usize, id: u16) -> bool {
    let places = Places::from_bits(words.get(at));
    for _ in 1..places.last() {
        place = places.after(place);
        match words.get(at + IDS_HEAD + place) {
            0 => break,
            entry if entry == u64::from(id) + 1 => return true,
            _ => {}
        }
    }
    false
}

/// What can be said of an event by its id or name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// It passes.
    Passes,
    /// It does not.
    Fails,
    /// It needs to be looked at in full.
    Unclear,
}

impl Sight {
    #[inline(always)]
    pub(super) const fn of(passes: bool) -> Self {
        if passes { Self::Passes } else { Self::Fails }
    }
}

/// What a name filter says of an event at first sight, which is that most events have none of the names.
///
/// Names of up to fifteen bytes are looked at right here, and nothing is called for them, so that whoever keeps an event back needs no frame.
#[inline(always)]
pub(super) fn name_at_sight(section: Words<'_>, metadata: &[u8]) -> Sight {
    let head = section.get(0);
    let Some((first, second)) = two_words(metadata).filter(|_| head & HAS_PART == 0) else {
        return long_name_at_sight(section, metadata);
    };
    let hash = mixed(MIX, below(first, zeros(first)));
    let hash = finished(if zeros(first) == 0 { mixed(hash, below(second, zeros(second))) } else { hash });
    match section.get(NAMES_HEAD + 2 * Places::from_bits(head).of(hash)) {
        0 => Sight::of(head & FILTER_IN == 0),
        _ => long_name_at_sight(section, metadata),
    }
}

/// The first sixteen bytes behind the tags of an event's metadata, if those are one byte and the name ends among them. Zeros where the metadata ends before.
#[inline(always)]
fn two_words(metadata: &[u8]) -> Option<(u64, u64)> {
    const NAME: usize = 3;
    let [low, high, tag] = *metadata.first_chunk()?;
    let size = usize::from(u16::from_le_bytes([low, high])).min(metadata.len());
    if tag & 0x80 != 0 || size <= NAME + 8 {
        return None;
    }
    let word = |at: usize| metadata.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    // The last eight bytes of metadata that are not sixteen bytes of name: those that were looked at already are shifted out.
    let at = (size - 8).min(NAME + 8);
    let (first, second) = (word(NAME)?, word(at)? >> (8 * (NAME + 8 - at)));
    (zeros(first) | zeros(second) != 0).then_some((first, second))
}

/// The same of any name.
#[inline(never)]
fn long_name_at_sight(section: Words<'_>, metadata: &[u8]) -> Sight {
    let head = section.get(0);
    let Some((name, last)) = name_in(metadata).filter(|_| head & HAS_PART == 0) else {
        return Sight::Unclear;
    };
    let mut hash = MIX;
    for_each_word_of_long(name, last, |word| hash = mixed(hash, word));
    let (hash, places) = (finished(hash), Places::from_bits(head));
    let mut place = places.of(hash);
    for _ in 0..places.last() {
        match section.get(NAMES_HEAD + 2 * place) {
            0 => return Sight::of(head & FILTER_IN == 0),
            found if found == hash => return Sight::Unclear,
            _ => place = places.after(place),
        }
    }
    Sight::Unclear
}

/// Whether a name filter passes an event; one whose metadata cannot be read has none of the names.
#[inline(never)] // So that ids are looked up without its frame.
pub(super) fn name_passes(words: Words<'_>, at: usize, level: u8, keyword: u64, metadata: &[u8]) -> bool {
    let (head, gate) = gate(words, at);
    !gate.admits(level, keyword)
        || name_behind_tags(metadata).is_some_and(|name| has_name(words, at, Places::from_bits(head), name))
            == (head & FILTER_IN != 0)
}

/// What follows the tags of an event's metadata, where they are one byte: its name, and then its fields. With the last eight bytes of all, if there are as many.
#[inline(always)]
fn name_in(metadata: &[u8]) -> Option<(&[u8], &[u8; 8])> {
    let [low, high, tag] = *metadata.first_chunk()?;
    if tag & 0x80 != 0 {
        return None;
    }
    let whole = metadata.get(..usize::from(u16::from_le_bytes([low, high])).min(metadata.len()))?;
    let last = whole.last_chunk()?;
    Some((whole.get(3..)?, last))
}

/// What follows the tags of an event's metadata.
fn name_behind_tags(metadata: &[u8]) -> Option<&[u8]> {
    let size = usize::from(u16::from_le_bytes(*metadata.first_chunk()?));
    let mut rest = metadata.get(2..size.min(metadata.len()))?;
    loop {
        let (tag, behind) = rest.split_first()?;
        rest = behind;
        if tag & 0x80 == 0 {
            return Some(rest);
        }
    }
}

/// Whether a filter by level and keyword passes an event.
pub(super) fn level_keyword_passes(words: Words<'_>, at: usize, level: u8, keyword: u64) -> bool {
    let (head, gate) = gate(words, at);
    gate.admits(level, keyword) == (head & FILTER_IN != 0)
}

#[inline(always)]
fn gate(words: Words<'_>, at: usize) -> (u64, Gate) {
    let head = words.get(at);
    (head, Gate { any: words.get(at + 1), all: words.get(at + 2), level: head as u8 })
}

/// Whether the name at the start of these bytes is in the table.
fn has_name(words: Words<'_>, at: usize, places: Places, name: &[u8]) -> bool {
    let hash = hash_name(name);
    let mut place = places.of(hash);
    for _ in 0..places.last() {
        let entry = at + NAMES_HEAD + 2 * place;
        match words.get(entry) {
            0 => return false,
            found if found == hash && is_name(words, at, words.get(entry + 1), name) => return true,
            _ => place = places.after(place),
        }
    }
    false
}

fn is_name(words: Words<'_>, at: usize, place: u64, name: &[u8]) -> bool {
    let (text, mut count) = (at + (place >> 32) as usize, 0);
    let mut same = true;
    for_each_word(name, |word| {
        same &= words.get(text + count) == word;
        count += 1;
    });
    same && place & 0xFFFF_FFFF == count as u64
}

/// A number for the name at the start of these bytes; never 0, which is an empty place.
pub(super) fn hash_name(name: &[u8]) -> u64 {
    let mut hash = MIX;
    for_each_word(name, |word| hash = mixed(hash, word));
    finished(hash)
}

/// The upper bits of a hash say most, so that they are turned to where the next word meets them.
#[inline(always)]
const fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(MIX)
}

#[inline(always)]
const fn finished(hash: u64) -> u64 {
    hash | 1
}

/// The words of the name at the start of these bytes, which ends at a NUL or with them. The last word is completed by a zero or more: it has none of the name's
/// bytes where those fill all others. Different names have different words, as no name has a zero in it.
pub(super) fn for_each_word(bytes: &[u8], mut take: impl FnMut(u64)) {
    match bytes.last_chunk() {
        Some(last) => for_each_word_of_long(bytes, last, take),
        None => {
            let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            take(below(word, zeros(word)));
        }
    }
}

/// The same where the last eight bytes are known; those in front of a shorter name may be others.
#[inline(always)]
fn for_each_word_of_long(bytes: &[u8], last: &[u8; 8], mut take: impl FnMut(u64)) {
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*word);
        let zeros = zeros(word);
        if zeros != 0 {
            return take(below(word, zeros));
        }
        take(word);
        rest = behind;
    }
    // Bytes that were looked at already are shifted out.
    let word = u64::from_le_bytes(*last).checked_shr(64 - 8 * rest.len() as u32).unwrap_or(0);
    take(below(word, zeros(word)));
}

/// Where the bytes of a word are zero: the lowest one is the lowest whose high bit is set here.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// The bytes of a word below its lowest zero byte, or all where there is none.
#[inline(always)]
const fn below(word: u64, zeros: u64) -> u64 {
    // Ones up to the lowest mark. The other marks stay, but a marked byte has no such bit itself.
    word & zeros.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(bytes: &[u8]) -> Vec<u64> {
        let mut words = Vec::new();
        for_each_word(bytes, |word| words.push(word));
        words
    }

    #[test]
    fn different_names_have_different_words_whatever_follows_them() {
        for length in 0..40 {
            let name = vec![b'n'; length];
            let words = words_of(&name);
            assert_eq!(words.len(), length / 8 + 1);
            for behind in [&b"\0"[..], b"\0x", b"\0longer than a word", b"\0\0\0\0\0\0\0\0\0"] {
                let bytes = [&name, behind].concat();
                assert_eq!(words_of(&bytes), words, "{length}");
                assert_eq!(hash_name(&bytes), hash_name(&name));
            }
            assert_ne!(words_of(&[&name[..], b"n"].concat()), words);
            for at in 0..length {
                for byte in [b'm', 0x80, 0xFF, 1] {
                    let mut other = name.clone();
                    other[at] = byte;
                    assert_ne!(words_of(&other), words, "{length} {at}");
                    assert_ne!(hash_name(&other), hash_name(&name), "{length} {at}");
                }
            }
        }
    }

    #[test]
    fn the_name_stands_behind_size_and_tags() {
        assert_eq!(name_behind_tags(b"\x08\0\0abc\0\x08"), Some(&b"abc\0\x08"[..]));
        assert_eq!(name_behind_tags(b"\x08\0\x81\xFF\x01ab\0behind"), Some(&b"ab\0"[..]));
        for broken in [&b""[..], b"\x01", b"\x02\0", b"\x04\0\x80\x80", b"\x01\0\0a\0"] {
            assert_eq!(name_behind_tags(broken), None);
            assert_eq!(name_in(broken), None);
        }
        assert_eq!(name_in(b"\x08\0\0abc\0\x08"), Some((&b"abc\0\x08"[..], b"\x08\0\0abc\0\x08")));
        assert_eq!(name_in(b"\x09\0\0abcd\0\x08more"), Some((&b"abcd\0\x08"[..], b"\0\0abcd\0\x08")));
        assert_eq!(name_in(b"\x07\0\0abc\0"), None, "too short to be told at sight");
        assert_eq!(name_in(b"\x08\0\x81\xFF\x01ab\0behind"), None, "more tags");
    }
}
