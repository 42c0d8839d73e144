//! What is set.

use alloc::vec;
use alloc::vec::Vec;

use super::{
    ClassicEventId, GroupMask, MAX_CAPTURE_STATE_PROVIDERS, MAX_CLASSIC_EVENTS, MAX_COUNTERS, MAX_DISALLOWED,
    MAX_LBR_EVENTS, MAX_PMC_EVENTS, MIN_CAPTURE_STATE_PERIOD, PeriodicCaptureState, ProfileInterval,
    StackCaching, bad_length, elements, guids_to_bytes, invalid, periodic_from, put_words, refuse,
};
use crate::guid::Guid;
use crate::spec::event::is_kernel_class;
use crate::spec::info::InfoClass;
use crate::spec::status::Status;
use crate::wire::{Put, guid_at, u8_at, u32_at};
use crate::{Error, Result};

/// A setting, as TraceSetInformation makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Kernel events that are followed by a call stack, instead of all that were before.
    StackTracing(Vec<ClassicEventId>),
    /// Groups of kernel events, instead of those before.
    SystemTraceEnableFlags(GroupMask),
    /// How often a profile source samples.
    SampledProfileInterval(ProfileInterval),
    /// Counters that raise events.
    ProfileSourceConfig(Vec<u32>),
    /// Kernel events at which counters are read; once in the life of a session.
    PmcEventList(Vec<ClassicEventId>),
    /// Counters that are read; once in the life of a session.
    PmcCounterList(Vec<u32>),
    /// Providers that a group must not enable, instead of those before.
    DisallowList(Vec<Guid>),
    /// Who is asked for its state, and how often; `None`: nobody any more.
    PeriodicCaptureState(Option<PeriodicCaptureState>),
    /// The same in a buffer that is shorter than its own count says: never set, and refused no earlier than the published order has it.
    CutPeriodicCaptureState,
    /// Whether the session is told where providers live.
    ProviderBinaryTracking(bool),
    /// Which branches are left out (TRACE_LBR_…).
    LbrConfiguration(u32),
    /// Kernel events, by hook id, that are followed by the last branches.
    LbrEventList(Vec<u32>),
    /// The cache of kernel stacks.
    StackCaching(StackCaching),
    /// The cache of all stacks.
    UnifiedStackCaching(StackCaching),
    /// Kernel events that are followed by registers; which registers.
    ContextRegister {
        /// 1 control, 2 integer.
        types: u32,
        /// The events; none: off.
        events: Vec<ClassicEventId>,
    },
}

/// The length that a buffer must have.
struct Form {
    /// In front of the elements.
    head: usize,
    /// Bytes of an element; 0: there are none.
    element: usize,
    /// Elements at least.
    least: usize,
    /// Elements at most.
    most: usize,
    /// Length 0 means: clear.
    clears: bool,
    /// Too many bytes are told before a remainder.
    most_first: bool,
}

impl Form {
    const fn fixed(head: usize) -> Self {
        Self { head, element: 0, least: 0, most: 0, clears: false, most_first: false }
    }

    const fn list(element: usize, most: usize, clears: bool) -> Self {
        Self { head: 0, element, least: 1, most, clears, most_first: false }
    }

    const fn of(class: InfoClass) -> Option<Self> {
        Some(match class {
            InfoClass::TraceStackTracingInfo => Self::list(ClassicEventId::SIZE, MAX_CLASSIC_EVENTS, true),
            InfoClass::TraceSystemTraceEnableFlagsInfo => {
                Self { most_first: true, ..Self::list(4, 8, false) }
            }
            InfoClass::TraceSampledProfileIntervalInfo => Self::fixed(8),
            InfoClass::TraceProfileSourceConfigInfo => Self::list(4, MAX_COUNTERS, true),
            InfoClass::TraceLbrEventListInfo => Self::list(4, MAX_LBR_EVENTS, true),
            InfoClass::TracePmcEventListInfo => Self::list(ClassicEventId::SIZE, MAX_PMC_EVENTS, false),
            InfoClass::TracePmcCounterListInfo => Self::list(4, MAX_COUNTERS, false),
            InfoClass::TraceSetDisallowList => Self::list(16, MAX_DISALLOWED, true),
            // Its own count says how many follow; what is behind them is not looked at.
            InfoClass::TracePeriodicCaptureStateListInfo => Self { clears: true, ..Self::fixed(8) },
            InfoClass::TraceProviderBinaryTracking => Self::fixed(1),
            InfoClass::TraceLbrConfigurationInfo => Self::fixed(4),
            InfoClass::TraceStackCachingInfo | InfoClass::TraceUnifiedStackCachingInfo => Self::fixed(12),
            InfoClass::TraceContextRegisterInfo => {
                Self { head: 8, least: 0, ..Self::list(ClassicEventId::SIZE, MAX_CLASSIC_EVENTS, true) }
            }
            _ => return None,
        })
    }

    fn check(&self, length: usize) -> Result<()> {
        if length == 0 && self.clears {
            return Ok(());
        }
        let least = self.head.saturating_add(self.element.saturating_mul(self.least));
        let Some(rest) = length.checked_sub(self.head).filter(|_| length >= least) else {
            return bad_length("the buffer is shorter than the class allows");
        };
        match (rest.checked_rem(self.element), rest.checked_div(self.element)) {
            // Of group masks too many are told before a remainder.
            _ if self.most_first && rest > self.most.saturating_mul(self.element) => {
                invalid("more elements than the class allows")
            }
            (Some(left), _) if left != 0 => bad_length("the buffer does not hold whole elements"),
            (_, Some(count)) if count > self.most => invalid("more elements than the class allows"),
            _ => Ok(()),
        }
    }
}

impl Set {
    /// From the buffer of a call (`None`: a null pointer) and the length that was said.
    ///
    /// Judges in the published order what the call alone shows; [`check`](Self::check) judges the content.
    pub fn from_bytes(class: u32, info: Option<&[u8]>, length: usize) -> Result<Self> {
        let class = InfoClass::from_number(class);
        let Some((class, form)) = class.and_then(|class| Some((class, Form::of(class)?))) else {
            return refuse(Status::ERROR_NOT_SUPPORTED, "this information class cannot be set");
        };
        let bytes = match info {
            _ if length == 0 => &[],
            None => return invalid("a length and no buffer"),
            Some(bytes) => bytes.get(..length).unwrap_or(bytes),
        };
        form.check(bytes.len())?;
        Self::read(class, bytes)
    }

    /// The bytes have been found long enough.
    fn read(class: InfoClass, bytes: &[u8]) -> Result<Self> {
        let words = || elements(bytes, 4, |it| u32_at(it, 0));
        let events = ClassicEventId::list;
        let caching = || StackCaching {
            is_enabled: u8_at(bytes, 0) != 0,
            bytes: u32_at(bytes, 4),
            buckets: u32_at(bytes, 8),
        };
        Ok(match class {
            InfoClass::TraceStackTracingInfo => Self::StackTracing(distinct(events(bytes))),
            InfoClass::TraceSystemTraceEnableFlagsInfo => {
                let mut mask = GroupMask::default();
                for (word, given) in mask.iter_mut().zip(words()) {
                    *word = given;
                }
                Self::SystemTraceEnableFlags(mask)
            }
            InfoClass::TraceSampledProfileIntervalInfo => {
                let (source, interval) = (u32_at(bytes, 0), u32_at(bytes, 4));
                Self::SampledProfileInterval(ProfileInterval { source, interval })
            }
            InfoClass::TraceProfileSourceConfigInfo => Self::ProfileSourceConfig(words()),
            InfoClass::TracePmcEventListInfo => Self::PmcEventList(distinct(events(bytes))),
            InfoClass::TracePmcCounterListInfo => Self::PmcCounterList(words()),
            InfoClass::TraceSetDisallowList => {
                Self::DisallowList(distinct(elements(bytes, 16, |it| guid_at(it, 0))))
            }
            InfoClass::TracePeriodicCaptureStateListInfo if bytes.is_empty() => {
                Self::PeriodicCaptureState(None)
            }
            InfoClass::TracePeriodicCaptureStateListInfo => {
                // Which session is meant is judged before both the match of count and length and how many are too many.
                periodic_from(bytes)
                    .map_or(Self::CutPeriodicCaptureState, |it| Self::PeriodicCaptureState(Some(it)))
            }
            InfoClass::TraceProviderBinaryTracking => Self::ProviderBinaryTracking(u8_at(bytes, 0) != 0),
            InfoClass::TraceLbrConfigurationInfo => Self::LbrConfiguration(u32_at(bytes, 0)),
            InfoClass::TraceLbrEventListInfo => Self::LbrEventList(words()),
            InfoClass::TraceStackCachingInfo => Self::StackCaching(caching()),
            InfoClass::TraceUnifiedStackCachingInfo => Self::UnifiedStackCaching(caching()),
            InfoClass::TraceContextRegisterInfo => {
                let events = distinct(events(bytes.get(8..).unwrap_or(&[])));
                // Without a buffer there is nothing to judge: it clears.
                let types = if bytes.is_empty() { REGISTER_TYPES } else { u32_at(bytes, 0) };
                Self::ContextRegister { types, events }
            }
            _ => {
                return Err(Error::Information {
                    status: Status::ERROR_NOT_SUPPORTED,
                    why: "no such setting",
                });
            }
        })
    }

    /// Its class.
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
            Self::PeriodicCaptureState(_) | Self::CutPeriodicCaptureState => {
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

    /// The bytes of the buffer; empty where it clears.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::StackTracing(events) | Self::PmcEventList(events) => put_events(events, &mut out),
            Self::SystemTraceEnableFlags(mask) => put_words(mask, &mut out),
            Self::SampledProfileInterval(it) => put_words(&[it.source, it.interval], &mut out),
            Self::ProfileSourceConfig(ids) | Self::PmcCounterList(ids) | Self::LbrEventList(ids) => {
                put_words(ids, &mut out);
            }
            Self::DisallowList(guids) => out = guids_to_bytes(guids),
            Self::PeriodicCaptureState(None) => {}
            Self::PeriodicCaptureState(Some(it)) => {
                // One too many is as wrong as any number of them.
                let told = it.providers.get(..=MAX_CAPTURE_STATE_PROVIDERS.into()).unwrap_or(&it.providers);
                out.put_u32(it.seconds).put_u16(u16::try_from(told.len()).unwrap_or(u16::MAX)).put_u16(0);
                out.extend(guids_to_bytes(told));
            }
            Self::CutPeriodicCaptureState => {
                out.put_u32(0).put_u16(1).put_u16(0);
            }
            Self::ProviderBinaryTracking(on) => out = vec![u8::from(*on)],
            Self::LbrConfiguration(bits) => put_words(&[*bits], &mut out),
            Self::StackCaching(it) | Self::UnifiedStackCaching(it) => {
                put_words(&[u32::from(it.is_enabled), it.bytes, it.buckets], &mut out);
            }
            Self::ContextRegister { types, events } => {
                put_words(&[*types, 0], &mut out);
                put_events(events, &mut out);
            }
        }
        out
    }

    /// Whether it is about counters, of which there may be as many as the machine has ([`check_counters`](Self::check_counters)).
    #[must_use]
    pub const fn is_of_counters(&self) -> bool {
        matches!(self, Self::ProfileSourceConfig(_) | Self::PmcCounterList(_))
    }

    /// Judges how many counters there are: of the published checks the last that is made before it is asked which session is meant.
    pub fn check_counters(&self, most: u32) -> Result<()> {
        match self {
            Self::ProfileSourceConfig(ids) | Self::PmcCounterList(ids)
                if u32::try_from(ids.len()).map_or(true, |count| count > most) =>
            {
                invalid("more counters than can be used at once (TraceMaxPmcCounterQuery)")
            }
            _ => Ok(()),
        }
    }

    /// Judges the content, as far as it shows by itself: the last of the published checks.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::StackTracing(events) | Self::PmcEventList(events) => check_events(events),
            Self::ProfileSourceConfig(ids) if distinct(ids.clone()).len() != ids.len() => {
                invalid("a profile source is named twice")
            }
            Self::PmcCounterList(ids) if ids.contains(&0) => invalid("the timer is no counter"),
            Self::CutPeriodicCaptureState => {
                bad_length("the buffer is shorter than the number of providers says")
            }
            Self::PeriodicCaptureState(Some(it))
                if it.providers.len() > MAX_CAPTURE_STATE_PROVIDERS.into() =>
            {
                invalid("more providers than TracePeriodicCaptureStateInfo allows")
            }
            Self::PeriodicCaptureState(Some(it)) if it.providers.is_empty() => {
                invalid("a period and no provider")
            }
            Self::PeriodicCaptureState(Some(it)) if it.seconds < MIN_CAPTURE_STATE_PERIOD => {
                invalid("the period is shorter than TracePeriodicCaptureStateInfo allows")
            }
            Self::PeriodicCaptureState(Some(it)) if it.providers.iter().any(Guid::is_null) => {
                invalid("the null GUID is no provider")
            }
            Self::LbrConfiguration(bits) if bits & LBR_NEITHER == LBR_NEITHER || bits & !LBR_KNOWN != 0 => {
                invalid("branches of kernel and programs are both left out, or a bit has no meaning")
            }
            Self::ContextRegister { types, .. } if *types != REGISTER_TYPES => {
                invalid("both kinds of registers must be asked for")
            }
            Self::ContextRegister { events, .. } => check_events(events),
            _ => Ok(()),
        }
    }
}

/// The last branches of kernel events, as TraceConfigureLastBranchRecord sets them: [`Set::LbrConfiguration`] and [`Set::LbrEventList`] in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    /// Which branches.
    pub configuration: u32,
    /// At which events.
    pub events: Vec<ClassicEventId>,
}

impl Branches {
    /// From CLASSIC_EVENT_IDs in a row; judges what the call alone shows.
    pub fn from_bytes(configuration: u32, events: &[u8]) -> Result<Self> {
        if events.len() > MAX_LBR_EVENTS.saturating_mul(ClassicEventId::SIZE) {
            return invalid("at most four kernel events can be followed by branches");
        }
        if !events.len().is_multiple_of(ClassicEventId::SIZE) {
            return bad_length("the buffer does not hold whole elements");
        }
        Ok(Self { configuration, events: ClassicEventId::list(events) })
    }

    /// The events in a row.
    #[must_use]
    pub fn event_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_events(&self.events, &mut out);
        out
    }

    /// Judges the events; the configuration is judged as its class is.
    pub fn check_events(&self) -> Result<()> {
        check_events(&self.events)
    }

    /// Both settings. An event that never happens has no hook id, and takes none of the four.
    #[must_use]
    pub fn sets(&self) -> [Set; 2] {
        let hooks = self.events.iter().filter_map(ClassicEventId::hook_id).map(u32::from).collect();
        [Set::LbrConfiguration(self.configuration), Set::LbrEventList(hooks)]
    }
}

/// Kernel and user branches left out.
const LBR_NEITHER: u32 = 3;
/// Bits with a meaning.
const LBR_KNOWN: u32 = 0x7FF;
/// Control and integer registers: today both, and nothing else.
const REGISTER_TYPES: u32 = 3;

fn check_events(events: &[ClassicEventId]) -> Result<()> {
    if !events.iter().all(|event| is_kernel_class(&event.class)) {
        return invalid("a GUID is not the class of kernel events");
    }
    Ok(())
}

/// In the order in which each came first.
pub(super) fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(all.len());
    for it in all {
        if !kept.contains(&it) {
            kept.push(it);
        }
    }
    kept
}

fn put_events(events: &[ClassicEventId], out: &mut Vec<u8>) {
    events.iter().for_each(|event| event.put(out));
}
