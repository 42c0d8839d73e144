//! Whose a private session is, and who else may ask something of it.
//!
//! ```text
//!                        its starter   root   the daemon's own user   other guests
//!   control, enable          yes       yes            yes                 no
//!   name another file        yes       yes            no                  no
//! ```

use traceweir_format::spec::status::Status;
use traceweir_transport::message::Control;

use crate::error::Refusal;
use crate::log::refused;
use crate::service::sessions::not_running;
use crate::service::{Asker, Service};

impl Service {
    /// Whether the session is the asker's to control. Where he names a file nobody will do but its starter and root: processes open it
    /// with the rights of their user.
    pub(in crate::service) fn check_owner(
        &self,
        asker: Asker,
        id: u64,
        names_file: bool,
    ) -> Result<(), Refusal> {
        let (uid, private) = (self.uid(asker)?, self.privates.all.get(&id).ok_or_else(not_running)?);
        let may = if names_file { uid == 0 } else { !self.is_guest(asker.link) };
        if may || uid == private.starter {
            return Ok(());
        }
        let (name, starter) = (&private.config.name, private.starter);
        refused!("uid {uid}: private session {name:?} is that of uid {starter}");
        let what = if names_file { "gets another file from" } else { "is controlled by" };
        let why = format!(
            "a private session {what} the user who started it (uid {starter}) and root; start one of your own"
        );
        Err(Refusal::new(Status::ERROR_ACCESS_DENIED, why))
    }

    /// The user who asks.
    pub(super) fn uid(&self, asker: Asker) -> Result<u32, Refusal> {
        let closed = || Refusal::new(Status::ERROR_INVALID_HANDLE, "the connection is closed");
        self.peer(asker.link).map(|peer| peer.uid).ok_or_else(closed)
    }
}

/// Whether a request names a file that processes are to open.
pub(super) fn names_file(control: &Control) -> bool {
    match control {
        Control::Update(update) => update.log_file.is_some(),
        Control::Flush { log_file } => log_file.is_some(),
        _ => false,
    }
}
