//! Queries of TraceQueryInformation and their answers.

use alloc::string::String;
use alloc::vec::Vec;

use super::{
    ClassicEventId, GroupMask, ProfileInterval, guids_to_bytes, parse_elements, put_words, reject_invalid,
    reject_length,
};
use crate::guid::Guid;
use crate::spec::info::InfoClass;
use crate::spec::status::Status;
use crate::text;
use crate::wire::{Put, align8, guid_at, u16_at, u32_at};
use crate::{Error, Result};

/// A query of TraceQueryInformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Kernel events that are followed by a call stack.
    StackTracing,
    /// Enabled groups of kernel events.
    SystemTraceEnableFlags,
    /// The sampling interval of this source.
    SampledProfileInterval(u32),
    /// All profile sources.
    ProfileSourceList,
    /// The version of trace processing.
    Version,
    /// Providers that a group must not enable.
    DisallowList,
    /// Shortest period and largest number of providers of periodic capture state.
    PeriodicCaptureState,
    /// The largest number of sessions.
    MaxLoggers,
    /// The largest number of counters in use at a time.
    MaxPmcCounter,
    /// The number of streams of the session.
    StreamCount,
    /// The owners of the counters of this processor.
    PmcCounterOwners(u32),
    /// Sessions that read counters.
    PmcSessions,
}

/// A profile source (PROFILE_SOURCE_INFO): `0 u32 offset of the next │ 4 u32 id │ 8 u32 shortest,
/// C u32 longest interval │ 10 reserved │ 18 name, UTF-16 with its NUL`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSource {
    /// The id of the source.
    pub source: u32,
    /// The shortest interval.
    pub min_interval: u32,
    /// The longest interval.
    pub max_interval: u32,
    /// The name of the source.
    pub description: String,
}

/// The owner of a counter (ETW_PMC_COUNTER_OWNER, 12 bytes): `0 u32 kind │ 4 u32 source │ 8 u32
/// tag`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterOwner {
    /// 0 unused, 1 used, 2 used with a known tag, 3 used with a known tag and source.
    pub kind: u32,
    /// The profile source that is counted.
    pub source: u32,
    /// The tag of the owner.
    pub tag: u32,
}

/// A session that reads counters (ETW_PMC_SESSION_INFO and the lists after it): `00 u32 offset of
/// the next │ 04 u16 logger id │ 06 reserved │ 08 u32 number of sources │ 0C u32 number of hook ids
/// │ 10 sources, u32 each, then hook ids, u16 each`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmcSession {
    /// The logger id of the session.
    pub logger_id: u16,
    /// The profile sources of the counters.
    pub sources: Vec<u32>,
    /// The hook ids of the events at which the counters are read.
    pub hook_ids: Vec<u16>,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The events in the order in which they were set.
    StackTracing(Vec<ClassicEventId>),
    /// All eight words of the mask.
    SystemTraceEnableFlags(GroupMask),
    /// The source and its interval.
    SampledProfileInterval(ProfileInterval),
    /// All sources, the timer first.
    ProfileSourceList(Vec<ProfileSource>),
    /// The version of trace processing.
    Version(u32),
    /// The providers in the order in which they were set.
    DisallowList(Vec<Guid>),
    /// The bounds of [`Set::PeriodicCaptureState`](super::Set::PeriodicCaptureState).
    PeriodicCaptureState {
        /// The shortest period, in seconds.
        least_seconds: u32,
        /// The largest number of providers.
        most_providers: u16,
    },
    /// The largest number of sessions.
    MaxLoggers(u32),
    /// The largest number of counters in use at a time.
    MaxPmcCounter(u32),
    /// The number of streams of the session.
    StreamCount(u32),
    /// The counters of the queried processor.
    PmcCounterOwners {
        /// The queried processor.
        processor: u32,
        /// One entry per counter.
        owners: Vec<CounterOwner>,
    },
    /// Sessions that read counters.
    PmcSessions(Vec<PmcSession>),
}

impl Query {
    /// Parses a call: its class, its buffer (`None` for a null pointer) and the stated length.
    ///
    /// Reads no more than [`input_size`](Self::input_size) bytes of the buffer.
    /// Checks the rules that need only the call, in the order of the [module](super).
    /// [`answer_size`](Self::answer_size) is the size to report to a caller whose buffer is too
    /// short.
    pub fn from_bytes(class: u32, info: Option<&[u8]>, length: usize) -> Result<Self> {
        let Some(class) = InfoClass::from_number(class).filter(|class| class.rules().can_query) else {
            return Err(NOT_QUERIED);
        };
        let bytes = match info {
            _ if length == 0 => &[],
            None => return reject_invalid("a length and no buffer"),
            Some(bytes) => bytes.get(..length).unwrap_or(bytes),
        };
        if Self::answer_size(class).is_some_and(|size| length < size)
            || class == InfoClass::TracePmcCounterOwners && length < OWNERS_OFFSET
        {
            return reject_length("the buffer is shorter than the answer");
        }
        Self::for_class(class, u32_at(bytes, 0)).ok_or(NOT_QUERIED)
    }

    /// Returns the query of a class; `None` if the class cannot be queried.
    const fn for_class(class: InfoClass, input: u32) -> Option<Self> {
        use InfoClass as C;
        Some(match class {
            C::TraceStackTracingInfo => Self::StackTracing,
            C::TraceSystemTraceEnableFlagsInfo => Self::SystemTraceEnableFlags,
            C::TraceSampledProfileIntervalInfo => Self::SampledProfileInterval(input),
            C::TraceProfileSourceListInfo => Self::ProfileSourceList,
            C::TraceVersionInfo => Self::Version,
            C::TraceDisallowListQuery => Self::DisallowList,
            C::TracePeriodicCaptureStateInfo => Self::PeriodicCaptureState,
            C::TraceMaxLoggersQuery => Self::MaxLoggers,
            C::TraceMaxPmcCounterQuery => Self::MaxPmcCounter,
            C::TraceStreamCount => Self::StreamCount,
            C::TracePmcCounterOwners => Self::PmcCounterOwners(input),
            C::TracePmcSessionInformation => Self::PmcSessions,
            // These classes are set or enumerated, and one is reserved.
            C::TraceGuidQueryList | C::TraceGuidQueryInfo | C::TraceGuidQueryProcess => return None,
            C::TraceGroupQueryList | C::TraceGroupQueryInfo | C::TraceInfoReserved15 => return None,
            C::TraceProfileSourceConfigInfo | C::TraceSetDisallowList => return None,
            C::TracePmcEventListInfo | C::TracePmcCounterListInfo => return None,
            C::TracePeriodicCaptureStateListInfo | C::TraceProviderBinaryTracking => return None,
            C::TraceLbrConfigurationInfo | C::TraceLbrEventListInfo | C::TraceContextRegisterInfo => {
                return None;
            }
            C::TraceStackCachingInfo | C::TraceUnifiedStackCachingInfo => return None,
        })
    }

    /// Returns the number of bytes at the start of the buffer that are input; the others are
    /// ignored.
    #[must_use]
    pub const fn input_size(class: u32) -> usize {
        match InfoClass::from_number(class) {
            Some(InfoClass::TraceSampledProfileIntervalInfo | InfoClass::TracePmcCounterOwners) => 4,
            _ => 0,
        }
    }

    /// Returns the size of the answer in bytes, if it is fixed.
    #[must_use]
    pub const fn answer_size(class: InfoClass) -> Option<usize> {
        match Self::for_class(class, 0) {
            Some(Self::SystemTraceEnableFlags) => Some(size_of::<GroupMask>()),
            Some(Self::SampledProfileInterval(_) | Self::Version | Self::PeriodicCaptureState) => Some(8),
            Some(Self::MaxLoggers | Self::MaxPmcCounter | Self::StreamCount) => Some(4),
            Some(Self::StackTracing | Self::ProfileSourceList | Self::DisallowList) => None,
            Some(Self::PmcCounterOwners(_) | Self::PmcSessions) | None => None,
        }
    }

    /// Returns the size of the answer about `counters` counters
    /// ([`InfoClass::TracePmcCounterOwners`]), in bytes.
    #[must_use]
    pub const fn owners_size(counters: usize) -> usize {
        OWNERS_OFFSET.saturating_add(OWNER_BYTES.saturating_mul(counters))
    }

    /// Returns the class of the query.
    #[must_use]
    pub const fn class(&self) -> InfoClass {
        match self {
            Self::StackTracing => InfoClass::TraceStackTracingInfo,
            Self::SystemTraceEnableFlags => InfoClass::TraceSystemTraceEnableFlagsInfo,
            Self::SampledProfileInterval(_) => InfoClass::TraceSampledProfileIntervalInfo,
            Self::ProfileSourceList => InfoClass::TraceProfileSourceListInfo,
            Self::Version => InfoClass::TraceVersionInfo,
            Self::DisallowList => InfoClass::TraceDisallowListQuery,
            Self::PeriodicCaptureState => InfoClass::TracePeriodicCaptureStateInfo,
            Self::MaxLoggers => InfoClass::TraceMaxLoggersQuery,
            Self::MaxPmcCounter => InfoClass::TraceMaxPmcCounterQuery,
            Self::StreamCount => InfoClass::TraceStreamCount,
            Self::PmcCounterOwners(_) => InfoClass::TracePmcCounterOwners,
            Self::PmcSessions => InfoClass::TracePmcSessionInformation,
        }
    }

    /// Returns the input of the query: a source, a processor, else 0.
    #[must_use]
    pub const fn input(&self) -> u32 {
        match self {
            Self::SampledProfileInterval(number) | Self::PmcCounterOwners(number) => *number,
            Self::StackTracing | Self::SystemTraceEnableFlags | Self::ProfileSourceList | Self::Version => 0,
            Self::DisallowList | Self::PeriodicCaptureState | Self::MaxLoggers | Self::MaxPmcCounter => 0,
            Self::StreamCount | Self::PmcSessions => 0,
        }
    }

    /// Builds the query of a class with this input.
    pub fn new(class: u32, input: u32) -> Result<Self> {
        let mut bytes = input.to_le_bytes().to_vec();
        // No answer of a fixed size is larger.
        bytes.resize(size_of::<GroupMask>(), 0);
        Self::from_bytes(class, Some(&bytes), bytes.len())
    }
}

// Fails to compile if a class that the table allows to be queried has no query, or the reverse.
const _: () = {
    let mut remaining: &[InfoClass] = &InfoClass::ALL;
    while let [class, others @ ..] = remaining {
        assert!(Query::for_class(*class, 0).is_some() == class.rules().can_query);
        remaining = others;
    }
};

/// The error for a class that cannot be queried.
const NOT_QUERIED: Error = Error::Information {
    status: Status::ERROR_NOT_SUPPORTED,
    reason: "this information class cannot be queried",
};
/// Bytes before the owners in an answer about counters.
const OWNERS_OFFSET: usize = 8;
/// Size of an owner in bytes.
const OWNER_BYTES: usize = 12;
/// Offset of the name of a source.
const DESCRIPTION_OFFSET: usize = 24;
/// Bytes before the profile sources of a session.
const SESSION_HEAD_BYTES: usize = 16;

impl Answer {
    /// Encodes the buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::StackTracing(events) => events.iter().for_each(|event| event.put(&mut out)),
            Self::SystemTraceEnableFlags(mask) => put_words(mask, &mut out),
            Self::SampledProfileInterval(profile) => put_words(&[profile.source, profile.interval], &mut out),
            Self::ProfileSourceList(sources) => put_chain(sources, 8, &mut out, put_source),
            Self::Version(version) => put_words(&[*version, 0], &mut out),
            Self::DisallowList(guids) => out = guids_to_bytes(guids),
            Self::PeriodicCaptureState { least_seconds, most_providers } => {
                out.put_u32(*least_seconds).put_u16(*most_providers).put_u16(0);
            }
            Self::MaxLoggers(number) | Self::MaxPmcCounter(number) | Self::StreamCount(number) => {
                out.put_u32(*number);
            }
            Self::PmcCounterOwners { processor, owners } => {
                out.put_u32(*processor).put_u32(u32::try_from(owners.len()).unwrap_or(u32::MAX));
                for owner in owners {
                    out.put_u32(owner.kind).put_u32(owner.source).put_u32(owner.tag);
                }
            }
            Self::PmcSessions(sessions) => put_chain(sessions, 4, &mut out, put_session),
        }
        out
    }

    /// Parses the answer to a query.
    pub fn from_bytes(query: Query, bytes: &[u8]) -> Result<Self> {
        if Query::answer_size(query.class()).is_some_and(|size| bytes.len() != size) {
            return Err(malformed_answer());
        }
        Ok(match query {
            Query::StackTracing => Self::StackTracing(ClassicEventId::parse_list(bytes)),
            Query::SystemTraceEnableFlags => {
                let mut mask = GroupMask::default();
                for (word, bytes) in mask.iter_mut().zip(bytes.chunks_exact(4)) {
                    *word = u32_at(bytes, 0);
                }
                Self::SystemTraceEnableFlags(mask)
            }
            Query::SampledProfileInterval(_) => {
                let (source, interval) = (u32_at(bytes, 0), u32_at(bytes, 4));
                Self::SampledProfileInterval(ProfileInterval { source, interval })
            }
            Query::ProfileSourceList => Self::ProfileSourceList(parse_chain(bytes, parse_source)?),
            Query::Version => Self::Version(u32_at(bytes, 0)),
            Query::DisallowList => Self::DisallowList(parse_elements(bytes, 16, |guid| guid_at(guid, 0))),
            Query::PeriodicCaptureState => Self::PeriodicCaptureState {
                least_seconds: u32_at(bytes, 0),
                most_providers: u16_at(bytes, 4),
            },
            Query::MaxLoggers => Self::MaxLoggers(u32_at(bytes, 0)),
            Query::MaxPmcCounter => Self::MaxPmcCounter(u32_at(bytes, 0)),
            Query::StreamCount => Self::StreamCount(u32_at(bytes, 0)),
            Query::PmcCounterOwners(processor) => {
                let owners = parse_elements(
                    bytes.get(OWNERS_OFFSET..).ok_or_else(malformed_answer)?,
                    OWNER_BYTES,
                    |owner| CounterOwner {
                        kind: u32_at(owner, 0),
                        source: u32_at(owner, 4),
                        tag: u32_at(owner, 8),
                    },
                );
                Self::PmcCounterOwners { processor, owners }
            }
            Query::PmcSessions => Self::PmcSessions(parse_chain(bytes, parse_session)?),
        })
    }
}

fn malformed_answer() -> Error {
    Error::Invalid {
        what: "information",
        offset: 0,
        reason: "the answer does not have the form of its query",
    }
}

/// Encodes entries, each at a multiple of `align`. Each entry begins with the distance to the next
/// entry in bytes, which is 0 in the last entry.
fn put_chain<T>(entries: &[T], align: usize, out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    for (index, entry) in entries.iter().enumerate() {
        let start = out.len();
        out.put_u32(0);
        put(entry, out);
        if index.saturating_add(1) < entries.len() {
            out.resize(out.len().next_multiple_of(align), 0);
            let entry_bytes = u32::try_from(out.len().saturating_sub(start)).unwrap_or(0);
            if let Some(offset_field) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
                *offset_field = entry_bytes.to_le_bytes();
            }
        }
    }
}

fn parse_chain<T>(mut remaining: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>> {
    let mut entries = Vec::new();
    while !remaining.is_empty() {
        let entry_bytes = u32_at(remaining, 0) as usize;
        let entry = if entry_bytes == 0 {
            remaining
        } else {
            remaining.get(..entry_bytes).ok_or_else(malformed_answer)?
        };
        entries.push(parse(entry).ok_or_else(malformed_answer)?);
        remaining = remaining.get(entry.len()..).unwrap_or(&[]);
    }
    Ok(entries)
}

fn put_source(source: &ProfileSource, out: &mut Vec<u8>) {
    out.put_u32(source.source).put_u32(source.min_interval).put_u32(source.max_interval).put_u64(0);
    out.put_wide_z(&source.description);
    // The published structure ends with padding to its alignment.
    out.resize(align8(out.len()), 0);
}

fn parse_source(entry: &[u8]) -> Option<ProfileSource> {
    Some(ProfileSource {
        source: u32_at(entry, 4),
        min_interval: u32_at(entry, 8),
        max_interval: u32_at(entry, 12),
        description: text::decode_utf16(text::until_nul16(entry.get(DESCRIPTION_OFFSET..)?)),
    })
}

fn put_session(session: &PmcSession, out: &mut Vec<u8>) {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    out.put_u16(session.logger_id)
        .put_u16(0)
        .put_u32(count(session.sources.len()))
        .put_u32(count(session.hook_ids.len()));
    put_words(&session.sources, out);
    for hook in &session.hook_ids {
        out.put_u16(*hook);
    }
}

fn parse_session(entry: &[u8]) -> Option<PmcSession> {
    let sources = (u32_at(entry, 8) as usize).checked_mul(4)?;
    let hooks = (u32_at(entry, 12) as usize).checked_mul(2)?;
    let (sources, remaining) = entry.get(SESSION_HEAD_BYTES..)?.split_at_checked(sources)?;
    Some(PmcSession {
        logger_id: u16_at(entry, 4),
        sources: parse_elements(sources, 4, |word| u32_at(word, 0)),
        hook_ids: parse_elements(remaining.get(..hooks)?, 2, |word| u16_at(word, 0)),
    })
}
