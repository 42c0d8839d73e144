//! The parts that all others use.

use super::access::AccessControl;
use super::info::Information;
use super::sessions::Sessions;
use super::turn::Turn;

/// The time and effects of the current call, the connections with their rights, the sessions, and
/// the settings of both sessions and system.
pub(super) struct Core {
    pub(super) turn: Turn,
    pub(super) access: AccessControl,
    pub(super) sessions: Sessions,
    pub(super) information: Information,
}
