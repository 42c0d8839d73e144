//! The parts of the service that all other parts use.

use super::access::AccessControl;
use super::info::Information;
use super::sessions::SessionTable;
use super::turn::ServiceTurn;

/// The time and effects of the current call, the connections with their rights, the sessions, and
/// the settings of the sessions and of the system.
pub(super) struct Core {
    pub(super) turn: ServiceTurn,
    pub(super) access: AccessControl,
    pub(super) sessions: SessionTable,
    pub(super) information: Information,
}
