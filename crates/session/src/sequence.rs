//! Sequence numbers of messages: 1, 2, 3 …, assigned when a message is collected.
//!
//! ```text
//!   USE_LOCAL_SEQUENCE    numbers of the session
//!   USE_GLOBAL_SEQUENCE   numbers that all such sessions of this process share
//! ```
//!
//! A message without a sequence field in its header uses up no number. If the session has no
//! sequence mode, the field is set to 0. The process's own value is always overwritten: a process
//! must not decide the order of other processes' messages. After 2³² − 1 comes 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use traceweir_format::header::message;
use traceweir_format::spec::session::{EVENT_TRACE_USE_GLOBAL_SEQUENCE, EVENT_TRACE_USE_LOCAL_SEQUENCE};

/// The last number that sessions with USE_GLOBAL_SEQUENCE gave out.
static GLOBAL: AtomicU32 = AtomicU32::new(0);

/// Source of the sequence numbers of a session's messages.
#[derive(Clone, Debug, Default)]
pub(crate) enum Sequence {
    /// The session has no sequence mode.
    #[default]
    None,
    /// The last number of the session.
    Local(Arc<AtomicU32>),
    /// Numbers shared through [`GLOBAL`].
    Global,
}

impl Sequence {
    /// Chooses the source that the session's log file mode asks for.
    pub(crate) fn from_mode(log_file_mode: u32) -> Self {
        if log_file_mode & EVENT_TRACE_USE_GLOBAL_SEQUENCE != 0 {
            Self::Global
        } else if log_file_mode & EVENT_TRACE_USE_LOCAL_SEQUENCE != 0 {
            Self::Local(Arc::default())
        } else {
            Self::None
        }
    }

    /// Writes the next number into a message that has a sequence field.
    pub(crate) fn number(&self, record: &mut [u8]) {
        if message::sequence(record).is_some() {
            message::set_sequence(record, self.next());
        }
    }

    fn next(&self) -> u32 {
        let last = match self {
            Self::None => return 0,
            Self::Local(last) => last.as_ref(),
            Self::Global => &GLOBAL,
        };
        let next = |last: u32| last.checked_add(1).unwrap_or(1);
        let last = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(last.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::header::message::MessageHeader;

    fn message(sequence: Option<u32>) -> Vec<u8> {
        let mut out = Vec::new();
        MessageHeader { number: 3, pointer_size: 8, sequence, guid: None, time: None, ids: None }
            .encode(b"argument", &mut out)
            .unwrap();
        out
    }

    fn numbers(sequence: &Sequence, count: usize) -> Vec<u32> {
        let number = |_| {
            let mut record = message(Some(4711));
            sequence.number(&mut record);
            message::sequence(&record).unwrap()
        };
        (0..count).map(number).collect()
    }

    #[test]
    fn a_session_counts_its_messages_from_1() {
        let (one, other) = (Sequence::from_mode(0x8000), Sequence::from_mode(0x8001));
        assert_eq!(numbers(&one, 3), [1, 2, 3]);
        assert_eq!(numbers(&other, 2), [1, 2]);
        assert_eq!(numbers(&one.clone(), 1), [4], "all processes of a session share its numbers");
        let Sequence::Local(last) = &one else { panic!() };
        last.store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(numbers(&one, 3), [u32::MAX, 1, 2]);
    }

    #[test]
    fn sessions_share_numbers_or_have_none() {
        let (one, other) = (Sequence::from_mode(0x4000), Sequence::from_mode(0x4000));
        let (first, second) = (numbers(&one, 1)[0], numbers(&other, 1)[0]);
        assert!(first > 0 && second > first);
        assert_eq!(numbers(&Sequence::from_mode(1), 2), [0, 0]);
        let (mut bare, before) = (message(None), message(None));
        one.number(&mut bare);
        assert_eq!(bare, before, "a message without the field stays unchanged");
    }
}
