//! Properties of the mapping, on a simulated machine.

use proptest::prelude::*;

use super::*;

const SECOND: i64 = NANOS_PER_SECOND;

fn pair(counter: u64, ns: i64) -> ClockPair {
    ClockPair { counter, ns }
}

/// A counter with a constant rate, and a monotonic clock whose rate changes at each step.
struct Machine {
    ticks_per_second: u64,
    now: ClockPair,
}

impl Machine {
    /// Lets time pass on the counter, while the clock runs faster by `deviation_ppm`.
    fn pass_ms(&mut self, ms: u64, deviation_ppm: i64) {
        self.now.counter += self.ticks_per_second / 1000 * ms;
        let ns = ms.cast_signed() * 1_000_000;
        self.now.ns += ns + ns / 1_000_000 * deviation_ppm;
    }
}

/// Returns the time on the last segment that has begun, calculated without saturation.
fn exact_ns(mapping: &CounterMapping, counter: u64) -> i64 {
    let mut begun = mapping.segments.iter().filter(|segment| segment.begin.counter <= counter);
    let segment = begun.next_back().unwrap_or(&mapping.segments[0]);
    let ticks = i128::from(counter) - i128::from(segment.begin.counter);
    let ns = (ticks * i128::from(segment.rate)).div_euclid(1 << FRACTION_BITS);
    i64::try_from(i128::from(segment.begin.ns) + ns).unwrap()
}

proptest! {
    #[test]
    fn renewals_never_step_and_errors_stay_small(
        ticks_per_second in prop::sample::select(vec![24_000_000_u64, 1_000_000_000, 2_100_000_000, 3_700_000_000]),
        // Each step: milliseconds, deviation of the clock's rate, error of the pair in nanoseconds.
        steps in prop::collection::vec((500_u64..1500, -500_i64..500, -2_000_i64..2_000), 1..40),
    ) {
        let mut machine = Machine { ticks_per_second, now: pair(1 << 40, 77 * SECOND) };
        let mut mapping = CounterMapping::new(machine.now, ticks_per_second);
        let mut last = machine.now.ns;
        for (ms, deviation_ppm, pair_error) in steps {
            let begin = machine.now;
            machine.pass_ms(ms, deviation_ppm);
            let span = machine.now.counter - begin.counter;
            let samples: Vec<u64> = (0..=50).map(|part| begin.counter + span / 50 * part).collect();
            let before: Vec<i64> = samples.iter().map(|counter| mapping.ns(*counter)).collect();
            for (counter, ns) in samples.iter().zip(&before) {
                prop_assert!(*ns >= last, "{ns} after {last}");
                prop_assert_eq!(*ns, exact_ns(&mapping, *counter));
                last = *ns;
            }
            // The rate of the clock changes by at most 1000 parts in a million from one step to the
            // next, and so does the rate of the mapping. Each correction may be wrong by the error
            // of a pair. In 1500 ms, 1000 parts in a million are 1500 × 1,000 ns.
            let max_error = 1500 * 1_000 * 3 + 20_000;
            let error = last - machine.now.ns;
            prop_assert!(error.abs() < max_error, "{error} ns after {ms} ms");
            prop_assert!(mapping.needs_renewal(machine.now.counter));
            mapping.renew(pair(machine.now.counter, machine.now.ns + pair_error));
            prop_assert!(!mapping.needs_renewal(machine.now.counter));
            let after: Vec<i64> = samples.iter().map(|counter| mapping.ns(*counter)).collect();
            prop_assert_eq!(&before, &after, "counter values before the renewal changed their times");
            let next = mapping.ns(machine.now.counter + 1) - mapping.ns(machine.now.counter);
            prop_assert!(next >= 0 && next <= 2 * SECOND / ticks_per_second.cast_signed() + 1, "a step of {next} ns");
        }
    }

    #[test]
    fn inverse_returns_the_lowest_counter_value(
        renewals in prop::collection::vec((500_u64..1500, -20_000_i64..20_000), 0..4),
        offset in -3 * SECOND..3 * SECOND,
    ) {
        let mut machine = Machine { ticks_per_second: 2_400_000_000, now: pair(1 << 50, 5_000 * SECOND) };
        let mut mapping = CounterMapping::new(machine.now, machine.ticks_per_second);
        for (ms, deviation_ppm) in renewals {
            // Beyond ±10,000 parts in a million the mapping starts anew.
            machine.pass_ms(ms, deviation_ppm);
            mapping.renew(machine.now);
        }
        let ns = machine.now.ns + offset;
        let counter = mapping.first_counter(ns);
        prop_assert!(mapping.ns(counter) >= ns && mapping.ns(counter - 1) < ns);
        prop_assert!(mapping.first_counter(ns + 1) >= counter);
    }

    #[test]
    fn no_value_panics(
        pairs in prop::collection::vec((any::<u64>(), any::<i64>()), 1..6),
        ticks_per_second: u64, counter: u64, ns: i64,
    ) {
        let mut mapping = CounterMapping::new(pair(pairs[0].0, pairs[0].1), ticks_per_second);
        for (counter, ns) in &pairs {
            mapping.renew(pair(*counter, *ns));
        }
        mapping.needs_renewal(counter);
        let _ = (mapping.ns(counter), mapping.first_counter(ns));
    }
}

#[test]
fn kernel_times_survive_the_way_through_a_fast_counter() {
    let mut machine = Machine { ticks_per_second: 2_100_000_000, now: pair(1 << 44, 9_000 * SECOND) };
    let mut mapping = CounterMapping::new(machine.now, machine.ticks_per_second);
    for _ in 0..5 {
        machine.pass_ms(900, 300);
        mapping.renew(machine.now);
        for ns in machine.now.ns - 2_000..machine.now.ns + 2_000 {
            assert_eq!(mapping.ns(mapping.first_counter(ns)), ns);
        }
    }
}

#[test]
fn error_of_the_first_rate_is_gone_after_two_renewals() {
    // The first rate is wrong by 50 parts in a million.
    let mut machine = Machine { ticks_per_second: 3_000_000_000, now: pair(1 << 40, SECOND) };
    let mut mapping = CounterMapping::new(machine.now, 3_000_150_000);
    let errors = [(); 3].map(|()| {
        machine.pass_ms(1000, 0);
        let error = mapping.ns(machine.now.counter) - machine.now.ns;
        mapping.renew(machine.now);
        error.abs()
    });
    assert!((40_000..60_000).contains(&errors[0]), "{errors:?}");
    assert!(errors[1] < 100 && errors[2] < 100, "{errors:?}");
}

#[test]
fn mapping_starts_anew_after_the_machine_was_suspended() {
    let start = pair(1 << 44, 9_000 * SECOND);
    let mut mapping = CounterMapping::new(start, 1_000_000_000);
    // The counter counted an hour more than the clock, which stopped.
    let resumed = pair(start.counter + 3_601_000_000_000, start.ns + SECOND);
    mapping.renew(resumed);
    assert_eq!(mapping.ns(resumed.counter), resumed.ns);
    assert_eq!(mapping.ns(resumed.counter + 1_000), resumed.ns + 1_000);
    assert_eq!(mapping.ns(resumed.counter - 1_000), resumed.ns, "a time after the new start");
    assert_eq!(mapping.ns(start.counter + 1_000), start.ns + 1_000, "an event before the suspension");
    // The counter stopped, or began at 0.
    for counter in [resumed.counter + 1_000_000_000, 5_000_000_000] {
        let mut mapping = mapping.clone();
        let moved = pair(counter, resumed.ns + 60 * SECOND);
        assert!(mapping.needs_renewal(moved.counter));
        mapping.renew(moved);
        assert_eq!(mapping.ns(moved.counter + 7), moved.ns + 7);
        assert!(mapping.ns(moved.counter - 1) <= moved.ns);
    }
}
