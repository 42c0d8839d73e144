//! The buffers of TraceSetInformation: valid lengths and parsing.
//!
//! ```text
//!   head      element  element  …                  length 0 clears, if the class allows it
//!   │ fields │ min_elements ≤ count ≤ max_elements │
//! ```
//!
//! [`Rules::can_set`](crate::spec::info::Rules) states which classes can be set; the compiler
//! checks that exactly these have a form here.

use alloc::vec::Vec;

use super::{REGISTER_TYPES, Set, remove_duplicates};
use crate::Result;
use crate::info::{
    ClassicEventId, GroupMask, MAX_CLASSIC_EVENTS, MAX_COUNTERS, MAX_DISALLOWED_PROVIDERS, MAX_LBR_EVENTS,
    MAX_PMC_EVENTS, ProfileInterval, StackCaching, parse_capture_state, parse_elements, reject_invalid,
    reject_length,
};
use crate::spec::info::InfoClass;
use crate::wire::{guid_at, u8_at, u32_at};

/// The valid lengths of a buffer, and its parser.
pub(super) struct BufferForm {
    /// Bytes before the elements.
    head_bytes: usize,
    /// Size of an element in bytes; 0 if there are none.
    element_bytes: usize,
    /// The least number of elements.
    min_elements: usize,
    /// The largest number of elements.
    max_elements: usize,
    /// Whether an empty buffer is valid and clears the setting.
    clears_if_empty: bool,
    /// Whether the number of elements is checked before an incomplete last element is reported.
    checks_max_first: bool,
    /// Parses a buffer whose length has been checked.
    pub(super) parse: fn(&[u8]) -> Set,
}

/// Size of a [`ClassicEventId`] in a list, in bytes.
const EVENT_BYTES: usize = ClassicEventId::SIZE;

impl BufferForm {
    const fn fixed(head_bytes: usize, parse: fn(&[u8]) -> Set) -> Self {
        Self {
            head_bytes,
            element_bytes: 0,
            min_elements: 0,
            max_elements: 0,
            clears_if_empty: false,
            checks_max_first: false,
            parse,
        }
    }

    const fn list(element_bytes: usize, max_elements: usize, parse: fn(&[u8]) -> Set) -> Self {
        Self { element_bytes, min_elements: 1, max_elements, ..Self::fixed(0, parse) }
    }

    const fn cleared_if_empty(self) -> Self {
        Self { clears_if_empty: true, ..self }
    }

    /// Returns the form of a class that can be set.
    pub(super) const fn for_class(class: InfoClass) -> Option<Self> {
        use InfoClass as C;
        Some(match class {
            C::TraceStackTracingInfo => {
                Self::list(EVENT_BYTES, MAX_CLASSIC_EVENTS, parse_stack_tracing).cleared_if_empty()
            }
            C::TraceSystemTraceEnableFlagsInfo => {
                Self { checks_max_first: true, ..Self::list(4, 8, parse_enable_flags) }
            }
            C::TraceSampledProfileIntervalInfo => Self::fixed(8, parse_interval),
            C::TraceProfileSourceConfigInfo => {
                Self::list(4, MAX_COUNTERS, |bytes| Set::ProfileSourceConfig(parse_words(bytes)))
                    .cleared_if_empty()
            }
            C::TracePmcEventListInfo => {
                Self::list(EVENT_BYTES, MAX_PMC_EVENTS, |bytes| Set::PmcEventList(parse_events(bytes)))
            }
            C::TracePmcCounterListInfo => {
                Self::list(4, MAX_COUNTERS, |bytes| Set::PmcCounterList(parse_words(bytes)))
            }
            C::TraceSetDisallowList => {
                Self::list(16, MAX_DISALLOWED_PROVIDERS, parse_disallow_list).cleared_if_empty()
            }
            // The count in the buffer decides how many GUIDs follow; bytes after them are ignored.
            C::TracePeriodicCaptureStateListInfo => Self::fixed(8, parse_periodic).cleared_if_empty(),
            C::TraceProviderBinaryTracking => {
                Self::fixed(1, |bytes| Set::ProviderBinaryTracking(u8_at(bytes, 0) != 0))
            }
            C::TraceLbrConfigurationInfo => Self::fixed(4, |bytes| Set::LbrConfiguration(u32_at(bytes, 0))),
            C::TraceLbrEventListInfo => {
                Self::list(4, MAX_LBR_EVENTS, |bytes| Set::LbrEventList(parse_words(bytes)))
                    .cleared_if_empty()
            }
            C::TraceStackCachingInfo => Self::fixed(12, |bytes| Set::StackCaching(parse_caching(bytes))),
            C::TraceUnifiedStackCachingInfo => {
                Self::fixed(12, |bytes| Set::UnifiedStackCaching(parse_caching(bytes)))
            }
            C::TraceContextRegisterInfo => Self {
                head_bytes: 8,
                min_elements: 0,
                ..Self::list(EVENT_BYTES, MAX_CLASSIC_EVENTS, parse_registers)
            }
            .cleared_if_empty(),
            // These classes are queried or enumerated, and one is reserved.
            C::TraceGuidQueryList | C::TraceGuidQueryInfo | C::TraceGuidQueryProcess => return None,
            C::TraceGroupQueryList | C::TraceGroupQueryInfo | C::TraceDisallowListQuery => return None,
            C::TraceProfileSourceListInfo | C::TraceVersionInfo | C::TraceInfoReserved15 => return None,
            C::TracePeriodicCaptureStateInfo | C::TraceMaxLoggersQuery | C::TraceStreamCount => return None,
            C::TraceMaxPmcCounterQuery | C::TracePmcCounterOwners | C::TracePmcSessionInformation => {
                return None;
            }
        })
    }

    /// Checks that a buffer is long enough and has whole elements, and not too many.
    pub(super) fn check(&self, length: usize) -> Result<()> {
        if length == 0 && self.clears_if_empty {
            return Ok(());
        }
        let min_bytes = self.head_bytes.saturating_add(self.element_bytes.saturating_mul(self.min_elements));
        let Some(remaining) = length.checked_sub(self.head_bytes).filter(|_| length >= min_bytes) else {
            return reject_length("the buffer is shorter than the class allows");
        };
        match (remaining.checked_rem(self.element_bytes), remaining.checked_div(self.element_bytes)) {
            // For group masks, too many elements are reported before an incomplete one.
            _ if self.checks_max_first
                && remaining > self.max_elements.saturating_mul(self.element_bytes) =>
            {
                reject_invalid("more elements than the class allows")
            }
            (Some(incomplete_bytes), _) if incomplete_bytes != 0 => {
                reject_length("the buffer does not hold whole elements")
            }
            (_, Some(count)) if count > self.max_elements => {
                reject_invalid("more elements than the class allows")
            }
            _ => Ok(()),
        }
    }
}

// Fails to compile if a class that the table allows to be set has no form, or the reverse.
const _: () = {
    let mut remaining: &[InfoClass] = &InfoClass::ALL;
    while let [class, others @ ..] = remaining {
        assert!(BufferForm::for_class(*class).is_some() == class.rules().can_set);
        remaining = others;
    }
};

fn parse_words(bytes: &[u8]) -> Vec<u32> {
    parse_elements(bytes, 4, |word| u32_at(word, 0))
}

/// Parses a list of events without duplicates.
fn parse_events(bytes: &[u8]) -> Vec<ClassicEventId> {
    remove_duplicates(ClassicEventId::parse_list(bytes))
}

fn parse_stack_tracing(bytes: &[u8]) -> Set {
    Set::StackTracing(parse_events(bytes))
}

fn parse_enable_flags(bytes: &[u8]) -> Set {
    let mut mask = GroupMask::default();
    for (word, value) in mask.iter_mut().zip(parse_words(bytes)) {
        *word = value;
    }
    Set::SystemTraceEnableFlags(mask)
}

fn parse_interval(bytes: &[u8]) -> Set {
    let (source, interval) = (u32_at(bytes, 0), u32_at(bytes, 4));
    Set::SampledProfileInterval(ProfileInterval { source, interval })
}

fn parse_disallow_list(bytes: &[u8]) -> Set {
    Set::DisallowList(remove_duplicates(parse_elements(bytes, 16, |guid| guid_at(guid, 0))))
}

fn parse_periodic(bytes: &[u8]) -> Set {
    if bytes.is_empty() {
        return Set::PeriodicCaptureState(None);
    }
    // A count that is too large for the length is no error here: `Set::check` reports it, after the
    // session has been checked.
    parse_capture_state(bytes)
        .map_or(Set::TruncatedPeriodicCaptureState, |capture| Set::PeriodicCaptureState(Some(capture)))
}

fn parse_caching(bytes: &[u8]) -> StackCaching {
    StackCaching { is_enabled: u8_at(bytes, 0) != 0, bytes: u32_at(bytes, 4), buckets: u32_at(bytes, 8) }
}

fn parse_registers(bytes: &[u8]) -> Set {
    // An empty buffer clears the setting. It gets the only value that `Set::check` accepts.
    let types = if bytes.is_empty() { REGISTER_TYPES } else { u32_at(bytes, 0) };
    Set::ContextRegister { types, events: parse_events(bytes.get(8..).unwrap_or(&[])) }
}
