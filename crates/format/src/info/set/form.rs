//! The buffers of TraceSetInformation: valid lengths and parsing.
//!
//! ```text
//!   0       head      element  element  …          length 0, where the class allows: clear
//!   │ fixed │ fields │ least ≤ elements ≤ most │
//! ```
//!
//! Each class has one entry. [`Rules::sets`](crate::spec::info::Rules) lists the classes that can
//! be set; the compiler checks that exactly these have a form here.

use alloc::vec::Vec;

use super::{REGISTER_TYPES, Set, distinct};
use crate::Result;
use crate::info::{
    ClassicEventId, GroupMask, MAX_CLASSIC_EVENTS, MAX_COUNTERS, MAX_DISALLOWED, MAX_LBR_EVENTS,
    MAX_PMC_EVENTS, ProfileInterval, StackCaching, bad_length, elements, invalid, periodic_from,
};
use crate::spec::info::InfoClass;
use crate::wire::{guid_at, u8_at, u32_at};

/// The valid lengths of a buffer, and its parser.
pub(super) struct Form {
    /// Bytes before the elements.
    head: usize,
    /// Size of an element in bytes; 0 if there are none.
    element: usize,
    /// The least number of elements.
    least: usize,
    /// The largest number of elements.
    most: usize,
    /// Whether an empty buffer is valid and clears the setting.
    clears: bool,
    /// Whether too many elements are reported before an incomplete one.
    most_first: bool,
    /// Parses a buffer whose length has been checked.
    pub(super) read: fn(&[u8]) -> Set,
}

/// Size of an event in a list, in bytes.
const EVENT: usize = ClassicEventId::SIZE;

impl Form {
    const fn fixed(head: usize, read: fn(&[u8]) -> Set) -> Self {
        Self { head, element: 0, least: 0, most: 0, clears: false, most_first: false, read }
    }

    const fn list(element: usize, most: usize, read: fn(&[u8]) -> Set) -> Self {
        Self { element, least: 1, most, ..Self::fixed(0, read) }
    }

    const fn clearing(self) -> Self {
        Self { clears: true, ..self }
    }

    /// Returns the form of a class that can be set.
    pub(super) const fn for_class(class: InfoClass) -> Option<Self> {
        use InfoClass as C;
        Some(match class {
            C::TraceStackTracingInfo => Self::list(EVENT, MAX_CLASSIC_EVENTS, stack_tracing).clearing(),
            C::TraceSystemTraceEnableFlagsInfo => Self { most_first: true, ..Self::list(4, 8, enable_flags) },
            C::TraceSampledProfileIntervalInfo => Self::fixed(8, interval),
            C::TraceProfileSourceConfigInfo => {
                Self::list(4, MAX_COUNTERS, |bytes| Set::ProfileSourceConfig(words(bytes))).clearing()
            }
            C::TracePmcEventListInfo => {
                Self::list(EVENT, MAX_PMC_EVENTS, |bytes| Set::PmcEventList(events(bytes)))
            }
            C::TracePmcCounterListInfo => {
                Self::list(4, MAX_COUNTERS, |bytes| Set::PmcCounterList(words(bytes)))
            }
            C::TraceSetDisallowList => Self::list(16, MAX_DISALLOWED, disallow_list).clearing(),
            // The count in the buffer decides how many follow; bytes after them are ignored.
            C::TracePeriodicCaptureStateListInfo => Self::fixed(8, periodic).clearing(),
            C::TraceProviderBinaryTracking => {
                Self::fixed(1, |bytes| Set::ProviderBinaryTracking(u8_at(bytes, 0) != 0))
            }
            C::TraceLbrConfigurationInfo => Self::fixed(4, |bytes| Set::LbrConfiguration(u32_at(bytes, 0))),
            C::TraceLbrEventListInfo => {
                Self::list(4, MAX_LBR_EVENTS, |bytes| Set::LbrEventList(words(bytes))).clearing()
            }
            C::TraceStackCachingInfo => Self::fixed(12, |bytes| Set::StackCaching(caching(bytes))),
            C::TraceUnifiedStackCachingInfo => {
                Self::fixed(12, |bytes| Set::UnifiedStackCaching(caching(bytes)))
            }
            C::TraceContextRegisterInfo => {
                Self { head: 8, least: 0, ..Self::list(EVENT, MAX_CLASSIC_EVENTS, registers) }.clearing()
            }
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
        if length == 0 && self.clears {
            return Ok(());
        }
        let least = self.head.saturating_add(self.element.saturating_mul(self.least));
        let Some(rest) = length.checked_sub(self.head).filter(|_| length >= least) else {
            return bad_length("the buffer is shorter than the class allows");
        };
        match (rest.checked_rem(self.element), rest.checked_div(self.element)) {
            // For group masks, too many elements are reported before an incomplete one.
            _ if self.most_first && rest > self.most.saturating_mul(self.element) => {
                invalid("more elements than the class allows")
            }
            (Some(left), _) if left != 0 => bad_length("the buffer does not hold whole elements"),
            (_, Some(count)) if count > self.most => invalid("more elements than the class allows"),
            _ => Ok(()),
        }
    }
}

// Fails to compile if a class that the table allows to be set has no form, or the reverse.
const _: () = {
    let mut rest: &[InfoClass] = &InfoClass::ALL;
    while let [class, others @ ..] = rest {
        assert!(Form::for_class(*class).is_some() == class.rules().sets);
        rest = others;
    }
};

fn words(bytes: &[u8]) -> Vec<u32> {
    elements(bytes, 4, |word| u32_at(word, 0))
}

/// Parses a list of events without duplicates.
fn events(bytes: &[u8]) -> Vec<ClassicEventId> {
    distinct(ClassicEventId::list(bytes))
}

fn stack_tracing(bytes: &[u8]) -> Set {
    Set::StackTracing(events(bytes))
}

fn enable_flags(bytes: &[u8]) -> Set {
    let mut mask = GroupMask::default();
    for (word, given) in mask.iter_mut().zip(words(bytes)) {
        *word = given;
    }
    Set::SystemTraceEnableFlags(mask)
}

fn interval(bytes: &[u8]) -> Set {
    let (source, interval) = (u32_at(bytes, 0), u32_at(bytes, 4));
    Set::SampledProfileInterval(ProfileInterval { source, interval })
}

fn disallow_list(bytes: &[u8]) -> Set {
    Set::DisallowList(distinct(elements(bytes, 16, |guid| guid_at(guid, 0))))
}

fn periodic(bytes: &[u8]) -> Set {
    if bytes.is_empty() {
        return Set::PeriodicCaptureState(None);
    }
    // The session is checked before the match of count and length and before the number of
    // providers.
    periodic_from(bytes)
        .map_or(Set::CutPeriodicCaptureState, |capture| Set::PeriodicCaptureState(Some(capture)))
}

fn caching(bytes: &[u8]) -> StackCaching {
    StackCaching { is_enabled: u8_at(bytes, 0) != 0, bytes: u32_at(bytes, 4), buckets: u32_at(bytes, 8) }
}

fn registers(bytes: &[u8]) -> Set {
    // An empty buffer clears the setting: there is no value to check.
    let types = if bytes.is_empty() { REGISTER_TYPES } else { u32_at(bytes, 0) };
    Set::ContextRegister { types, events: events(bytes.get(8..).unwrap_or(&[])) }
}
