//! The 64 outlets of this process in static memory, and the session that each serves.
//!
//! ```text
//!   free ──open──▶ open (ticket) ──remove──▶ closing ──free──▶ free
//! ```
//!
//! A writer finds an outlet by its number in any state; the outlet refuses a ticket of an earlier
//! opening. The client's lock protects [`OutletTable`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::{Outlet, Ticket};

use super::fork;
use crate::error::{Error, Result};

/// Maximum number of sessions that one process can write to.
pub(crate) const MAX_OUTLETS: usize = 64;

static TABLE: [Outlet; MAX_OUTLETS] = [const { Outlet::new() }; MAX_OUTLETS];

/// Outlets in use, changed under the client's lock. Not part of [`OutletTable`], which a forked
/// child creates anew: the child must know which outlets its parent used.
static IN_USE: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
pub(crate) fn get(outlet: u8) -> &'static Outlet {
    &TABLE[usize::from(outlet) % MAX_OUTLETS]
}

/// The owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    /// The daemon of a connection, by the connection's number.
    Peer(u64),
    /// This process, which runs the session itself.
    Private,
}

/// A session that this process writes to.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) outlet: u8,
    pub(crate) ticket: Ticket,
    pub(crate) owner: SessionOwner,
    pub(crate) session: u64,
    /// The enables of a private session, for providers registered now or later; a daemon keeps
    /// the enables of its sessions itself.
    pub(crate) enables: Vec<(Guid, EnableParams)>,
    /// Whether a private session records the modules of its providers; a daemon keeps this for its
    /// own sessions.
    pub(crate) tracks_binaries: bool,
}

/// The outlets in use and their sessions.
#[derive(Debug, Default)]
pub(crate) struct OutletTable {
    pub(crate) sessions: Vec<OpenSession>,
}

impl OutletTable {
    /// Opens a free outlet for a session.
    pub(crate) fn open<T>(
        &mut self,
        owner: SessionOwner,
        session: u64,
        open: impl FnOnce(u8, &'static Outlet) -> Result<(Ticket, T)>,
    ) -> Result<T> {
        let outlet = IN_USE.load(Ordering::Relaxed).trailing_ones() as u8;
        if usize::from(outlet) >= MAX_OUTLETS {
            return Err(Error::refused(
                Status::ERROR_NO_SYSTEM_RESOURCES,
                format!("this process writes to {MAX_OUTLETS} sessions already"),
            ));
        }
        let (ticket, result) = open(outlet, get(outlet))?;
        IN_USE.fetch_or(1 << outlet, Ordering::Relaxed);
        fork::add_own_outlet(outlet);
        self.sessions.push(OpenSession {
            outlet,
            ticket,
            owner,
            session,
            enables: Vec::new(),
            tracks_binaries: false,
        });
        Ok(result)
    }

    /// Finds the session of an owner.
    pub(crate) fn find(&mut self, owner: SessionOwner, session: u64) -> Option<&mut OpenSession> {
        self.sessions.iter_mut().find(|open| open.owner == owner && open.session == session)
    }

    /// Removes sessions and returns the bits of their outlets, which stay in use until
    /// [`free`](Self::free).
    pub(crate) fn remove(&mut self, is_ended: impl Fn(&OpenSession) -> bool) -> u64 {
        let mut bits = 0;
        self.sessions.retain(|open| {
            let is_removed = is_ended(open);
            bits |= u64::from(is_removed) << open.outlet;
            !is_removed
        });
        bits
    }

    /// Makes closed outlets available again.
    pub(crate) fn free(&mut self, outlets: u64) {
        IN_USE.fetch_and(!outlets, Ordering::Relaxed);
    }
}

/// Iterates over the numbers of the outlets in a mask.
pub(crate) fn outlet_numbers(mut outlets: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let next = (outlets != 0).then_some(outlets.trailing_zeros() as u8);
        outlets &= outlets.wrapping_sub(1);
        next
    })
}

/// Forgets the parent's sessions in a forked child whose registrations no longer name them, so that
/// their outlets can be used again.
pub(crate) fn forget_inherited_outlets() {
    // A writer that read an entry just before it was cleared is about to count a lost event, which
    // a forgotten outlet does not count. The sleep gives that writer time; `forget` waits for
    // writers that are counting already.
    std::thread::sleep(Duration::from_millis(10));
    let inherited = IN_USE.load(Ordering::Relaxed) & fork::inherited_outlets();
    for outlet in outlet_numbers(inherited) {
        get(outlet).forget();
    }
    IN_USE.fetch_and(!inherited, Ordering::Relaxed);
}
