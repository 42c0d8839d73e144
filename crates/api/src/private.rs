//! Private sessions, which run inside the traced process.
//!
//! ```text
//!   Provider::write ──▶ outlet ──▶ region in this process's own memory
//!                                    └──▶ session (two threads of this process) ──▶ file
//! ```
//!
//! The write path, rings and engine are the same as with a daemon, but need no daemon: no root, no
//! socket, no configuration. A private session sees only the events of its own process.
//!
//! 1. The file is finalised by [`stop`](PrivateSession::stop), on drop, or at the exit of the
//!    process, whichever comes first. After `abort` or SIGKILL it is valid up to its last flushed
//!    buffer, and `weir repair` finalises it.
//! 2. A forked child cannot use its parent's private sessions: calls on them fail, dropping them
//!    does nothing.
//! 3. There is no real-time delivery and no provider groups, as documented for private loggers.

pub(crate) use crate::client::private::unsupported_class_error;
pub use crate::client::private::{MAX_PRIVATE, MAX_PRIVATE_FROM_OUTSIDE, PrivateSession};
