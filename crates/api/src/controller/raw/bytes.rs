//! Information classes by class, buffer and length, as C programs call them.
//!
//! ```text
//!   check, in this order            statuses, or the party that answers
//!   class, buffer, length           ERROR_NOT_SUPPORTED, _INVALID_PARAMETER, _BAD_LENGTH
//!   session id                      ERROR_INVALID_PARAMETER
//!   class about the machine         this library: versions, limits, sources, owners
//!   any other class                 the Responder: a daemon, no daemon, a session of this process
//! ```
//!
//! The responder checks the session, the caller's right, the kind of session, the machine and the
//! content.
//!
//! A buffer is `None` if its pointer is null; its length is then still checked. Errors in the
//! arguments are reported whichever [`Responder`] is given, and a daemon is searched only if it is
//! needed: an unresponsive or refusing daemon does not affect other calls.
//!
//! | | Too short | `return_length` | A null buffer |
//! |---|---|---|---|
//! | [`set_bytes`] | `ERROR_BAD_LENGTH` | | with a length: `ERROR_INVALID_PARAMETER` |
//! | [`query_bytes`] | `ERROR_BAD_LENGTH` | bytes needed or written; else unchanged | the same |
//! | [`enumerate_bytes`] | `ERROR_INSUFFICIENT_BUFFER` | the same | the same |
//!
//! A null buffer with length 0 is a query for the length.

use traceweir_format::Guid;
use traceweir_format::info::{
    Answer, ClassicEventId, EnableInfo, GuidInfo, InstanceInfo, MAX_LBR_EVENTS, Query, Set, guids_from_bytes,
    guids_to_bytes,
};
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::info::{InfoClass, RequiredSession};
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::{is_system_provider, keywords_in};
use traceweir_session::config::is_system_logger;
use traceweir_session::info::{Machine, answer_locally, read_set};
use traceweir_transport::message::{ProviderEntry, SessionRef};

use crate::controller::info::{
    answer_without_daemon, check_session_required, guid_info, own_providers, unknown_provider_error,
};
use crate::controller::{Controller, NO_SESSION, not_running_error};
use crate::error::{Error, Result};
use crate::private::{PrivateSession, unsupported_class_error};

/// The party that answers a call.
#[derive(Debug)]
pub enum Responder<'a> {
    /// This daemon; `None` answers as a daemon without sessions and registrations would.
    Daemon(Option<&'a mut Controller>),
    /// The daemon that [`Controller::find`] finds if the call needs one; a change of a system
    /// setting starts one if none runs.
    FoundDaemon,
    /// The session of this process with the id of the call.
    Private(&'a PrivateSession),
}

impl<'a> From<Option<&'a mut Controller>> for Responder<'a> {
    fn from(daemon: Option<&'a mut Controller>) -> Self {
        Self::Daemon(daemon)
    }
}

impl Responder<'_> {
    /// Calls `ask` with the daemon, or with `None` if none runs. Requests that a session of this
    /// process does not answer also go to the daemon.
    fn with_daemon<T>(self, ask: impl FnOnce(Option<&mut Controller>) -> Result<T>) -> Result<T> {
        match self {
            Self::Daemon(daemon) => ask(daemon),
            Self::FoundDaemon | Self::Private(_) => ask(Controller::find(None)?.as_mut()),
        }
    }
}

/// The result of a query.
#[derive(Debug)]
pub struct InformationAnswer {
    /// The status of the call.
    pub result: Result<()>,
    /// The value for ReturnLength; `None` leaves it unchanged.
    pub return_length: Option<u32>,
    /// The answer for the caller's buffer; empty if it does not fit.
    pub answer: Vec<u8>,
}

/// The size of a caller's buffer, which is not written here and may be uninitialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBuffer {
    /// The length that the caller passed.
    pub length: usize,
    /// The pointer is null: there is no such buffer.
    pub is_null: bool,
}

impl InformationAnswer {
    fn from_error(error: Error) -> Self {
        Self { result: Err(error), return_length: None, answer: Vec::new() }
    }

    fn too_short(status: Status, needed: usize) -> Self {
        let reason = format!("the answer takes {needed} bytes");
        let return_length = u32::try_from(needed).ok();
        Self { return_length, ..Self::from_error(Error::refused(status, reason)) }
    }

    /// Returns the answer if it fits as a whole.
    fn from_answer(answer: Vec<u8>, buffer: OutputBuffer, too_short: Status) -> Self {
        if !answer.is_empty() && (buffer.is_null || buffer.length < answer.len()) {
            return Self::too_short(too_short, answer.len());
        }
        Self { result: Ok(()), return_length: u32::try_from(answer.len()).ok(), answer }
    }
}

/// Performs `TraceSetInformation` with the bytes of its buffer.
pub fn set_bytes<'a>(
    responder: impl Into<Responder<'a>>,
    session: u64,
    class: u32,
    info: Option<&[u8]>,
    length: usize,
) -> Result<()> {
    let set = read_set(class, info, length, Machine::inspect)?;
    let session = SessionRef::from_api_id(session);
    check_session_required(&session, set.class())?;
    match (responder.into(), set.class().rules().required_session) {
        (Responder::Private(own), RequiredSession::Session) => own.set_information(&set),
        // A system setting depends on no sessions or registrations, so a new daemon can keep it.
        (Responder::FoundDaemon, RequiredSession::System | RequiredSession::Anything) => {
            Controller::find_or_start(None)?.set_information(&session, &set)
        }
        (responder, about) => responder.with_daemon(|daemon| match daemon {
            Some(daemon) => daemon.set_information(&session, &set),
            None if about == RequiredSession::Session => Err(not_running_error(&session)),
            None => {
                let reason = "none runs to keep the settings of the system";
                Err(Error::NoDaemon { reason: reason.to_owned() })
            }
        }),
    }
}

/// Performs TraceConfigureLastBranchRecord: classes 20 and 21 in one call, as
/// `Controller::configure_last_branch_record`.
///
/// `events` are CLASSIC_EVENT_IDs, `None` for a null pointer.
pub fn configure_last_branch_record_bytes<'a>(
    responder: impl Into<Responder<'a>>,
    session: u64,
    configuration: u32,
    events: Option<&[u8]>,
    count: usize,
) -> Result<()> {
    let refuse = |reason| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
    if count > MAX_LBR_EVENTS {
        return refuse("at most four kernel events can be followed by branches");
    }
    let Some(events) = events.unwrap_or(&[]).get(..count.saturating_mul(ClassicEventId::SIZE)) else {
        return refuse("the buffer is missing or too short for the number of events");
    };
    let (session, events) = (SessionRef::from_api_id(session), ClassicEventId::parse_list(events));
    check_session_required(&session, InfoClass::TraceLbrEventListInfo)?;
    match responder.into() {
        Responder::Private(own) => own.set_information(&Set::LbrConfiguration(configuration)),
        responder => responder.with_daemon(|daemon| match daemon {
            Some(daemon) => daemon.configure_last_branch_record(&session, configuration, &events),
            None => Err(not_running_error(&session)),
        }),
    }
}

/// Performs TraceQueryInformation.
///
/// `info` is the start of the buffer, which is also the input of some queries
/// ([`Query::input_size`]).
pub fn query_bytes<'a>(
    responder: impl Into<Responder<'a>>,
    session: u64,
    class: u32,
    info: Option<&[u8]>,
    length: usize,
) -> InformationAnswer {
    let query = match Query::from_bytes(class, info, length) {
        Ok(Query::PmcCounterOwners(_)) if length < min_answer_bytes(class) => {
            return InformationAnswer::too_short(Status::ERROR_BAD_LENGTH, min_answer_bytes(class));
        }
        Ok(query) => query,
        Err(e) if e.status() == Status::ERROR_BAD_LENGTH => {
            return InformationAnswer::too_short(Status::ERROR_BAD_LENGTH, min_answer_bytes(class));
        }
        Err(e) => return InformationAnswer::from_error(e.into()),
    };
    match ask(responder, &SessionRef::from_api_id(session), query) {
        Ok(answer) => {
            let buffer = OutputBuffer { length, is_null: info.is_none() };
            InformationAnswer::from_answer(answer.to_bytes(), buffer, Status::ERROR_BAD_LENGTH)
        }
        Err(e) => InformationAnswer::from_error(e),
    }
}

/// Queries an information class of a session or of the system ([`NO_SESSION`]), with
/// [`Controller::query_information`] if a daemon answers.
fn ask<'a>(responder: impl Into<Responder<'a>>, session: &SessionRef, query: Query) -> Result<Answer> {
    check_session_required(session, query.class())?;
    if let Some(answer) = answer_locally(query, Machine::inspect)? {
        return Ok(answer);
    }
    match (responder.into(), query.class().rules().required_session) {
        (Responder::Private(_), RequiredSession::Session) => Err(unsupported_class_error(query.class())),
        (responder, _) => responder.with_daemon(|daemon| match daemon {
            Some(daemon) => daemon.query_information(session, query),
            None => answer_without_daemon(session, query),
        }),
    }
}

/// Returns the minimum size of the answer in bytes.
fn min_answer_bytes(class: u32) -> usize {
    match InfoClass::from_number(class) {
        Some(InfoClass::TracePmcCounterOwners) => Query::owners_size(Machine::inspect().counters() as usize),
        Some(class) => Query::answer_size(class).unwrap_or(0),
        None => 0,
    }
}

/// Performs EnumerateTraceGuidsEx.
///
/// The caller checks that the pointer for the returned length is not null: the documented function
/// fails with `ERROR_INVALID_PARAMETER` otherwise.
pub fn enumerate_bytes<'a>(
    responder: impl Into<Responder<'a>>,
    class: u32,
    input: Option<&[u8]>,
    output: OutputBuffer,
) -> InformationAnswer {
    match enumerate_answer(responder.into(), class, input, output.is_null && output.length != 0) {
        Ok(answer) => InformationAnswer::from_answer(answer, output, Status::ERROR_INSUFFICIENT_BUFFER),
        Err(e) => InformationAnswer::from_error(e),
    }
}

fn enumerate_answer(
    responder: Responder<'_>,
    class: u32,
    input: Option<&[u8]>,
    lacks_output: bool,
) -> Result<Vec<u8>> {
    let refuse = |reason| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
    let Some(class) = InfoClass::from_number(class).filter(|class| class.rules().can_enumerate) else {
        return Err(not_enumerable_error());
    };
    let input = input.unwrap_or(&[]);
    let needs_one_guid = matches!(class, InfoClass::TraceGuidQueryInfo | InfoClass::TraceGroupQueryInfo);
    if needs_one_guid && input.len() != size_of::<Guid>() {
        return refuse("this information is about one GUID, which has 16 bytes");
    }
    if lacks_output {
        return refuse("a length and no buffer");
    }
    if class == InfoClass::TraceGuidQueryProcess {
        return Ok(guids_to_bytes(&own_providers()));
    }
    let about = guids_from_bytes(input).first().copied().unwrap_or(Guid::NULL);
    responder.with_daemon(|daemon| match daemon {
        Some(daemon) => enumerate(daemon, class, about),
        None if class == InfoClass::TraceGuidQueryInfo
            && (is_of_kernel(&about) || kernel_provider_name(&about).is_some()) =>
        {
            Ok(GuidInfo { instances: vec![InstanceInfo::default()] }.to_bytes())
        }
        None => enumerate_without_daemon(class),
    })
}

fn enumerate(daemon: &mut Controller, class: InfoClass, about: Guid) -> Result<Vec<u8>> {
    Ok(match class {
        InfoClass::TraceMaxLoggersQuery => {
            daemon.query_information(&NO_SESSION, Query::MaxLoggers)?.to_bytes()
        }
        InfoClass::TraceGuidQueryInfo if is_of_kernel(&about) => kernel_guid_info(daemon, &about)?.to_bytes(),
        InfoClass::TraceGuidQueryInfo => guid_info(daemon.registrations(about)?).to_bytes(),
        InfoClass::TraceGroupQueryInfo => daemon.group_info(about)?.to_bytes(),
        InfoClass::TraceGuidQueryList => guid_list_bytes(&daemon.provider_entries()?, false),
        InfoClass::TraceGroupQueryList => guid_list_bytes(&daemon.provider_entries()?, true),
        _ => return Err(not_enumerable_error()),
    })
}

/// Returns whether a GUID is that of a provider in the kernel, which no process registers.
fn is_of_kernel(provider: &Guid) -> bool {
    *provider == SYSTEM_TRACE_CONTROL || is_system_provider(provider)
}

/// Returns the one instance of a provider in the kernel, with the system loggers that record it.
fn kernel_guid_info(daemon: &mut Controller, provider: &Guid) -> Result<GuidInfo> {
    let mut enables = Vec::new();
    for session in daemon.query_all()?.iter().filter(|session| is_system_logger(&session.config)) {
        // A session that ends meanwhile is left out.
        let flags = daemon.query_information(&SessionRef::Id(session.id), Query::SystemTraceEnableFlags);
        let Ok(Answer::SystemTraceEnableFlags(mask)) = flags else { continue };
        let match_any = match *provider {
            SYSTEM_TRACE_CONTROL => u64::from(mask.first().copied().unwrap_or(0)),
            _ => keywords_in(provider, &mask),
        };
        if match_any != 0 {
            enables.push(EnableInfo {
                level: 0,
                logger_id: (session.api_id() & 0xFFFF) as u16,
                property: 0,
                match_any,
                match_all: 0,
            });
        }
    }
    Ok(GuidInfo { instances: vec![InstanceInfo { enables, ..InstanceInfo::default() }] })
}

fn enumerate_without_daemon(class: InfoClass) -> Result<Vec<u8>> {
    match class {
        InfoClass::TraceMaxLoggersQuery => {
            Ok(answer_without_daemon(&NO_SESSION, Query::MaxLoggers)?.to_bytes())
        }
        InfoClass::TraceGuidQueryInfo | InfoClass::TraceGroupQueryInfo => Err(unknown_provider_error()),
        InfoClass::TraceGuidQueryList => Ok(guids_to_bytes(&own_providers())),
        InfoClass::TraceGroupQueryList => Ok(Vec::new()),
        _ => Err(not_enumerable_error()),
    }
}

fn not_enumerable_error() -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, "this information class cannot be enumerated")
}

/// Returns the GUIDs of providers, or of groups.
fn guid_list_bytes(entries: &[ProviderEntry], is_group: bool) -> Vec<u8> {
    let guids: Vec<Guid> =
        entries.iter().filter(|entry| entry.is_group == is_group).map(|entry| entry.provider).collect();
    guids_to_bytes(&guids)
}
