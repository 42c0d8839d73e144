//! The time that the events of a report span.

/// The time from the first to the last event that a report counts, in nanoseconds since the first
/// trace began.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventSpan {
    first_ns: Option<i64>,
    last_ns: i64,
}

impl EventSpan {
    /// Adds the time of an event. Events are added in time order.
    pub fn add(&mut self, time_ns: i64) {
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = time_ns;
    }

    /// Returns the length of the span; 0 without events.
    pub fn seconds(self) -> f64 {
        self.first_ns.map_or(0.0, |first_ns| self.last_ns.saturating_sub(first_ns) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_reaches_from_first_to_last_event() {
        let mut span = EventSpan::default();
        assert!(span.seconds().abs() < f64::EPSILON);
        for time_ns in [2_000_000_000, 2_500_000_000, 3_500_000_000] {
            span.add(time_ns);
        }
        assert!((span.seconds() - 1.5).abs() < f64::EPSILON);
    }
}
