//! The users who may control a private session.
//!
//! ```text
//!                        its starter   root   the daemon's own user   other users
//!   control, enable          yes       yes            yes                 no
//!   name another file        yes       yes            no                  no
//! ```

use traceweir_format::spec::status::Status;
use traceweir_transport::message::Control;

use super::PrivateSessions;
use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::log::log_refusal;
use crate::service::core::Core;

impl PrivateSessions {
    /// Checks that the requester may control the session. Only the starter and root may name a
    /// file, because processes open it with the rights of their own users.
    pub(in crate::service) fn check_controller(
        &self,
        core: &Core,
        reply_to: ReplyTo,
        id: u64,
        names_file: bool,
    ) -> Result<(), Refusal> {
        let (uid, private) =
            (core.access.uid(reply_to.link)?, self.sessions.get(&id).ok_or_else(Refusal::not_running)?);
        let is_permitted = if names_file { uid == 0 } else { !core.access.is_guest(reply_to.link) };
        if is_permitted || uid == private.starter {
            return Ok(());
        }
        let (name, starter) = (&private.config.name, private.starter);
        log_refusal!("uid {uid}: private session {name:?} belongs to uid {starter}");
        let permitted = if names_file {
            " and root may name a file for it"
        } else {
            ", root and the daemon's own user may control it"
        };
        let reason = format!(
            "only the user who started the private session (uid {starter}){permitted}; start one of your own"
        );
        Err(Refusal::new(Status::ERROR_ACCESS_DENIED, reason))
    }
}

/// Returns whether a request names a file that processes would open.
pub(super) fn names_file(control: &Control) -> bool {
    match control {
        Control::Update(update) => update.log_file.is_some(),
        Control::Flush { log_file } => log_file.is_some(),
        _ => false,
    }
}
