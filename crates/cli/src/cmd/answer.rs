//! What came of a verb that changes something, for programs: one object, whether it worked or not.
//!
//! ```text
//!   {"ok":true,"status":0,"status_name":"ERROR_SUCCESS","error":null,"session":{…},"providers":[…]}
//!   {"ok":false,"status":4201,"status_name":"ERROR_WMI_INSTANCE_NOT_FOUND","error":"cannot stop session App: …","session":null,"providers":[]}
//! ```
//!
//! The names are in `docs/cli-json.md`. People read standard error as they always do, and the exit status is the same.

use anyhow::Result;
use traceweir::Status;
use traceweir::controller::Properties;

use crate::exit::{Outcome, sentence, status_of};
use crate::export::{Object, array};
use crate::grammar::Wanted;
use crate::output::Output;
use crate::sessions::{self, Life};

/// What a verb has done.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// What failed although there is a session to report, such as a log file that is no longer
    /// there.
    pub(super) failure: Option<anyhow::Error>,
    /// The session afterwards, or at its end.
    pub(super) session: Option<(Properties, Life)>,
    /// The providers that it was about.
    pub(super) providers: Vec<Wanted>,
}

impl Answer {
    /// About a session that runs.
    pub(super) fn running(session: Properties) -> Self {
        Self { session: Some((session, Life::Running)), ..Self::default() }
    }

    /// About a session that has ended.
    pub(super) fn ended(session: Properties, outcome: Outcome) -> Self {
        Self { session: Some((session, Life::Ended)), outcome, ..Self::default() }
    }

    /// About providers of a session.
    pub(super) fn about(providers: Vec<Wanted>) -> Self {
        Self { providers, ..Self::default() }
    }
}

/// Prints the object where it is wanted, and hands on how it ended.
pub(super) fn tell(as_json: bool, result: Result<Answer>) -> Result<Outcome> {
    if as_json {
        let text = object(&result) + "\n";
        let mut output = Output::open(None)?;
        output.buffer().extend_from_slice(text.as_bytes());
        output.flush()?;
    }
    result.and_then(|answer| answer.failure.map_or(Ok(answer.outcome), Err))
}

fn object(result: &Result<Answer>) -> String {
    let answer = result.as_ref().ok();
    let failure = match result {
        Ok(answer) => answer.failure.as_ref(),
        Err(error) => Some(error),
    };
    let status = failure.map_or(Some(Status::ERROR_SUCCESS), status_of);
    let mut object = Object::new();
    object.raw("ok", if failure.is_none() { "true" } else { "false" });
    match status {
        Some(status) => object.number("status", status.0),
        None => object.raw("status", "null"),
    };
    object.optional("status_name", status.and_then(Status::name));
    object.optional("error", failure.map(sentence).as_deref());
    let session = answer.and_then(|it| it.session.as_ref());
    let session = session.map(|(properties, life)| sessions::json(properties, *life, &[], None));
    object.raw("session", session.as_deref().unwrap_or("null"));
    let providers = answer.into_iter().flat_map(|it| &it.providers).map(|wanted| {
        let mut object = Object::new();
        let name = Some(wanted.called()).filter(|name| !name.is_empty());
        object.text("guid", &wanted.guid.to_string()).optional("name", name);
        object.finish()
    });
    object.raw("providers", &array(providers));
    object.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir::Error;

    #[test]
    fn the_object_has_the_names_that_are_documented() {
        let documented = include_str!("../../../../docs/cli-json.md");
        let session = Properties { id: 7, ..Properties::default() };
        let refused = Error::refused(Status::ERROR_ALREADY_EXISTS, "there is one");
        for (result, ok, status, name) in [
            (Ok(Answer::running(session)), true, 0, "ERROR_SUCCESS"),
            (Err(anyhow::Error::new(refused)), false, 183, "ERROR_ALREADY_EXISTS"),
        ] {
            let object: serde_json::Value = serde_json::from_str(&object(&result)).unwrap();
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
