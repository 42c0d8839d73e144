//! Looking up ids and names in a compiled filter: the same steps for whoever fills a table and whoever searches it.

use traceweir_format::filter::Gate;

use super::cells::Words;
use super::compile::{IDS_HEAD, NAMES_HEAD};

/// An odd number whose bits are well mixed (2⁶⁴ / golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where the search for an id begins, in a table of so many bits.
#[inline(always)]
pub(super) fn ids_place(id: u16, bits: u32) -> usize {
    (u64::from(id).wrapping_mul(MIX) >> (64 - bits.clamp(1, 32))) as usize
}

/// Where the search for a name begins.
#[inline(always)]
pub(super) fn names_place(hash: u64, bits: u32) -> usize {
    (hash >> (64 - bits.clamp(1, 32))) as usize
}

/// Whether an id filter passes an event.
#[inline(always)]
pub(super) fn id_passes(words: Words<'_>, at: usize, id: u16) -> bool {
    let head = words.get(at);
    let (filter_in, bits) = (head & 1 != 0, (head >> 32) as u32 & 31);
    let mask = (1_usize << bits) - 1;
    let mut place = ids_place(id, bits) & mask;
    for _ in 0..=mask {
        match words.get(at + IDS_HEAD + place) {
            0 => break,
            entry if entry == u64::from(id) + 1 => return filter_in,
            _ => place = (place + 1) & mask,
        }
    }
    !filter_in
}

/// Whether a name filter passes an event; one whose metadata cannot be read has none of the names.
#[inline(never)] // So that ids are looked up without its frame.
pub(super) fn name_passes(words: Words<'_>, at: usize, level: u8, keyword: u64, metadata: &[u8]) -> bool {
    let (gate, filter_in, bits) = gate(words, at);
    // Most filters look at all events.
    u64::from(gate.level) | gate.any != 0 && !gate.admits(level, keyword)
        || name_in(metadata).is_some_and(|name| has_name(words, at, bits, name)) == filter_in
}

/// What follows the tags of an event's metadata: its name, and then its fields.
#[inline(always)]
fn name_in(metadata: &[u8]) -> Option<&[u8]> {
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
    let (gate, filter_in, _) = gate(words, at);
    gate.admits(level, keyword) == filter_in
}

#[inline(always)]
fn gate(words: Words<'_>, at: usize) -> (Gate, bool, u32) {
    let rest = words.get(at + 2);
    let gate = Gate { any: words.get(at), all: words.get(at + 1), level: rest as u8 };
    (gate, rest >> 8 & 1 != 0, (rest >> 16) as u32 & 31)
}

/// Whether the name at the start of these bytes is in the table.
#[inline(always)]
fn has_name(words: Words<'_>, at: usize, bits: u32, name: &[u8]) -> bool {
    let (hash, mask) = (hash_name(name), (1_usize << bits) - 1);
    let mut place = names_place(hash, bits) & mask;
    for _ in 0..=mask {
        let entry = at + NAMES_HEAD + 2 * place;
        match words.get(entry) {
            0 => return false,
            found if found == hash && is_name(words, at, words.get(entry + 1), name) => return true,
            _ => place = (place + 1) & mask,
        }
    }
    false
}

#[inline(never)] // Few events get here, and it would spoil the registers of those that do not.
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
#[inline(always)]
pub(super) fn hash_name(name: &[u8]) -> u64 {
    let mut hash = MIX;
    for_each_word(name, |word| {
        let mixed = (hash ^ word).wrapping_mul(MIX);
        hash = mixed ^ mixed >> 29;
    });
    hash | 1
}

/// The words of the name at the start of these bytes, which ends at a NUL or with them; the last word is completed by zeros. Different names have
/// different words, as no name has a zero in it.
#[inline(always)]
pub(super) fn for_each_word(bytes: &[u8], mut take: impl FnMut(u64)) {
    let (whole, rest) = bytes.as_chunks::<8>();
    let mut last = None;
    for word in whole {
        let word = u64::from_le_bytes(*word);
        let zeros = zeros(word);
        if zeros != 0 {
            last = Some(below(word, zeros));
            break;
        }
        take(word);
    }
    let last = last.unwrap_or_else(|| {
        let word = match bytes.last_chunk::<8>() {
            _ if rest.is_empty() => 0,
            // Bytes that were looked at already are shifted out.
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        below(word, zeros(word))
    });
    if last != 0 {
        take(last);
    }
}

/// Where the bytes of a word are zero: the lowest one is the lowest whose high bit is set here.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// The bytes of a word below its lowest zero byte, of which there is one.
#[inline(always)]
const fn below(word: u64, zeros: u64) -> u64 {
    word & ((zeros & zeros.wrapping_neg()) >> 7).wrapping_sub(1)
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
            assert_eq!(words.len(), length.div_ceil(8));
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
        assert_eq!(name_in(b"\x08\0\0abc\0\x08"), Some(&b"abc\0\x08"[..]));
        assert_eq!(name_in(b"\x08\0\x81\xFF\x01ab\0behind"), Some(&b"ab\0"[..]));
        for broken in [&b""[..], b"\x01", b"\x02\0", b"\x04\0\x80\x80", b"\x01\0\0a\0"] {
            assert_eq!(name_in(broken), None);
        }
    }
}
