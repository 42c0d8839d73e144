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
                let answer = status(self.controller.query(&session));
                self.expect("shared query", answer, &allowed);
            }
            3 => {
                let answer = status(self.controller.flush(&session, None));
                self.expect("shared flush", answer, &allowed);
            }
            4 => {
                let update = Update { flush_timer: Some(2), ..Update::default() };
                let answer = status(self.controller.update(&session, &update));
                self.expect("shared update", answer, &allowed);
            }
            5 => {
                let code = [EnableCode::Enable, EnableCode::Disable][self.random_index(2)];
                let timeout_ms = if self.one_in(3) { 10_000 } else { 0 };
                let answer = status(self.controller.enable(&session, guid, code, &params, timeout_ms));
                self.expect("shared enable", answer, &allowed);
            }
            6 => {
                let answer =
                    status(self.controller.enable(&session, guid, EnableCode::CaptureState, &params, 0));
                self.expect("shared capture", answer, &[SUCCESS, INVALID_FUNCTION, INSTANCE_NOT_FOUND]);
            }
            7 if self.shared_registrations.len() < MAX_REGISTRATIONS => {
                match Provider::register(guid, None) {
                    Ok(provider) => self.shared_registrations.push(provider),
                    Err(error) => self.record_divergence(format!("shared register: {error}")),
                }
            }
            _ => drop(self.shared_registrations.pop()),
        }
        for provider in &self.shared_registrations {
            let _ = provider.write(&event(1), &[b"shared"]);
        }
    }

    fn start_shared(&mut self, name: String) {
        let kind = self.random_index(super::sessions::SINGLE_FILE_KINDS);
        let config = self.small_config(name, kind);
        let answer = status(self.controller.start(&config));
        self.expect("shared start", answer, &[SUCCESS, ALREADY_EXISTS]);
        if answer != SUCCESS {
            self.expect_no_file(config.log_file);
        }
    }

    fn stop_shared(&mut self, session: &SessionRef) {
        match self.controller.stop(session) {
            Ok(end) => self.check_shared_log(&end),
            Err(error) => {
                self.expect("shared stop", error.status(), &[INSTANCE_NOT_FOUND, ACTIVE_CONNECTIONS])
            }
        }
    }
}
