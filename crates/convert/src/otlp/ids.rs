//! Trace ids and span ids.
//!
//! ```text
//!   activity id   01020304-0506-0708-090a-0b0c0d0e0f10
//!   trace id      the digits of the first activity: that of the event itself or, if a start event
//!                 names a related activity, the trace id of that one
//!   span id       64-bit FNV-1a hash of the activity id
//! ```
//!
//! Ids depend only on the trace, so logs and spans of one trace have the same ids, and a second
//! conversion gives the same ids again. The relations that are remembered are bounded: beyond the
//! limit the oldest one is forgotten, and later events of that activity begin a trace of their own.

use std::collections::{HashMap, VecDeque};

use traceweir_format::Guid;
use traceweir_format::header::Record;

/// The most activities whose first activity is remembered.
const MAX_ROOTS: usize = 1 << 18;

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;

/// The id of a trace: the first activity, or a made-up one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceId(u128);

/// The id of a span; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanId(u64);

/// Returns the FNV-1a hash of bytes. It is never 0, which is no valid id.
fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    let hash = bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    hash.max(1)
}

impl TraceId {
    fn from_activity(activity: Guid) -> Self {
        let text = activity.to_ascii();
        let digits = text.iter().filter_map(|digit| char::from(*digit).to_digit(16));
        Self(digits.fold(0, |number, digit| number << 4 | u128::from(digit)))
    }

    /// Makes up an id for a trace without an activity.
    pub(crate) fn from_parts(parts: &[&[u8]]) -> Self {
        Self(u128::from(hash(parts)) << 64 | u128::from(hash(&[parts.concat().as_slice(), b"trace"])))
    }
}

impl SpanId {
    /// Returns the id of the outermost span of an activity, which events of the activity refer to.
    pub(crate) fn from_activity(activity: Guid) -> Self {
        Self(hash(&[&activity.to_bytes()]))
    }

    /// Makes up an id.
    pub(crate) fn from_parts(parts: &[&[u8]]) -> Self {
        Self(hash(parts))
    }
}

impl std::fmt::Display for TraceId {
    /// Writes 32 hexadecimal digits, as JSON has them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::fmt::Display for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The first activity of each activity.
#[derive(Debug, Default)]
pub(crate) struct ActivityRoots {
    roots: HashMap<Guid, Guid>,
    order: VecDeque<Guid>,
}

impl ActivityRoots {
    /// Learns the relation that an event names, and returns the activity of the event; `None` if it
    /// has none.
    pub(crate) fn observe(&mut self, record: &Record<'_>) -> Option<Guid> {
        let activity = record.activity().filter(|activity| !activity.is_null())?;
        let related = record.items().related_activity().filter(|related| !related.is_null());
        if let Some(related) = related.filter(|related| *related != activity) {
            self.relate(activity, related);
        }
        Some(activity)
    }

    fn relate(&mut self, activity: Guid, parent: Guid) {
        let root = self.roots.get(&parent).copied().unwrap_or(parent);
        // The first relation of an activity counts, and no activity becomes its own ancestor.
        if root == activity || self.roots.contains_key(&activity) {
            return;
        }
        self.roots.insert(activity, root);
        self.order.push_back(activity);
        if self.order.len() > MAX_ROOTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.roots.remove(&oldest);
        }
    }

    /// Returns the trace that an activity belongs to.
    pub(crate) fn trace_of(&self, activity: Guid) -> TraceId {
        TraceId::from_activity(self.roots.get(&activity).copied().unwrap_or(activity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Guid = Guid::from_u128(0x01020304_0506_0708_090A_0B0C0D0E0F10);
    const B: Guid = Guid::from_u128(2);
    const C: Guid = Guid::from_u128(3);

    #[test]
    fn trace_id_has_the_digits_of_the_first_activity() {
        let mut roots = ActivityRoots::default();
        assert_eq!(roots.trace_of(A).to_string(), "0102030405060708090a0b0c0d0e0f10");
        roots.relate(B, A);
        roots.relate(C, B);
        assert_eq!((roots.trace_of(C), roots.trace_of(B)), (roots.trace_of(A), roots.trace_of(A)));
        roots.relate(A, C);
        assert_eq!(roots.trace_of(A).to_string(), "0102030405060708090a0b0c0d0e0f10", "a circle");
    }

    #[test]
    fn span_ids_are_the_published_hash() {
        assert_eq!(SpanId::from_parts(&[b"a"]).to_string(), "af63dc4c8601ec8c");
        assert_eq!(SpanId::from_parts(&[b"foo", b"bar"]).to_string(), "85944171f73967e8");
        assert_ne!(SpanId::from_activity(A), SpanId::from_activity(B));
    }

    #[test]
    fn number_of_relations_is_bounded() {
        let mut roots = ActivityRoots::default();
        for number in 1..MAX_ROOTS as u128 + 10 {
            roots.relate(Guid::from_u128(number << 8), A);
        }
        assert_eq!((roots.roots.len(), roots.order.len()), (MAX_ROOTS, MAX_ROOTS));
    }
}
