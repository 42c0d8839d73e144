//! The result of a command that changes something, as one JSON object, whether it succeeded or not.
//!
//! ```text
//!   {"ok":true,"status":0,"status_name":"ERROR_SUCCESS","error":null,"session":{…},
//!    "providers":[…]}
//!   {"ok":false,"status":4201,"status_name":"ERROR_WMI_INSTANCE_NOT_FOUND",
//!    "error":"cannot stop session App: …","session":null,"providers":[]}
//! ```
//!
//! `docs/cli-json.md` documents the fields. Standard error and the exit status are the same as
//! without `--json`.

use anyhow::Result;
use traceweir::Status;
use traceweir::session::SessionSummary;

use crate::exit::{CommandOutcome, format_error, status_of};
use crate::grammar::EnableRequest;
use crate::output::print_text;
use crate::sessions::{self, SessionState};
use crate::text::{JsonObject, json_array};

/// The result of a command, for its exit status and its JSON object.
#[derive(Debug, Default)]
pub(super) struct CommandResult {
    pub(super) outcome: CommandOutcome,
    /// A failure after which there is still a session to report, such as a log file that no longer
    /// exists.
    pub(super) failure: Option<anyhow::Error>,
    /// The session after the command; if the session has ended, its final state.
    pub(super) session: Option<(SessionSummary, SessionState)>,
    /// The providers that the command was about.
    pub(super) providers: Vec<EnableRequest>,
}

impl CommandResult {
    /// Returns the result for a running session.
    pub(super) fn for_running(session: SessionSummary) -> Self {
        Self { session: Some((session, SessionState::Running)), ..Self::default() }
    }

    /// Returns the result for a session that has ended.
    pub(super) fn for_ended(session: SessionSummary, outcome: CommandOutcome) -> Self {
        Self { session: Some((session, SessionState::Ended)), outcome, ..Self::default() }
    }

    /// Returns the result for providers of a session.
    pub(super) fn for_providers(providers: Vec<EnableRequest>) -> Self {
        Self { providers, ..Self::default() }
    }
}

/// Prints the JSON object if requested, and returns the outcome.
pub(super) fn print_result(as_json: bool, result: Result<CommandResult>) -> Result<CommandOutcome> {
    if as_json {
        let text = format_object(&result) + "\n";
        print_text(&text)?;
    }
    result.and_then(|completed| completed.failure.map_or(Ok(completed.outcome), Err))
}

fn format_object(result: &Result<CommandResult>) -> String {
    let completed = result.as_ref().ok();
    let failure = match result {
        Ok(completed) => completed.failure.as_ref(),
        Err(error) => Some(error),
    };
    let status = failure.map_or(Some(Status::ERROR_SUCCESS), status_of);
    let mut object = JsonObject::new();
    object.raw("ok", if failure.is_none() { "true" } else { "false" });
    match status {
        Some(status) => object.number("status", status.0),
        None => object.raw("status", "null"),
    };
    object.optional("status_name", status.and_then(Status::name));
    object.optional("error", failure.map(format_error).as_deref());
    let session = completed.and_then(|completed| completed.session.as_ref());
    let session = session.map(|(summary, state)| sessions::format_json(summary, *state, &[], None));
    object.raw("session", session.as_deref().unwrap_or("null"));
    let providers = completed.into_iter().flat_map(|completed| &completed.providers).map(|request| {
        let mut object = JsonObject::new();
        let name = Some(request.storable_name()).filter(|name| !name.is_empty());
        object.text("guid", &request.guid.to_string()).optional("name", name);
        object.finish()
    });
    object.raw("providers", &json_array(providers));
    object.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir::{Error, SessionId};

    #[test]
    fn json_fields_are_documented() {
        let documented = include_str!("../../../../docs/cli-json.md");
        let mut session = SessionSummary::default();
        session.id = SessionId::new(7);
        let refused = Error::refused(Status::ERROR_ALREADY_EXISTS, "there is one");
        for (result, ok, status, name) in [
            (Ok(CommandResult::for_running(session)), true, 0, "ERROR_SUCCESS"),
            (Err(anyhow::Error::new(refused)), false, 183, "ERROR_ALREADY_EXISTS"),
        ] {
            let object: serde_json::Value = serde_json::from_str(&format_object(&result)).unwrap();
            for name in object.as_object().unwrap().keys() {
                assert!(documented.contains(&format!("| `{name}` |")), "{name} is not documented");
            }
            assert_eq!(object["ok"], ok);
            assert_eq!((&object["status"], &object["status_name"]), (&status.into(), &name.into()));
            assert_eq!(object["error"].is_null(), ok);
            assert_eq!(object["session"]["id"].as_u64(), ok.then_some(7));
        }
    }
}
