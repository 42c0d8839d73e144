//! Which of several descriptions of one event is believed.

/// Where a manifest schema came from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    InTrace,
    Embedded,
    Tracked,
    Given(Standing),
}

/// In which order manifests from outside the trace are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The program named it.
    #[default]
    Named,
    /// It is installed on the machine.
    Installed,
    /// It was found in a program's file.
    Binary,
}

/// One version of an event in one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) version: u8,
    pub(super) rank: Rank,
    pub(super) known: u32,
}

/// The best schema for a version: the same, else the next lower one, else the next higher one; then by source.
pub(super) fn choose(list: &[Candidate], version: u8) -> Option<u32> {
    let best = list.iter().min_by_key(|c| {
        let distance = match c.version.cmp(&version) {
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Less => (1, version.abs_diff(c.version)),
            std::cmp::Ordering::Greater => (2, c.version.abs_diff(version)),
        };
        (distance, c.rank)
    });
    best.map(|c| c.known)
}
