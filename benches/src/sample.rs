//! The events that Traceweir and babeltrace2 read: the same values, once as `.etl` and once as CTF.
//!
//! ```text
//!   payload, 40 bytes   00 u32 seq │ 04 u64 val │ 0C 27 letters and a NUL
//!   also recorded       time, processor, process, thread
//! ```
//!
//! The processor of each event is random, as on a busy machine. So with two processors, a reader
//! has to switch to the other processor's stream at about every second event. Longer runs of events
//! of one processor would favour readers that merge whole runs at a time.

pub(crate) const PAYLOAD_BYTES: usize = 40;
/// The text of each event.
pub(crate) const TEXT: &str = "abcdefghijklmnopqrstuvwxyza";
/// Provider name of the events.
pub(crate) const PROVIDER: &str = "anchors";
/// Name of the events.
pub(crate) const EVENT: &str = "ev";
/// Process id of the events.
pub(crate) const PROCESS_ID: u32 = 4242;
/// 100 ns units between two successive events of the trace, whichever processors wrote them.
pub(crate) const STEP_UNITS: u64 = 2;
/// Wall time of the first event in seconds since 1970.
pub(crate) const START_SECONDS: u64 = 1_700_000_000;

/// One event, computed from its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleEvent {
    /// Number of the event, which is its order in time.
    pub(crate) index: u64,
    /// Processor that wrote the event.
    pub(crate) cpu: u16,
}

impl SampleEvent {
    /// Returns event `index` of a machine with `cpus` processors.
    pub(crate) fn new(index: u64, cpus: u16) -> Self {
        let mixed = (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
        let cpu = u16::try_from(mixed % u64::from(cpus.max(1))).unwrap_or(0);
        Self { index, cpu }
    }

    /// Returns the first field.
    #[allow(clippy::cast_possible_truncation)] // Wraps, as a 32-bit sequence number does.
    pub(crate) fn seq(self) -> u32 {
        self.index as u32
    }

    /// Returns the second field.
    pub(crate) fn val(self) -> u64 {
        self.index.wrapping_mul(0x9E37)
    }

    /// Returns the thread that wrote the event: one for each processor.
    pub(crate) fn thread(self) -> u32 {
        PROCESS_ID + 1 + u32::from(self.cpu)
    }

    /// Returns the 100 ns units since the first event.
    pub(crate) fn units(self) -> u64 {
        self.index * STEP_UNITS
    }

    /// Encodes the payload.
    pub(crate) fn payload(self) -> [u8; PAYLOAD_BYTES] {
        let mut bytes = [0; PAYLOAD_BYTES];
        bytes[..4].copy_from_slice(&self.seq().to_le_bytes());
        bytes[4..12].copy_from_slice(&self.val().to_le_bytes());
        bytes[12..12 + TEXT.len()].copy_from_slice(TEXT.as_bytes());
        bytes
    }

    /// Returns the sum of both number fields.
    pub(crate) fn sum(self) -> u64 {
        self.val().wrapping_add(u64::from(self.seq()))
    }
}

/// Returns the sum over both number fields of the first `events` events.
pub(crate) fn sum_of_values(events: u64) -> u64 {
    (0..events).fold(0, |sum, index| sum.wrapping_add(SampleEvent { index, cpu: 0 }.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_gets_its_share_and_runs_are_short() {
        let cpus: Vec<u16> = (0..10_000).map(|i| SampleEvent::new(i, 2).cpu).collect();
        let ones = cpus.iter().filter(|&&c| c == 1).count();
        let changes = cpus.windows(2).filter(|w| w[0] != w[1]).count();
        assert!((4_500..5_500).contains(&ones) && (4_500..5_500).contains(&changes), "{ones} {changes}");
    }

    #[test]
    fn a_payload_is_two_numbers_and_a_terminated_text() {
        let payload = SampleEvent::new(3, 2).payload();
        assert_eq!(payload[..12], [3, 0, 0, 0, 0xA5, 0xDA, 1, 0, 0, 0, 0, 0]);
        assert_eq!((&payload[12..39], payload[39]), (TEXT.as_bytes(), 0));
    }
}
