//! How links end: what is queued is sent, as far as it is taken; who is silent for too long is dropped.
//!
//! ```text
//!   close ─▶ reads no more ──all was sent, or PATIENCE──▶ drop_link ─▶ the service is told
//!   expect ─▶ a time in which something must happen, or drop_link
//! ```

use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::link::Link;
use super::{FLUSH_WITHIN, PATIENCE, Server};
use crate::service::LinkId;

impl Server {
    pub(super) fn flush(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let alive = link.flush() && link.watch(&self.epoll, id).is_ok();
        if !alive || link.is_over() {
            return self.drop_link(id);
        }
        self.note_relieved(id);
    }

    /// Reads no more from a link; drops it when all was sent, or after a while.
    pub(super) fn close(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.close();
            self.expect(id, Some(PATIENCE));
            self.flush(id);
        }
    }

    pub(super) fn drop_link(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        // The janitor may keep it open for a while: nobody is to hear of it.
        let _ = epoll::delete(&self.epoll, &link);
        if let Some(at) = link.expires {
            self.expiries.remove(&(at, id));
        }
        self.service.disconnected(id);
    }

    /// Sets the time in which something must happen to a link that is new or closed.
    pub(super) fn expect(&mut self, id: LinkId, within: Option<Duration>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if within.is_none() && link.is_closing() {
            return;
        }
        let at = within.map(|within| Instant::now() + within);
        if let Some(before) = std::mem::replace(&mut link.expires, at) {
            self.expiries.remove(&(before, id));
        }
        if let Some(at) = at {
            self.expiries.insert((at, id));
        }
    }

    /// Gives clients a moment to take the last answers.
    pub(super) fn flush_all(&mut self) {
        let until = Instant::now() + FLUSH_WITHIN;
        while self.links.values().any(Link::has_queued) && Instant::now() < until {
            let ids: Vec<LinkId> =
                self.links.iter().filter(|(_, link)| link.has_queued()).map(|(id, _)| *id).collect();
            for id in ids {
                self.flush(id);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
