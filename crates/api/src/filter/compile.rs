//! Compilation of a controller's filters into words that writers can search.
//!
//! ```text
//!   content      where each section begins (0: absent) │ section…
//!   ids          in << 8, first << 16, number of bits << 32 │ a bit for each id from the first on
//!   names        level, in << 8, part << 9, size << 16 │ any │ all │
//!                slots of two words: hash, then text offset << 32 + number of its words; or 0 │
//!                texts
//!   level/kw     level, in << 8 │ any │ all
//!   payload      see `payload`
//!   schematized  number of bytes │ the filter as the controller sent it
//!   provider-defined  number of filters │ type << 32 + number of bytes │ the filter as sent…
//! ```
//!
//! `in` is set if the listed events pass, `part` if the filter has a level/keyword part; `size` is
//! 64 − n for a hash table of 2ⁿ slots. Text offsets count from the start of the section.
//!
//! A search starts at the slot that the hash selects and ends at an empty slot; at most half of
//! the slots are used (`table`). The first word of a name filter shows whether there is a
//! level/keyword part: without one, only that word and the table are read.

use traceweir_format::filter::{EventIds, EventNames, LevelKeyword, check, is_of_provider, payload};
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_PAYLOAD,
    EVENT_FILTER_TYPE_SCHEMATIZED, EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW,
    EVENT_FILTER_TYPE_STACKWALK_NAME,
};
use traceweir_format::{Error, Result};
use traceweir_transport::message::Filter;

use super::payload::compile as compile_payload;
use super::table::{
    FILTER_IN, HAS_LEVEL_KEYWORD_PART, HashTableSize, NAMES_HEAD, for_each_word, hash_name, id_words,
};

// Sections, by the index of the word that holds their start.
pub(super) const IDS: usize = 0;
pub(super) const NAMES: usize = 1;
pub(super) const PAYLOAD: usize = 2;
pub(super) const STACK_IDS: usize = 3;
pub(super) const STACK_NAMES: usize = 4;
pub(super) const STACK_LEVEL_KW: usize = 5;
pub(super) const SCHEMATIZED: usize = 6;
pub(super) const PROVIDER_DEFINED: usize = 7;
const SECTIONS: usize = 8;

/// The filters of one enable, compiled for the write path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CompiledFilters {
    /// The content of a cell; empty if there is nothing to keep.
    pub(super) words: Vec<u64>,
    /// Some filters decide about events.
    pub(super) has_event_filters: bool,
    /// Some filters decide about stacks.
    pub(super) has_stack_filters: bool,
}

/// Compiles the filters of a call. The sender has already applied those that select processes.
pub(super) fn compile(filters: &[Filter]) -> Result<CompiledFilters> {
    let mut words = vec![0; SECTIONS];
    let mut provider_defined: Vec<&Filter> = Vec::new();
    for filter in filters {
        check(filter.kind, &filter.data)?;
        let data = filter.data.as_slice();
        let (section, content) = match filter.kind {
            EVENT_FILTER_TYPE_EVENT_ID => (IDS, compile_ids(&EventIds::parse(data)?)),
            EVENT_FILTER_TYPE_STACKWALK => (STACK_IDS, compile_ids(&EventIds::parse(data)?)),
            EVENT_FILTER_TYPE_EVENT_NAME => (NAMES, compile_names(&EventNames::parse(data)?)),
            EVENT_FILTER_TYPE_STACKWALK_NAME => (STACK_NAMES, compile_names(&EventNames::parse(data)?)),
            EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW => {
                (STACK_LEVEL_KW, compile_level_keyword(LevelKeyword::parse(data)?))
            }
            EVENT_FILTER_TYPE_PAYLOAD => (PAYLOAD, compile_payload(&payload::Filters::parse(data)?)),
            EVENT_FILTER_TYPE_SCHEMATIZED => (SCHEMATIZED, encode_bytes(0, data)),
            kind if is_of_provider(kind) => {
                provider_defined.push(filter);
                continue;
            }
            _ => continue,
        };
        add_section(&mut words, section, &content)?;
    }
    if !provider_defined.is_empty() {
        let mut content = vec![provider_defined.len() as u64];
        provider_defined.iter().for_each(|filter| content.extend(encode_bytes(filter.kind, &filter.data)));
        add_section(&mut words, PROVIDER_DEFINED, &content)?;
    }
    let has = |sections: &[usize]| sections.iter().any(|section| words.get(*section) != Some(&0));
    let (has_event_filters, has_stack_filters) =
        (has(&[IDS, NAMES, PAYLOAD]), has(&[STACK_IDS, STACK_NAMES, STACK_LEVEL_KW]));
    if words.len() == SECTIONS {
        words.clear();
    }
    Ok(CompiledFilters { words, has_event_filters, has_stack_filters })
}

fn add_section(words: &mut Vec<u64>, section: usize, content: &[u64]) -> Result<()> {
    let start = words.len() as u64;
    match words.get_mut(section) {
        Some(slot) if *slot == 0 => *slot = start,
        _ => {
            return Err(Error::Invalid {
                what: "filters of a call",
                offset: 0,
                reason: "each type may occur once",
            });
        }
    }
    words.extend_from_slice(content);
    Ok(())
}

fn compile_ids(filter: &EventIds<'_>) -> Vec<u64> {
    let ids: Vec<u16> = filter.ids().collect();
    id_words(&ids, filter.filter_in)
}

fn compile_names(filter: &EventNames<'_>) -> Vec<u64> {
    let mut names: Vec<&[u8]> = filter.names().collect();
    names.sort_unstable();
    names.dedup();
    let size = HashTableSize::for_many(names.len());
    let mut out = compile_level_keyword(LevelKeyword { gate: filter.gate, filter_in: filter.filter_in });
    // Without level and any-mask, the part covers all events.
    let has_part = filter.gate.level != 0 || filter.gate.any != 0;
    out[0] |= size.to_bits() | if has_part { HAS_LEVEL_KEYWORD_PART } else { 0 };
    out.resize(NAMES_HEAD + 2 * (size.last_slot() + 1), 0);
    for name in names {
        let hash = hash_name(name);
        let mut slot = size.first_slot_for(hash);
        while out[NAMES_HEAD + 2 * slot] != 0 {
            slot = size.next_slot(slot);
        }
        out[NAMES_HEAD + 2 * slot] = hash;
        let text = out.len();
        for_each_word(name, |word| out.push(word));
        out[NAMES_HEAD + 2 * slot + 1] = (text as u64) << 32 | (out.len() - text) as u64;
    }
    out
}

fn compile_level_keyword(filter: LevelKeyword) -> Vec<u64> {
    let LevelKeyword { gate, filter_in } = filter;
    vec![u64::from(gate.level) | if filter_in { FILTER_IN } else { 0 }, gate.any, gate.all]
}

/// Encodes bytes with their type and length.
fn encode_bytes(kind: u32, data: &[u8]) -> Vec<u64> {
    let mut out = vec![u64::from(kind) << 32 | data.len() as u64];
    out.extend(data.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
    out
}
