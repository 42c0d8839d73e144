//! Stack-walk events: call stacks as separate events, and the events that they belong to.
//!
//! ```text
//!   type 0x20         0 event time │ 8 process │ C thread │ 10 frames, innermost first, to the end
//!   type 0x25         0 event time │ 8 process │ C thread │ 10 key of a kernel stack
//!   type 0x26         0 event time │ 8 process │ C thread │ 10 key of a user stack
//! ```
//!
//! The kernel part and the user part of one stack may be two events. Of type 0x20, only the
//! addresses distinguish the parts: kernel addresses lie in the upper half of the address space.
//!
//! Source: Documented ("StackWalk_Event class"); the layout as in `kernel/stack.rs`.

use crate::header::Record;
use crate::kernel::hook::{STACK_KEY_KERNEL, STACK_KEY_USER, STACK_WALK};
use crate::stack_key::{Definitions, KEY_OFFSET};
use crate::wire::{i64_at, u32_at, u64_at};

/// One stack-walk event.
#[derive(Clone, Copy, Debug)]
pub struct StackWalk<'b> {
    /// The stamp of the event that the stack belongs to.
    pub event_time: i64,
    /// The process that the stack belongs to.
    pub process_id: u32,
    /// The thread that the stack belongs to.
    pub thread_id: u32,
    /// The stamp of the stack-walk event.
    pub time: i64,
    /// Size of an address in bytes: 4 or 8.
    pub pointer_size: usize,
    content: StackContent<'b>,
}

#[derive(Clone, Copy, Debug)]
enum StackContent<'b> {
    Frames(&'b [u8]),
    Key { key: u64, is_kernel: bool },
}

impl<'b> StackWalk<'b> {
    /// Returns whether a record is a stack-walk event. The hook id decides, because only sessions
    /// and system loggers can write it.
    #[inline]
    #[must_use]
    pub fn is_stack_walk(record: &Record<'_>) -> bool {
        matches!(record.hook(), Some(STACK_WALK | STACK_KEY_KERNEL | STACK_KEY_USER))
    }

    /// Parses the stack of a record; `None` if it is another event or too short.
    #[must_use]
    pub fn parse(record: &Record<'b>) -> Option<Self> {
        let (payload, width) = (record.payload(), record.pointer_size());
        if payload.len() < KEY_OFFSET {
            return None;
        }
        let remaining = payload.get(KEY_OFFSET..).unwrap_or_default();
        let content = match record.hook()? {
            STACK_WALK => StackContent::Frames(remaining),
            hook @ (STACK_KEY_KERNEL | STACK_KEY_USER) if remaining.len() >= width => {
                StackContent::Key { key: read_address(remaining, width), is_kernel: hook == STACK_KEY_KERNEL }
            }
            _ => return None,
        };
        Some(Self {
            event_time: i64_at(payload, 0),
            process_id: u32_at(payload, 8),
            thread_id: u32_at(payload, 12),
            time: record.time(),
            pointer_size: width,
            content,
        })
    }

    /// Returns the frames, innermost first; `None` if the key has no definition.
    #[must_use]
    pub fn frames<'d>(
        &self,
        definitions: &'d Definitions,
    ) -> Option<impl Iterator<Item = u64> + use<'b, 'd>> {
        let (frame_bytes, key_frames): (&'b [u8], &'d [u64]) = match self.content {
            StackContent::Frames(bytes) => (bytes, &[]),
            StackContent::Key { key, .. } => (&[], definitions.frames_at(key, self.time)?),
        };
        let width = self.pointer_size;
        let frame_bytes = frame_bytes.chunks_exact(width.max(1)).map(move |bytes| read_address(bytes, width));
        Some(frame_bytes.chain(key_frames.iter().copied()))
    }

    /// Returns whether this is the kernel part of a stack: by the type of an event with a key, else
    /// by the innermost frame.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        match self.content {
            StackContent::Frames(bytes) => {
                is_kernel_address(read_address(bytes, self.pointer_size), self.pointer_size)
            }
            StackContent::Key { is_kernel, .. } => is_kernel,
        }
    }
}

/// Returns whether an address lies in the kernel's half of the address space, the upper one.
#[must_use]
pub const fn is_kernel_address(address: u64, pointer_size: usize) -> bool {
    if pointer_size == 4 { address >> 31 == 1 } else { address >> 63 == 1 }
}

/// Reads the address at the start of `bytes`, 4 or 8 bytes wide.
fn read_address(bytes: &[u8], width: usize) -> u64 {
    if width == 4 { u64::from(u32_at(bytes, 0)) } else { u64_at(bytes, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::classic::ClassicHeader;
    use crate::header::perfinfo::PerfInfoHeader;
    use crate::kernel::hook::type_of;
    use crate::spec::event::class;
    use crate::stack_key::put_definition;
    use crate::wire::Put;
    use alloc::vec::Vec;

    fn encode_walk(hook: u16, addresses: &[u64], width: u8) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.put_i64(90).put_u32(7).put_u32(8);
        addresses.iter().for_each(|word| {
            payload.put(word.to_le_bytes().get(..usize::from(width)).unwrap());
        });
        let mut out = Vec::new();
        PerfInfoHeader { pointer_size: width, version: 2, hook, time: 100, counters: &[] }
            .encode(&payload, &mut out)
            .unwrap();
        out
    }

    fn parse_frames(bytes: &[u8], definitions: &Definitions) -> Option<(bool, Vec<u64>)> {
        let walk = StackWalk::parse(&Record::parse(bytes, 0).unwrap())?;
        assert_eq!((walk.event_time, walk.process_id, walk.thread_id, walk.time), (90, 7, 8, 100));
        Some((walk.is_kernel(), walk.frames(definitions)?.collect()))
    }

    #[test]
    fn stack_walk_has_frames_or_a_key() {
        let mut definitions = Definitions::default();
        let mut definition = Vec::new();
        put_definition(5, &[3_u64, 4].map(u64::to_le_bytes).concat(), 120, &mut definition).unwrap();
        definitions.observe(&Record::parse(&definition, 0).unwrap());
        let kernel = 0xFFFF_8000_0000_0001;
        assert_eq!(
            parse_frames(&encode_walk(STACK_WALK, &[kernel, 2], 8), &definitions),
            Some((true, [kernel, 2].to_vec()))
        );
        assert_eq!(
            parse_frames(&encode_walk(STACK_WALK, &[1, 2], 8), &definitions),
            Some((false, [1, 2].to_vec()))
        );
        assert_eq!(
            parse_frames(&encode_walk(STACK_WALK, &[0x8000_0001], 4), &definitions),
            Some((true, [0x8000_0001].to_vec()))
        );
        assert_eq!(
            parse_frames(&encode_walk(STACK_KEY_KERNEL, &[5], 8), &definitions),
            Some((true, [3, 4].to_vec()))
        );
        assert_eq!(
            parse_frames(&encode_walk(STACK_KEY_USER, &[5], 4), &definitions),
            Some((false, [3, 4].to_vec()))
        );
        assert_eq!(
            parse_frames(&encode_walk(STACK_KEY_USER, &[6], 8), &definitions),
            None,
            "a key without a definition has frames"
        );
        assert_eq!(parse_frames(&encode_walk(STACK_WALK, &[], 8), &definitions), Some((false, Vec::new())));
    }

    #[test]
    fn short_or_forged_record_is_not_a_stack() {
        let mut out = Vec::new();
        ClassicHeader { opcode: type_of(STACK_WALK), class: class::STACK_WALK, ..ClassicHeader::default() }
            .encode(&[0; 32], &mut out)
            .unwrap();
        assert!(StackWalk::parse(&Record::parse(&out, 0).unwrap()).is_none());
        let short = encode_walk(STACK_KEY_USER, &[], 8);
        assert!(StackWalk::parse(&Record::parse(&short, 0).unwrap()).is_none());
    }
}
