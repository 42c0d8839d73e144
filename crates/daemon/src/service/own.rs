//! The daemon as its own controller: autologgers are asked for like any other session.
//!
//! It has a link without a connection. What is sent to it the server hands to whoever asked; it is never closed.

use std::time::Instant;

use traceweir_format::spec::session::EVENT_TRACE_PRIVATE_IN_PROC;
use traceweir_format::spec::status::Status;
use traceweir_session::Config;
use traceweir_transport::cpu;
use traceweir_transport::message::{Role, SessionConfig};
use traceweir_transport::socket::Peer;

use super::{Asker, Client, LinkId, Reads, Service};
use crate::access::Identity;
use crate::error::Refusal;

/// The link of the daemon itself; connections have higher numbers.
pub(crate) const OWN: LinkId = 0;

impl Service {
    /// Lets the daemon itself ask for sessions.
    pub(crate) fn admit_own(&mut self) {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let peer = Peer { pid: std::process::id(), uid, gid };
        let (role, spoke) = (Some(Role::Controller), Instant::now());
        let identity = Identity::alone(&peer);
        let client = Client {
            peer,
            process: None,
            could_profile: false,
            identity,
            role,
            knocked: false,
            is_reserved: false,
            spoke,
            reads: Reads::Nothing,
        };
        self.clients.insert(OWN, client);
    }
}

/// A configuration, judged by the rules for whoever asks: an autologger may be one that nobody can stop.
pub(super) fn checked(asker: Asker, config: SessionConfig) -> Result<Config, Refusal> {
    if config.log_file_mode & EVENT_TRACE_PRIVATE_IN_PROC != 0 {
        let why = "an in-process session is started by its own process, and needs no daemon";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, why));
    }
    let cpus = cpu::possible();
    let checked =
        if asker.link == OWN { Config::for_autologger(config, cpus) } else { Config::new(config, cpus) };
    Ok(checked?)
}
