//! The same by class, buffer and length, as C programs call it.
//!
//! ```text
//!   class, buffer, length ─▶ session id ─▶ what this library knows by itself ─▶ Asked ─▶ session, right, kind, machine, content
//!   50, 87, 24, 87           87            versions, limits, sources, owners     a daemon, no daemon, a session of this process
//! ```
//!
//! A buffer is `None` where its pointer is null; a length that goes with it is then still judged. What a call alone shows is said whoever is [`Asked`], and a daemon is
//! looked for only where it is needed: one that is silent or shuts its door keeps nobody from what it has no part in.
//!
//! | | Too short | `return_length` | A null buffer |
//! |---|---|---|---|
//! | [`set_bytes`] | `ERROR_BAD_LENGTH` | | with a length: 87 |
//! | [`query_bytes`] | `ERROR_BAD_LENGTH` | what is needed, what was written; else left alone | the same; with length 0 a question for the length |
//! | [`enumerate_bytes`] | `ERROR_INSUFFICIENT_BUFFER` | the same | the same |

use traceweir_format::Guid;
use traceweir_format::info::{
    Answer, ClassicEventId, MAX_LBR_EVENTS, Query, Set, guids_from_bytes, guids_to_bytes,
};
use traceweir_format::spec::info::{About, InfoClass};
use traceweir_format::spec::status::Status;
use traceweir_session::info::{Machine, local_answer, read_set};
use traceweir_transport::message::{ProviderEntry, SessionRef};

use super::{Controller, idle_answer, check_about, guid_info, own_providers, unknown_provider};
use crate::controller::not_running;
use crate::error::{Error, Result};
use crate::private::{PrivateSession, not_for_private};

/// Who answers.
#[derive(Debug)]
pub enum Asked<'a> {
    /// This daemon; `None` is an idle system: no session runs, and nobody has registered anything.
    Daemon(Option<&'a mut Controller>),
    /// The daemon that [`Controller::find`] finds when the call turns out to need one; what changes the system, and needs nothing to be there already, starts one.
    WhoeverIsThere,
    /// The session, which this process runs, of the id that goes along.
    Private(&'a PrivateSession),
}

impl<'a> From<Option<&'a mut Controller>> for Asked<'a> {
    fn from(daemon: Option<&'a mut Controller>) -> Self {
        Self::Daemon(daemon)
    }
}

impl Asked<'_> {
    /// Puts a question to the daemon, if there is one. What a session of this process has no part in is for the daemon too.
    fn question<T>(self, ask: impl FnOnce(Option<&mut Controller>) -> Result<T>) -> Result<T> {
        match self {
            Self::Daemon(daemon) => ask(daemon),
            Self::WhoeverIsThere | Self::Private(_) => ask(Controller::find(None)?.as_mut()),
        }
    }
}

/// What became of a question.
#[derive(Debug)]
pub struct Outcome {
    /// The status.
    pub result: Result<()>,
    /// What goes to ReturnLength; `None`: it is left alone.
    pub return_length: Option<u32>,
    /// What goes to the caller's buffer, in which it has room: the answer, or nothing.
    pub answer: Vec<u8>,
}

/// The buffer of a caller, into which nothing is written here: it may have been given in any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The length that was said.
    pub length: usize,
    /// A null pointer: there is no such buffer.
    pub is_null: bool,
}

impl Outcome {
    fn failed(error: Error) -> Self {
        Self { result: Err(error), return_length: None, answer: Vec::new() }
    }

    fn too_short(status: Status, needed: usize) -> Self {
        let why = format!("the answer takes {needed} bytes");
        let return_length = u32::try_from(needed).ok();
        Self { return_length, ..Self::failed(Error::refused(status, why)) }
    }

    /// Gives the answer where it fits as a whole.
    fn answered(answer: Vec<u8>, room: Room, too_short: Status) -> Self {
        if !answer.is_empty() && (room.is_null || room.length < answer.len()) {
            return Self::too_short(too_short, answer.len());
        }
        Self { result: Ok(()), return_length: u32::try_from(answer.len()).ok(), answer }
    }
}

/// TraceSetInformation.
pub fn set_bytes<'a>(
    asked: impl Into<Asked<'a>>,
    session: u64,
    class: u32,
    info: Option<&[u8]>,
    length: usize,
) -> Result<()> {
    let set = read_set(class, info, length, Machine::look)?;
    let session = SessionRef::of_call(session);
    check_about(&session, set.class())?;
    match (asked.into(), set.class().rules().about) {
        (Asked::Private(own), About::Session) => own.set_information(&set),
        // The settings of the system need nothing that runs already.
        (Asked::WhoeverIsThere, About::System | About::Anything) => {
            Controller::find_or_start(None)?.set_information(&session, &set)
        }
        (asked, about) => asked.question(|daemon| match daemon {
            Some(daemon) => daemon.set_information(&session, &set),
            None if about == About::Session => Err(not_running(&session)),
            None => {
                let reason =
                    "it keeps the settings of the system, and none runs: start one with `weir daemon`";
                Err(Error::NoDaemon { reason: reason.to_owned() })
            }
        }),
    }
}

/// TraceConfigureLastBranchRecord: 20 and 21 in one call; [`Controller::configure_last_branch_record`]. `events` are CLASSIC_EVENT_IDs, `None` for a null pointer.
pub fn configure_last_branch_record_bytes<'a>(
    asked: impl Into<Asked<'a>>,
    session: u64,
    configuration: u32,
    events: Option<&[u8]>,
    count: usize,
) -> Result<()> {
    let refused = |why| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
    if count > MAX_LBR_EVENTS {
        return refused("at most four kernel events can be followed by branches");
    }
    let Some(events) = events.unwrap_or(&[]).get(..count.saturating_mul(ClassicEventId::SIZE)) else {
        return refused("a number of events, and no buffer that holds them");
    };
    let (session, events) = (SessionRef::of_call(session), ClassicEventId::list(events));
    check_about(&session, InfoClass::TraceLbrEventListInfo)?;
    match asked.into() {
        Asked::Private(own) => own.set_information(&Set::LbrConfiguration(configuration)),
        asked => asked.question(|daemon| match daemon {
            Some(daemon) => daemon.configure_last_branch_record(&session, configuration, &events),
            None => Err(not_running(&session)),
        }),
    }
}

/// TraceQueryInformation. `info` is what the buffer begins with: some questions say there what they are about ([`Query::input_size`]).
pub fn query_bytes<'a>(
    asked: impl Into<Asked<'a>>,
    session: u64,
    class: u32,
    info: Option<&[u8]>,
    length: usize,
) -> Outcome {
    let query = match Query::from_bytes(class, info, length) {
        Ok(Query::PmcCounterOwners(_)) if length < least(class) => {
            return Outcome::too_short(Status::ERROR_BAD_LENGTH, least(class));
        }
        Ok(query) => query,
        Err(e) if e.status() == Status::ERROR_BAD_LENGTH => {
            return Outcome::too_short(Status::ERROR_BAD_LENGTH, least(class));
        }
        Err(e) => return Outcome::failed(e.into()),
    };
    match ask(asked, &SessionRef::of_call(session), query) {
        Ok(answer) => {
            let room = Room { length, is_null: info.is_none() };
            Outcome::answered(answer.to_bytes(), room, Status::ERROR_BAD_LENGTH)
        }
        Err(e) => Outcome::failed(e),
    }
}

/// Asks about a session, or about the system ([`NO_SESSION`](super::NO_SESSION)), whoever is there to answer: [`Controller::query_information`] where that is a daemon.
pub fn ask<'a>(asked: impl Into<Asked<'a>>, session: &SessionRef, query: Query) -> Result<Answer> {
    check_about(session, query.class())?;
    if let Some(answer) = local_answer(query, Machine::look)? {
        return Ok(answer);
    }
    match (asked.into(), query.class().rules().about) {
        (Asked::Private(_), About::Session) => Err(not_for_private(query.class())),
        (asked, _) => asked.question(|daemon| match daemon {
            Some(daemon) => daemon.query_information(session, query),
            None => idle_answer(session, query),
        }),
    }
}

/// What the answer takes at least.
fn least(class: u32) -> usize {
    match InfoClass::from_number(class) {
        Some(InfoClass::TracePmcCounterOwners) => Query::owners_size(Machine::look().counters() as usize),
        Some(class) => Query::answer_size(class).unwrap_or(0),
        None => 0,
    }
}

/// EnumerateTraceGuidsEx. That there is a place for the length is for the caller to check: the published function refuses to go without (87).
pub fn enumerate_bytes<'a>(
    asked: impl Into<Asked<'a>>,
    class: u32,
    input: Option<&[u8]>,
    output: Room,
) -> Outcome {
    match enumerated(asked.into(), class, input, output.is_null && output.length != 0) {
        Ok(answer) => Outcome::answered(answer, output, Status::ERROR_INSUFFICIENT_BUFFER),
        Err(e) => Outcome::failed(e),
    }
}

fn enumerated(asked: Asked<'_>, class: u32, input: Option<&[u8]>, lacks_output: bool) -> Result<Vec<u8>> {
    let invalid = |why| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
    let Some(class) = InfoClass::from_number(class).filter(|class| class.rules().enumerates) else {
        return Err(not_enumerated());
    };
    let input = input.unwrap_or(&[]);
    let is_about_one = matches!(class, InfoClass::TraceGuidQueryInfo | InfoClass::TraceGroupQueryInfo);
    if is_about_one && input.len() != size_of::<Guid>() {
        return invalid("this information is about one GUID, which has 16 bytes");
    }
    if lacks_output {
        return invalid("a length and no buffer");
    }
    if class == InfoClass::TraceGuidQueryProcess {
        return Ok(guids_to_bytes(&own_providers()));
    }
    let about = guids_from_bytes(input).first().copied().unwrap_or(Guid::NULL);
    asked.question(|daemon| match daemon {
        Some(daemon) => told_by(daemon, class, about),
        None => told_by_nobody(class),
    })
}

fn told_by(daemon: &mut Controller, class: InfoClass, about: Guid) -> Result<Vec<u8>> {
    Ok(match class {
        InfoClass::TraceMaxLoggersQuery => {
            daemon.query_information(&super::NO_SESSION, Query::MaxLoggers)?.to_bytes()
        }
        InfoClass::TraceGuidQueryInfo => guid_info(daemon.registrations(about)?).to_bytes(),
        InfoClass::TraceGroupQueryInfo => daemon.group_info(about)?.to_bytes(),
        InfoClass::TraceGuidQueryList => listed(&daemon.providers()?, false),
        InfoClass::TraceGroupQueryList => listed(&daemon.providers()?, true),
        _ => return Err(not_enumerated()),
    })
}

fn told_by_nobody(class: InfoClass) -> Result<Vec<u8>> {
    match class {
        InfoClass::TraceMaxLoggersQuery => {
            Ok(idle_answer(&super::NO_SESSION, Query::MaxLoggers)?.to_bytes())
        }
        InfoClass::TraceGuidQueryInfo | InfoClass::TraceGroupQueryInfo => Err(unknown_provider()),
        InfoClass::TraceGuidQueryList => Ok(guids_to_bytes(&own_providers())),
        InfoClass::TraceGroupQueryList => Ok(Vec::new()),
        _ => Err(not_enumerated()),
    }
}

fn not_enumerated() -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, "this information class cannot be enumerated")
}

/// GUIDs of providers, or of groups.
fn listed(all: &[ProviderEntry], of_groups: bool) -> Vec<u8> {
    let guids: Vec<Guid> = all.iter().filter(|it| it.is_group == of_groups).map(|it| it.provider).collect();
    guids_to_bytes(&guids)
}
