//! How links end: queued messages are sent as far as the client reads them; a link whose client
//! misses a deadline is dropped.
//!
//! ```text
//!   close ─▶ reads no more ──all was sent, or LINK_TIMEOUT──▶ drop_link ─▶ the service is notified
//!   expect_within ─▶ a deadline for the client's next step (`ClientLink::expires`), else drop_link
//! ```

use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::link::ClientLink;
use super::{FLUSH_TIMEOUT, LINK_TIMEOUT, Server};
use crate::ids::LinkId;

impl Server {
    pub(super) fn flush_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_alive = link.flush() && link.watch(&self.epoll, id).is_ok();
        if !is_alive || link.is_finished() {
            return self.drop_link(id);
        }
        self.mark_relieved(id);
    }

    /// Stops reading from a link; drops it when all was sent, or after a timeout.
    pub(super) fn close_link(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.close();
            self.expect_within(id, Some(LINK_TIMEOUT));
            self.flush_link(id);
        }
    }

    pub(super) fn drop_link(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        // The janitor may keep the socket open for a while; epoll must not report it any more.
        let _ = epoll::delete(&self.epoll, &link);
        if let Some(at) = link.expires {
            self.expiries.remove(&(at, id));
        }
        self.service.remove_connection(id, Instant::now());
    }

    /// Sets or removes the deadline of a link; a closed link keeps its deadline.
    pub(super) fn expect_within(&mut self, id: LinkId, within: Option<Duration>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if within.is_none() && link.is_closing() {
            return;
        }
        let deadline = within.map(|within| Instant::now() + within);
        if let Some(old_deadline) = std::mem::replace(&mut link.expires, deadline) {
            self.expiries.remove(&(old_deadline, id));
        }
        if let Some(deadline) = deadline {
            self.expiries.insert((deadline, id));
        }
    }

    /// Sends queued messages until clients have read them all, at most for [`FLUSH_TIMEOUT`].
    pub(super) fn flush_all(&mut self) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        while self.links.values().any(ClientLink::has_queued) && Instant::now() < until {
            let ids: Vec<LinkId> =
                self.links.iter().filter(|(_, link)| link.has_queued()).map(|(id, _)| *id).collect();
            for id in ids {
                self.flush_link(id);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
