//! Numbers that identify connections and requests.

/// The number of a connection; it is never reused.
pub(crate) type LinkId = u64;

/// The connection and request that a reply goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) link: LinkId,
    pub(crate) request: u32,
}
