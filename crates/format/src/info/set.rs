//! What is set.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::form::Form;
use super::{
    ClassicEventId, GroupMask, MAX_CAPTURE_STATE_PROVIDERS, MAX_LBR_EVENTS, MIN_CAPTURE_STATE_PERIOD,
    PeriodicCaptureState, ProfileInterval, StackCaching, bad_length, guids_to_bytes, invalid, put_words,
    refuse,
};
use crate::Result;
use crate::guid::Guid;
use crate::spec::event::is_kernel_class;
use crate::spec::info::InfoClass;
use crate::spec::status::Status;
use crate::wire::Put;

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

impl Set {
    /// From the buffer of a call (`None`: a null pointer) and the length that was said.
    ///
    /// Judges in the published order what the call alone shows; [`check`](Self::check) judges the content.
    pub fn from_bytes(class: u32, info: Option<&[u8]>, length: usize) -> Result<Self> {
        let class = InfoClass::from_number(class).filter(|class| class.rules().sets);
        let Some(form) = class.and_then(Form::of) else {
            return refuse(Status::ERROR_NOT_SUPPORTED, "this information class cannot be set");
        };
        let bytes = match info {
            _ if length == 0 => &[],
            None => return invalid("a length and no buffer"),
            Some(bytes) => bytes.get(..length).unwrap_or(bytes),
        };
        form.check(bytes.len())?;
        Ok((form.read)(bytes))
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
            Self::ProfileSourceConfig(ids) => {
                refuse_if(distinct(ids.clone()).len() != ids.len(), "a profile source is named twice")
            }
            Self::PmcCounterList(ids) => refuse_if(ids.contains(&0), "the timer is no counter"),
            Self::PeriodicCaptureState(wish) => wish.as_ref().map_or(Ok(()), check_periodic),
            Self::CutPeriodicCaptureState => {
                bad_length("the buffer is shorter than the number of providers says")
            }
            Self::LbrConfiguration(bits) => refuse_if(
                bits & LBR_NEITHER == LBR_NEITHER || bits & !LBR_KNOWN != 0,
                "branches of kernel and programs are both left out, or a bit has no meaning",
            ),
            Self::ContextRegister { types, events } => {
                refuse_if(*types != REGISTER_TYPES, "both kinds of registers must be asked for")?;
                check_events(events)
            }
            // All their values have a meaning, or one that the machine and the session have to say.
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
pub(super) const REGISTER_TYPES: u32 = 3;

/// Refuses what is wrong.
fn refuse_if(is_wrong: bool, why: &'static str) -> Result<()> {
    if is_wrong { invalid(why) } else { Ok(()) }
}

fn check_events(events: &[ClassicEventId]) -> Result<()> {
    refuse_if(
        !events.iter().all(|event| is_kernel_class(&event.class)),
        "a GUID is not the class of kernel events",
    )
}

fn check_periodic(it: &PeriodicCaptureState) -> Result<()> {
    let is_too_long = it.providers.len() > MAX_CAPTURE_STATE_PROVIDERS.into();
    refuse_if(is_too_long, "more providers than TracePeriodicCaptureStateInfo allows")?;
    refuse_if(it.providers.is_empty(), "a period and no provider")?;
    let is_too_often = it.seconds < MIN_CAPTURE_STATE_PERIOD;
    refuse_if(is_too_often, "the period is shorter than TracePeriodicCaptureStateInfo allows")?;
    refuse_if(it.providers.iter().any(Guid::is_null), "the null GUID is no provider")
}

/// In the order in which each came first. Anybody may ask with a long list: what is known is found by its order, not by going through it.
pub(super) fn distinct<T: Copy + Ord>(mut all: Vec<T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    all.retain(|it| seen.insert(*it));
    all
}

fn put_events(events: &[ClassicEventId], out: &mut Vec<u8>) {
    events.iter().for_each(|event| event.put(out));
}
