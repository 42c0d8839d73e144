//! The daemon as its own controller: it starts autologgers through the same requests as any
//! controller.
//!
//! It has a link without a connection. The server passes messages to this link on to the part of
//! the daemon that made the request; the link is never closed.

use std::time::Instant;

use traceweir_format::spec::session::EVENT_TRACE_PRIVATE_IN_PROC;
use traceweir_format::spec::status::Status;
use traceweir_session::Config;
use traceweir_transport::cpu;
use traceweir_transport::message::{Role, SessionConfig};
use traceweir_transport::socket::Peer;

use super::{Client, ConsumerState, LinkId, ReplyTo, Service};
use crate::access::Identity;
use crate::error::Refusal;

/// The link of the daemon itself; connections have higher numbers.
pub(crate) const OWN: LinkId = 0;

impl Service {
    /// Adds the daemon itself as a controller.
    pub(crate) fn admit_own(&mut self) {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let peer = Peer { pid: std::process::id(), uid, gid };
        let (role, last_message) = (Some(Role::Controller), Instant::now());
        let identity = Identity::without_groups(&peer);
        let client = Client {
            peer,
            process: None,
            could_profile: false,
            identity,
            role,
            knocked: false,
            is_reserved: false,
            last_message,
            consumer_state: ConsumerState::Nothing,
        };
        self.clients.insert(OWN, client);
    }
}

/// Checks a session configuration by the rules for its requester: only an autologger may be
/// non-stoppable.
pub(super) fn check_config(reply_to: ReplyTo, config: SessionConfig) -> Result<Config, Refusal> {
    if config.log_file_mode & EVENT_TRACE_PRIVATE_IN_PROC != 0 {
        let reason = "an in-process session is started by its own process, and needs no daemon";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
    }
    let cpus = cpu::possible();
    let checked =
        if reply_to.link == OWN { Config::for_autologger(config, cpus) } else { Config::new(config, cpus) };
    Ok(checked?)
}
