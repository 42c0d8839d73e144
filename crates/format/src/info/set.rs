//! Settings of TraceSetInformation.

mod form;

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::{
    ClassicEventId, GroupMask, MAX_CAPTURE_STATE_PROVIDERS, MAX_LBR_EVENTS, MIN_CAPTURE_STATE_SECONDS,
    PeriodicCaptureState, ProfileInterval, StackCaching, guids_to_bytes, put_words, reject, reject_invalid,
    reject_length,
};
use crate::Result;
use crate::guid::Guid;
use crate::kernel::hook::is_kernel_class;
use crate::spec::info::InfoClass;
use crate::spec::status::Status;
use crate::wire::Put;
use form::BufferForm;

/// A setting of TraceSetInformation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Kernel events that are followed by a call stack; replaces the previous list.
    StackTracing(Vec<ClassicEventId>),
    /// Enabled groups of kernel events; replaces the previous mask.
    SystemTraceEnableFlags(GroupMask),
    /// The sampling interval of a profile source.
    SampledProfileInterval(ProfileInterval),
    /// Counters that raise events when they overflow.
    ProfileSourceConfig(Vec<u32>),
    /// Kernel events at which counters are read; can be set once in the life of a session.
    PmcEventList(Vec<ClassicEventId>),
    /// Counters that are read; can be set once in the life of a session.
    PmcCounterList(Vec<u32>),
    /// Providers that a group must not enable; replaces the previous list.
    DisallowList(Vec<Guid>),
    /// Providers that are asked for their state, and how often; `None` stops the requests.
    PeriodicCaptureState(Option<PeriodicCaptureState>),
    /// A [`Set::PeriodicCaptureState`] in a buffer that is shorter than its count requires. It is
    /// never applied: [`Set::check`] rejects it, in the order of the [module](super).
    TruncatedPeriodicCaptureState,
    /// Whether the session records the binaries of providers.
    ProviderBinaryTracking(bool),
    /// Branches that are left out (TRACE_LBR_… bits).
    LbrConfiguration(u32),
    /// Kernel events, by hook id, that are followed by the last branches.
    LbrEventList(Vec<u32>),
    /// The cache of kernel stacks.
    StackCaching(StackCaching),
    /// The cache of all stacks.
    UnifiedStackCaching(StackCaching),
    /// Kernel events that are followed by register values.
    ContextRegister {
        /// The kinds of registers: 1 control, 2 integer.
        types: u32,
        /// The events; an empty list disables the setting.
        events: Vec<ClassicEventId>,
    },
}

impl Set {
    /// Parses the buffer of a call (`None` for a null pointer) and the stated length.
    ///
    /// Checks the rules that need only the call, in the order of the [module](super);
    /// [`check`](Self::check) checks the content.
    pub fn from_bytes(class: u32, info: Option<&[u8]>, length: usize) -> Result<Self> {
        let class = InfoClass::from_number(class).filter(|class| class.rules().can_set);
        let Some(form) = class.and_then(BufferForm::for_class) else {
            return reject(Status::ERROR_NOT_SUPPORTED, "this information class cannot be set");
        };
        let bytes = match info {
            _ if length == 0 => &[],
            None => return reject_invalid("a length and no buffer"),
            Some(bytes) => bytes.get(..length).unwrap_or(bytes),
        };
        form.check(bytes.len())?;
        Ok((form.parse)(bytes))
    }

    /// Returns the class of the setting.
    #[must_use]
    pub const fn class(&self) -> InfoClass {
        match self {
            Self::StackTracing(_) => InfoClass::TraceStackTracingInfo,
            Self::SystemTraceEnableFlags(_) => InfoClass::TraceSystemTraceEnableFlagsInfo,
            Self::SampledProfileInterval(_) => InfoClass::TraceSampledProfileIntervalInfo,
            Self::ProfileSourceConfig(_) => InfoClass::TraceProfileSourceConfigInfo,
            Self::PmcEventList(_) => InfoClass::TracePmcEventListInfo,
            Self::PmcCounterList(_) => InfoClass::TracePmcCounterListInfo,
            Self::DisallowList(_) => InfoClass::TraceSetDisallowList,
            Self::PeriodicCaptureState(_) | Self::TruncatedPeriodicCaptureState => {
                InfoClass::TracePeriodicCaptureStateListInfo
            }
            Self::ProviderBinaryTracking(_) => InfoClass::TraceProviderBinaryTracking,
            Self::LbrConfiguration(_) => InfoClass::TraceLbrConfigurationInfo,
            Self::LbrEventList(_) => InfoClass::TraceLbrEventListInfo,
            Self::StackCaching(_) => InfoClass::TraceStackCachingInfo,
            Self::UnifiedStackCaching(_) => InfoClass::TraceUnifiedStackCachingInfo,
            Self::ContextRegister { .. } => InfoClass::TraceContextRegisterInfo,
        }
    }

    /// Encodes the buffer. It is empty for `PeriodicCaptureState(None)` and for an empty list, but
    /// not for an empty list of [`ContextRegister`](Self::ContextRegister).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::StackTracing(events) | Self::PmcEventList(events) => put_events(events, &mut out),
            Self::SystemTraceEnableFlags(mask) => put_words(mask, &mut out),
            Self::SampledProfileInterval(profile) => put_words(&[profile.source, profile.interval], &mut out),
            Self::ProfileSourceConfig(ids) | Self::PmcCounterList(ids) | Self::LbrEventList(ids) => {
                put_words(ids, &mut out);
            }
            Self::DisallowList(guids) => out = guids_to_bytes(guids),
            Self::PeriodicCaptureState(None) => {}
            Self::PeriodicCaptureState(Some(capture)) => {
                // At most one provider more than allowed is encoded, enough for `check` to fail.
                let providers = capture
                    .providers
                    .get(..=MAX_CAPTURE_STATE_PROVIDERS.into())
                    .unwrap_or(&capture.providers);
                out.put_u32(capture.seconds)
                    .put_u16(u16::try_from(providers.len()).unwrap_or(u16::MAX))
                    .put_u16(0);
                out.extend(guids_to_bytes(providers));
            }
            Self::TruncatedPeriodicCaptureState => {
                // A count of one, and no GUID.
                out.put_u32(0).put_u16(1).put_u16(0);
            }
            Self::ProviderBinaryTracking(is_enabled) => out = vec![u8::from(*is_enabled)],
            Self::LbrConfiguration(bits) => put_words(&[*bits], &mut out),
            Self::StackCaching(cache) | Self::UnifiedStackCaching(cache) => {
                put_words(&[u32::from(cache.is_enabled), cache.bytes, cache.buckets], &mut out);
            }
            Self::ContextRegister { types, events } => {
                put_words(&[*types, 0], &mut out);
                put_events(events, &mut out);
            }
        }
        out
    }

    /// Returns whether the setting is about counters, which the machine limits
    /// ([`check_counters`](Self::check_counters)).
    #[must_use]
    pub const fn is_about_counters(&self) -> bool {
        matches!(self, Self::ProfileSourceConfig(_) | Self::PmcCounterList(_))
    }

    /// Checks the number of counters: the last check before the session is looked up.
    pub fn check_counters(&self, max_counters: u32) -> Result<()> {
        match self {
            Self::ProfileSourceConfig(ids) | Self::PmcCounterList(ids)
                if u32::try_from(ids.len()).map_or(true, |count| count > max_counters) =>
            {
                reject_invalid("more counters than can be used at once (TraceMaxPmcCounterQuery)")
            }
            _ => Ok(()),
        }
    }

    /// Checks the content without knowledge of session and machine: the last check.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::StackTracing(events) | Self::PmcEventList(events) => check_events(events),
            Self::ProfileSourceConfig(ids) => reject_if(
                remove_duplicates(ids.clone()).len() != ids.len(),
                "a profile source is named twice",
            ),
            Self::PmcCounterList(ids) => reject_if(ids.contains(&0), "the timer is not a counter"),
            Self::PeriodicCaptureState(capture) => capture.as_ref().map_or(Ok(()), check_capture_state),
            Self::TruncatedPeriodicCaptureState => {
                reject_length("the buffer is shorter than the number of providers says")
            }
            Self::LbrConfiguration(bits) => reject_if(
                bits & LBR_ALL_FILTERED == LBR_ALL_FILTERED || bits & !LBR_KNOWN_BITS != 0,
                "branches of kernel and programs are both left out, or a bit has no meaning",
            ),
            Self::ContextRegister { types, events } => {
                reject_if(*types != REGISTER_TYPES, "both kinds of registers must be asked for")?;
                check_events(events)
            }
            // All values are valid, or the validity depends on machine or session.
            Self::SystemTraceEnableFlags(_)
            | Self::SampledProfileInterval(_)
            | Self::DisallowList(_)
            | Self::ProviderBinaryTracking(_)
            | Self::LbrEventList(_)
            | Self::StackCaching(_)
            | Self::UnifiedStackCaching(_) => Ok(()),
        }
    }
}

/// The last branches of kernel events, as TraceConfigureLastBranchRecord sets them:
/// [`Set::LbrConfiguration`] and [`Set::LbrEventList`] in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    /// The branches that are left out (TRACE_LBR_… bits).
    pub configuration: u32,
    /// The events that are followed by the last branches.
    pub events: Vec<ClassicEventId>,
}

impl Branches {
    /// Parses consecutive CLASSIC_EVENT_IDs and checks the rules that need only the call.
    pub fn from_bytes(configuration: u32, events: &[u8]) -> Result<Self> {
        if events.len() > MAX_LBR_EVENTS.saturating_mul(ClassicEventId::SIZE) {
            return reject_invalid("at most four kernel events can be followed by branches");
        }
        if !events.len().is_multiple_of(ClassicEventId::SIZE) {
            return reject_length("the buffer does not hold whole elements");
        }
        Ok(Self { configuration, events: ClassicEventId::parse_list(events) })
    }

    /// Encodes the events as consecutive CLASSIC_EVENT_IDs.
    #[must_use]
    pub fn event_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_events(&self.events, &mut out);
        out
    }

    /// Checks the events; [`Set::check`] checks the configuration.
    pub fn check_events(&self) -> Result<()> {
        check_events(&self.events)
    }

    /// Returns the configuration and the event list as two settings. Events without a hook id never
    /// occur and are left out.
    #[must_use]
    pub fn sets(&self) -> [Set; 2] {
        let hooks = self.events.iter().filter_map(ClassicEventId::hook_id).map(u32::from).collect();
        [Set::LbrConfiguration(self.configuration), Set::LbrEventList(hooks)]
    }
}

/// The bits that leave out kernel branches and user branches.
const LBR_ALL_FILTERED: u32 = 3;
/// All bits with a meaning.
const LBR_KNOWN_BITS: u32 = 0x7FF;
/// Control and integer registers, the only valid value.
pub(super) const REGISTER_TYPES: u32 = 3;

/// Fails with `reason` if the rule is violated.
fn reject_if(is_violated: bool, reason: &'static str) -> Result<()> {
    if is_violated { reject_invalid(reason) } else { Ok(()) }
}

fn check_events(events: &[ClassicEventId]) -> Result<()> {
    reject_if(
        !events.iter().all(|event| is_kernel_class(&event.class)),
        "a GUID is not the class of kernel events",
    )
}

fn check_capture_state(capture: &PeriodicCaptureState) -> Result<()> {
    let is_too_long = capture.providers.len() > MAX_CAPTURE_STATE_PROVIDERS.into();
    reject_if(is_too_long, "more providers than TracePeriodicCaptureStateInfo allows")?;
    reject_if(capture.providers.is_empty(), "a period and no provider")?;
    let is_too_often = capture.seconds < MIN_CAPTURE_STATE_SECONDS;
    reject_if(is_too_often, "the period is shorter than TracePeriodicCaptureStateInfo allows")?;
    reject_if(capture.providers.iter().any(Guid::is_null), "the null GUID is not a provider")
}

/// Removes duplicates and keeps the first of each. Any process may pass a long list, so duplicates
/// are found in a sorted set, not by a linear search.
pub(super) fn remove_duplicates<T: Copy + Ord>(mut elements: Vec<T>) -> Vec<T> {
    let mut unique = BTreeSet::new();
    elements.retain(|element| unique.insert(*element));
    elements
}

fn put_events(events: &[ClassicEventId], out: &mut Vec<u8>) {
    events.iter().for_each(|event| event.put(out));
}
