//! Sequence numbers of messages: 1, 2, 3 …, assigned when a message is collected.
//!
//! ```text
//!   USE_LOCAL_SEQUENCE    numbers of the session
//!   USE_GLOBAL_SEQUENCE   numbers that all sessions of this mode in this process share
//! ```
//!
//! A message without a sequence field in its header uses up no number. If the session has no
//! sequence mode, the field is set to 0. The value that the process wrote is always replaced: a
//! process must not decide the order of other processes' messages. After 2³² − 1 comes 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use traceweir_format::header::message;
use traceweir_format::spec::session::{EVENT_TRACE_USE_GLOBAL_SEQUENCE, EVENT_TRACE_USE_LOCAL_SEQUENCE};

/// The last number that sessions with USE_GLOBAL_SEQUENCE gave out.
static LAST_GLOBAL_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Source of the sequence numbers of a session's messages.
#[derive(Clone, Debug, Default)]
pub(crate) enum MessageSequence {
    /// The session has no sequence mode.
    #[default]
    None,
    /// The last number of the session.
    Local(Arc<AtomicU32>),
    /// Numbers shared through [`LAST_GLOBAL_NUMBER`].
    Global,
}

impl MessageSequence {
    /// Creates the sequence that the session's log file mode asks for.
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
    pub(crate) fn write_next_number(&self, record: &mut [u8]) {
        if message::sequence(record).is_some() {
            message::set_sequence(record, self.take_next());
        }
    }

    fn take_next(&self) -> u32 {
        let last = match self {
            Self::None => return 0,
            Self::Local(last) => last.as_ref(),
            Self::Global => &LAST_GLOBAL_NUMBER,
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

    fn encode_message(sequence: Option<u32>) -> Vec<u8> {
        let mut out = Vec::new();
        MessageHeader { number: 3, pointer_size: 8, sequence, guid: None, time: None, ids: None }
            .encode(b"argument", &mut out)
            .unwrap();
        out
    }

    fn assign_numbers(sequence: &MessageSequence, count: usize) -> Vec<u32> {
        let assign_number = |_| {
            let mut record = encode_message(Some(4711));
            sequence.write_next_number(&mut record);
            message::sequence(&record).unwrap()
        };
        (0..count).map(assign_number).collect()
    }

    #[test]
    fn session_numbers_its_messages_from_1() {
        let (first, second) = (
            MessageSequence::from_mode(EVENT_TRACE_USE_LOCAL_SEQUENCE),
            MessageSequence::from_mode(EVENT_TRACE_USE_LOCAL_SEQUENCE),
        );
        assert_eq!(assign_numbers(&first, 3), [1, 2, 3]);
        assert_eq!(assign_numbers(&second, 2), [1, 2]);
        assert_eq!(assign_numbers(&first.clone(), 1), [4], "a clone has its own numbers");
        let MessageSequence::Local(last) = &first else { panic!("the sequence is not local") };
        last.store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(assign_numbers(&first, 3), [u32::MAX, 1, 2]);
    }

    #[test]
    fn sessions_share_numbers_or_have_none() {
        let (first, second) = (
            MessageSequence::from_mode(EVENT_TRACE_USE_GLOBAL_SEQUENCE),
            MessageSequence::from_mode(EVENT_TRACE_USE_GLOBAL_SEQUENCE),
        );
        let numbers = [assign_numbers(&first, 1)[0], assign_numbers(&second, 1)[0]];
        assert!(numbers[0] > 0 && numbers[1] > numbers[0]);
        assert_eq!(assign_numbers(&MessageSequence::from_mode(0), 2), [0, 0]);
        let (mut unnumbered, before) = (encode_message(None), encode_message(None));
        first.write_next_number(&mut unnumbered);
        assert_eq!(unnumbered, before, "a message without the field was changed");
    }
}
