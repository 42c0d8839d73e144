//! Interned names, frames and stacks of a sequence of packets.
//!
//! An entry gets an id when it is first used, and goes into the interned data of the packet that uses
//! it. The number of entries and their bytes are limited: [`Interning::is_full`] then asks the writer
//! to begin the sequence again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::fields::interned;
use crate::activity::{MappingIndex, StackFrame, StackResolver};
use crate::protobuf::Message;

/// The most entries before the sequence begins again.
const MAX_ENTRIES: usize = 1 << 17;
/// The most bytes of entries before the sequence begins again.
const MAX_BYTES: usize = 24 << 20;
/// Estimated memory of an entry, without its text.
const ENTRY_BYTES: usize = 96;

/// The ids of interned texts of one kind.
type TextIds = HashMap<Arc<str>, u64>;

/// A function of a frame: file, address in the file, and names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FrameKey {
    mapping: u64,
    rel_pc: u64,
    function: u64,
    source: u64,
    line: u32,
}

/// The interned data of a sequence.
#[derive(Debug, Default)]
pub(super) struct Interning {
    categories: TextIds,
    event_names: TextIds,
    field_names: TextIds,
    functions: TextIds,
    build_ids: TextIds,
    paths: TextIds,
    sources: TextIds,
    mappings: HashMap<(Option<MappingIndex>, bool), u64>,
    frames: HashMap<FrameKey, u64>,
    stacks: HashMap<Vec<u64>, u64>,
    entries: usize,
    bytes: usize,
}

impl Interning {
    /// Returns whether a limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.entries >= MAX_ENTRIES || self.bytes >= MAX_BYTES
    }

    pub(super) fn intern_category(&mut self, text: &str, new: &mut Message) -> u64 {
        let Self { categories, entries, bytes, .. } = self;
        intern_text(categories, text, interned::EVENT_CATEGORIES, (entries, bytes), new)
    }

    pub(super) fn intern_event_name(&mut self, text: &str, new: &mut Message) -> u64 {
        let Self { event_names, entries, bytes, .. } = self;
        intern_text(event_names, text, interned::EVENT_NAMES, (entries, bytes), new)
    }

    pub(super) fn intern_field_name(&mut self, text: &str, new: &mut Message) -> u64 {
        let Self { field_names, entries, bytes, .. } = self;
        intern_text(field_names, text, interned::DEBUG_ANNOTATION_NAMES, (entries, bytes), new)
    }

    /// Returns the id of a stack, which is innermost frame first.
    pub(super) fn intern_stack(
        &mut self,
        resolver: &StackResolver,
        stack: &[StackFrame],
        new: &mut Message,
    ) -> u64 {
        let mut frames = Vec::with_capacity(stack.len());
        for frame in stack.iter().rev() {
            let mapping = self.intern_mapping(resolver, frame, new);
            let base =
                frame.mapping.and_then(|index| resolver.mapping(index)).map_or(0, |mapping| mapping.base);
            for function in frame.functions.iter().rev() {
                let name = frame.function_name(function);
                let Self { functions, sources, entries, bytes, .. } = self;
                let counts = (&mut *entries, &mut *bytes);
                let name = intern_text(functions, &name, interned::FUNCTION_NAMES, counts, new);
                let counts = (&mut *entries, &mut *bytes);
                let source = function.file.as_ref();
                let source =
                    source.map_or(0, |file| intern_text(sources, file, interned::SOURCE_PATHS, counts, new));
                let key = FrameKey {
                    mapping,
                    rel_pc: frame.address.saturating_sub(base),
                    function: name,
                    source,
                    line: function.line.unwrap_or(0),
                };
                frames.push(self.intern_frame(key, new));
            }
        }
        let bytes = frames.len().saturating_mul(size_of::<u64>());
        let (iid, is_new) =
            intern(&mut self.stacks, frames.clone(), bytes, (&mut self.entries, &mut self.bytes));
        if is_new {
            new.put_message(interned::CALLSTACKS, |message| {
                message.put_u64(interned::IID, iid);
                for frame in frames {
                    message.put_u64(interned::STACK_FRAME_IDS, frame);
                }
            });
        }
        iid
    }

    fn intern_frame(&mut self, key: FrameKey, new: &mut Message) -> u64 {
        let counts = (&mut self.entries, &mut self.bytes);
        let (iid, is_new) = intern(&mut self.frames, key.clone(), 0, counts);
        if is_new {
            new.put_message(interned::FRAMES, |message| {
                message.put_u64(interned::IID, iid).put_u64(interned::FRAME_FUNCTION, key.function);
                message.put_u64(interned::FRAME_MAPPING, key.mapping);
                message.put_u64(interned::FRAME_REL_PC, key.rel_pc);
                if key.source > 0 {
                    message.put_u64(interned::FRAME_SOURCE_PATH, key.source);
                }
                if key.line > 0 {
                    message.put_u64(interned::FRAME_LINE, key.line.into());
                }
            });
        }
        iid
    }

    /// Returns the id of the file of a frame. Frames in no known file have one of two files without a
    /// path: of the kernel, or of a process.
    fn intern_mapping(&mut self, resolver: &StackResolver, frame: &StackFrame, new: &mut Message) -> u64 {
        let counts = (&mut self.entries, &mut self.bytes);
        let (iid, is_new) = intern(&mut self.mappings, (frame.mapping, frame.is_kernel), 0, counts);
        if !is_new {
            return iid;
        }
        let mapping = frame.mapping.and_then(|index| resolver.mapping(index));
        let unknown_path = if frame.is_kernel { "[kernel]" } else { "[unknown]" };
        let path = mapping.map_or(unknown_path, |mapping| &mapping.path);
        let build_id = mapping.map_or("", |mapping| &mapping.build_id);
        let Self { paths, build_ids, entries, bytes, .. } = self;
        let counts = (&mut *entries, &mut *bytes);
        let path_iid = intern_text(paths, path, interned::MAPPING_PATHS, counts, new);
        let counts = (&mut *entries, &mut *bytes);
        let build_iid = intern_build_id(build_ids, build_id, counts, new);
        new.put_message(interned::MAPPINGS, |message| {
            message.put_u64(interned::IID, iid).put_u64(interned::MAPPING_PATH_IDS, path_iid);
            if build_iid > 0 {
                message.put_u64(interned::MAPPING_BUILD_ID, build_iid);
            }
            if let Some(mapping) = mapping {
                message.put_u64(interned::MAPPING_START, mapping.base);
                message.put_u64(interned::MAPPING_END, mapping.base.saturating_add(mapping.size));
            }
        });
        iid
    }
}

/// Returns the id of an entry, and whether it is new.
fn intern<K: Eq + Hash>(
    ids: &mut HashMap<K, u64>,
    key: K,
    key_bytes: usize,
    (entries, bytes): (&mut usize, &mut usize),
) -> (u64, bool) {
    let next = (ids.len() as u64).saturating_add(1);
    let iid = *ids.entry(key).or_insert(next);
    if iid == next {
        *entries = entries.saturating_add(1);
        *bytes = bytes.saturating_add(key_bytes).saturating_add(ENTRY_BYTES);
    }
    (iid, iid == next)
}

fn intern_text(
    ids: &mut TextIds,
    text: &str,
    field: u32,
    counts: (&mut usize, &mut usize),
    new: &mut Message,
) -> u64 {
    if let Some(iid) = ids.get(text) {
        return *iid;
    }
    let (iid, _) = intern(ids, Arc::from(text), text.len(), counts);
    new.put_message(field, |message| {
        message.put_u64(interned::IID, iid).put_text(interned::TEXT, text);
    });
    iid
}

/// Returns the id of a build id, or 0 for an empty one. Build ids are bytes.
fn intern_build_id(
    ids: &mut TextIds,
    build_id: &str,
    counts: (&mut usize, &mut usize),
    new: &mut Message,
) -> u64 {
    if build_id.is_empty() {
        return 0;
    }
    let (iid, is_new) = intern(ids, Arc::from(build_id), build_id.len(), counts);
    if is_new {
        let digits: Vec<u8> =
            build_id.chars().filter_map(|c| c.to_digit(16)).filter_map(|d| u8::try_from(d).ok()).collect();
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, d| byte << 4 | d)).collect();
        new.put_message(interned::BUILD_IDS, |message| {
            message.put_u64(interned::IID, iid).put_bytes(interned::TEXT, &bytes);
        });
    }
    iid
}

#[cfg(test)]
mod tests {
    use traceweir_analysis::symbols::SymbolFrame;

    use super::*;
    use crate::protobuf::reader::{messages, number};

    fn frame(address: u64, names: &[&str]) -> StackFrame {
        let function =
            |name: &&str| SymbolFrame { function: Some(Arc::from(*name)), ..SymbolFrame::default() };
        StackFrame {
            address,
            is_kernel: false,
            mapping: None,
            functions: names.iter().map(function).collect(),
        }
    }

    #[test]
    fn stacks_are_outermost_first_and_stored_once() {
        let (mut interning, mut new) = (Interning::default(), Message::default());
        let resolver = StackResolver::default();
        let stack = [frame(3, &["inlined", "leaf"]), frame(2, &["main"])];
        let first = interning.intern_stack(&resolver, &stack, &mut new);
        let length = new.bytes().len();
        assert_eq!(interning.intern_stack(&resolver, &stack, &mut new), first);
        assert_eq!(new.bytes().len(), length);
        let names: Vec<&[u8]> = messages(new.bytes(), interned::FUNCTION_NAMES)
            .into_iter()
            .flat_map(|name| messages(name, interned::TEXT))
            .collect();
        assert_eq!(names, [&b"main"[..], b"leaf", b"inlined"]);
        let frames = messages(new.bytes(), interned::FRAMES);
        let functions: Vec<Option<u64>> =
            frames.iter().map(|frame| number(frame, interned::FRAME_FUNCTION)).collect();
        assert_eq!(functions, [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn entries_are_limited() {
        let (mut interning, mut new) = (Interning::default(), Message::default());
        let mut count = 0;
        while !interning.is_full() {
            count += 1;
            interning.intern_event_name(&"x".repeat(count), &mut new);
            new.clear();
        }
        assert!(count < 10_000, "{count}");
    }
}
