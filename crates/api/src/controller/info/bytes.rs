//! The same by class, buffer and length, as C programs call it.
//!
//! A buffer is `None` where its pointer is null; a length that goes with it is then still judged. No daemon (`None`) is an idle system: no session runs, and
//! nobody has registered anything.
//!
//! | | Too short | `return_length` | A null buffer |
//! |---|---|---|---|
//! | [`set_bytes`] | `ERROR_BAD_LENGTH` | | with a length: 87 |
//! | [`query_bytes`] | `ERROR_BAD_LENGTH` | what is needed, what was written; else left alone | the same; with length 0 a question for the length |
//! | [`enumerate_bytes`] | `ERROR_INSUFFICIENT_BUFFER` | the same | the same |

use traceweir_format::Guid;
use traceweir_format::info::{Query, Set, guids_from_bytes, guids_to_bytes};
use traceweir_format::spec::info::{About, InfoClass};
use traceweir_format::spec::status::Status;
use traceweir_session::info::Machine;
use traceweir_transport::message::{ProviderEntry, SessionRef};

use super::{Controller, answer_of_nobody, check_about, guid_info, own_providers, unknown_provider};
use crate::controller::not_running;
use crate::error::{Error, Result};

/// What became of a question.
#[derive(Debug)]
pub struct Outcome {
    /// The status.
    pub result: Result<()>,
    /// What goes to ReturnLength; `None`: it is left alone.
    pub return_length: Option<u32>,
}

impl Outcome {
    fn failed(error: Error) -> Self {
        Self { result: Err(error), return_length: None }
    }

    fn too_short(status: Status, needed: usize) -> Self {
        let why = format!("the answer takes {needed} bytes");
        Self { result: Err(Error::refused(status, why)), return_length: u32::try_from(needed).ok() }
    }

    /// Writes the answer where it fits as a whole.
    fn written(answer: &[u8], buffer: Option<&mut [u8]>, too_short: Status) -> Self {
        match (answer, buffer.and_then(|buffer| buffer.get_mut(..answer.len()))) {
            (&[], _) => {}
            (answer, Some(place)) => place.copy_from_slice(answer),
            (answer, None) => return Self::too_short(too_short, answer.len()),
        }
        Self { result: Ok(()), return_length: u32::try_from(answer.len()).ok() }
    }
}

/// TraceSetInformation.
pub fn set_bytes(
    controller: Option<&mut Controller>,
    session: u64,
    class: u32,
    info: Option<&[u8]>,
    length: usize,
) -> Result<()> {
    let set = Set::from_bytes(class, info, length)?;
    let session = SessionRef::Id(session);
    check_about(&session, set.class())?;
    match (controller, set.class().rules().about) {
        (Some(controller), _) => controller.set_information(&session, &set),
        (None, About::Session) => Err(not_running(&session)),
        (None, _) => {
            let reason = "it keeps the settings of the system, and none runs: start one with `weir daemon`";
            Err(Error::NoDaemon { reason: reason.to_owned() })
        }
    }
}

/// TraceQueryInformation. `info` is read and written: some questions say in it what they are about.
pub fn query_bytes(
    controller: Option<&mut Controller>,
    session: u64,
    class: u32,
    info: Option<&mut [u8]>,
    length: usize,
) -> Outcome {
    let query = match Query::from_bytes(class, info.as_deref(), length) {
        Ok(query) => query,
        Err(e) if e.status() == Status::ERROR_BAD_LENGTH => {
            return Outcome::too_short(Status::ERROR_BAD_LENGTH, least(class));
        }
        Err(e) => return Outcome::failed(e.into()),
    };
    let session = SessionRef::Id(session);
    let answer = match controller {
        Some(controller) => controller.query_information(&session, query),
        None => answer_of_nobody(&session, query),
    };
    match answer {
        Ok(answer) => {
            let buffer = info.and_then(|info| info.get_mut(..length));
            Outcome::written(&answer.to_bytes(), buffer, Status::ERROR_BAD_LENGTH)
        }
        Err(e) => Outcome::failed(e),
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
pub fn enumerate_bytes(
    controller: Option<&mut Controller>,
    class: u32,
    input: Option<&[u8]>,
    output: Option<&mut [u8]>,
    output_length: usize,
) -> Outcome {
    let answer = enumerated(controller, class, input, output.is_none() && output_length != 0);
    let buffer = output.and_then(|output| output.get_mut(..output_length));
    match answer {
        Ok(answer) => Outcome::written(&answer, buffer, Status::ERROR_INSUFFICIENT_BUFFER),
        Err(e) => Outcome::failed(e),
    }
}

fn enumerated(
    controller: Option<&mut Controller>,
    class: u32,
    input: Option<&[u8]>,
    lacks_output: bool,
) -> Result<Vec<u8>> {
    let invalid = |why| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
    let Some(class) = InfoClass::from_number(class).filter(|class| class.rules().enumerates) else {
        return invalid("this information class cannot be enumerated");
    };
    let input = input.unwrap_or(&[]);
    let is_about_one = matches!(class, InfoClass::TraceGuidQueryInfo | InfoClass::TraceGroupQueryInfo);
    if is_about_one && input.len() != size_of::<Guid>() {
        return invalid("this information is about one GUID, which has 16 bytes");
    }
    if lacks_output {
        return invalid("a length and no buffer");
    }
    let about = guids_from_bytes(input).first().copied().unwrap_or(Guid::NULL);
    Ok(match (class, controller) {
        (InfoClass::TraceGuidQueryProcess, _) => guids_to_bytes(&own_providers()),
        (InfoClass::TraceMaxLoggersQuery, Some(controller)) => {
            controller.query_information(&super::NO_SESSION, Query::MaxLoggers)?.to_bytes()
        }
        (InfoClass::TraceMaxLoggersQuery, None) => {
            answer_of_nobody(&super::NO_SESSION, Query::MaxLoggers)?.to_bytes()
        }
        (InfoClass::TraceGuidQueryInfo, Some(controller)) => {
            guid_info(controller.registrations(about)?).to_bytes()
        }
        (InfoClass::TraceGroupQueryInfo, Some(controller)) => controller.group_info(about)?.to_bytes(),
        (InfoClass::TraceGuidQueryInfo | InfoClass::TraceGroupQueryInfo, None) => {
            return Err(unknown_provider());
        }
        (class, Some(controller)) => {
            let of_groups = class == InfoClass::TraceGroupQueryList;
            listed(&controller.providers()?, of_groups)
        }
        (InfoClass::TraceGuidQueryList, None) => guids_to_bytes(&own_providers()),
        (_, None) => Vec::new(),
    })
}

/// GUIDs of providers, or of groups.
fn listed(all: &[ProviderEntry], of_groups: bool) -> Vec<u8> {
    let guids: Vec<Guid> = all.iter().filter(|it| it.is_group == of_groups).map(|it| it.provider).collect();
    guids_to_bytes(&guids)
}
