//! Sessions and providers that all threads share.

use traceweir::controller::{EnableCode, SessionRef, Update};
use traceweir::{Guid, Provider};

use super::actor::{Actor, MAX_REGISTRATIONS, SHARED};
use crate::helpers::{
    ACTIVE_CONNECTIONS, ALREADY_EXISTS, INSTANCE_NOT_FOUND, INVALID_FUNCTION, SUCCESS, enable_params, event,
    status,
};

impl Actor<'_> {
    /// Performs a random operation on shared sessions and providers, while other threads do the
    /// same.
    pub(super) fn use_shared_session(&mut self) {
        let name = format!("{SHARED} {}", self.random_below(2));
        let guid = Guid::from_u128(0xDA7A_FF00 | u128::from(self.random_below(2)));
        let session = SessionRef::Name(name.clone());
        // The session runs, does not exist, or is stopping.
        let allowed = [SUCCESS, INSTANCE_NOT_FOUND, ACTIVE_CONNECTIONS];
        let params = enable_params(self.random_below(6) as u8, self.random_below(4), 0);
        match self.random_below(9) {
            0 => self.start_shared(name),
            1 => self.stop_shared(&session),
            2 => {
                let outcome = status(self.controller.query(&session));
                self.expect("shared query", outcome, &allowed);
            }
            3 => {
                let outcome = status(self.controller.flush(&session, None));
                self.expect("shared flush", outcome, &allowed);
            }
            4 => {
                let update = Update { flush_timer: Some(2), ..Update::default() };
                let outcome = status(self.controller.update(&session, &update));
                self.expect("shared update", outcome, &allowed);
            }
            5 => {
                let code = [EnableCode::Enable, EnableCode::Disable][self.random_index(2)];
                let timeout = if self.one_in(3) { 10_000 } else { 0 };
                let outcome = status(self.controller.enable(&session, guid, code, &params, timeout));
                self.expect("shared enable", outcome, &allowed);
            }
            6 => {
                let outcome =
                    status(self.controller.enable(&session, guid, EnableCode::CaptureState, &params, 0));
                self.expect("shared capture", outcome, &[SUCCESS, INVALID_FUNCTION, INSTANCE_NOT_FOUND]);
            }
            7 if self.shared.len() < MAX_REGISTRATIONS => match Provider::register(guid, None) {
                Ok(provider) => self.shared.push(provider),
                Err(e) => self.record_divergence(format!("shared register: {e}")),
            },
            _ => drop(self.shared.pop()),
        }
        for provider in &self.shared {
            let _ = provider.write(&event(1), &[b"shared"]);
        }
    }

    fn start_shared(&mut self, name: String) {
        let kind = self.random_index(super::sessions::SINGLE_FILE_KINDS);
        let config = self.small_config(name, kind);
        let outcome = status(self.controller.start(&config));
        self.expect("shared start", outcome, &[SUCCESS, ALREADY_EXISTS]);
        if outcome != SUCCESS {
            self.expect_no_file(config.log_file);
        }
    }

    fn stop_shared(&mut self, session: &SessionRef) {
        match self.controller.stop(session) {
            Ok(end) => self.check_shared_log(&end),
            Err(e) => self.expect("shared stop", e.status(), &[INSTANCE_NOT_FOUND, ACTIVE_CONNECTIONS]),
        }
    }
}
