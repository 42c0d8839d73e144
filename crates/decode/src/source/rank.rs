//! Decides which of several descriptions of one event applies.

/// The source of a schema that is found by provider, id and version; best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceRank {
    /// A manifest in the trace.
    InTrace,
    /// A schema that a merge embedded in the trace.
    Embedded,
    /// A manifest in a program that the trace names.
    Tracked,
    /// A manifest from outside the trace.
    External(Precedence),
    /// A built-in schema, which is used only if no other source describes the event.
    WellKnown,
}

/// The precedence of manifests from outside the trace, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// The calling program loaded the manifest.
    #[default]
    Loaded,
    /// The manifest is installed on the machine.
    Installed,
    /// The manifest was found in a program's file.
    Binary,
}

/// One version of an event in one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaCandidate {
    pub(super) version: u8,
    pub(super) rank: SourceRank,
    /// The index of the schema in the decoder.
    pub(super) schema: u32,
}

/// Returns the best schema for a version: the same version, else the next lower one, else the next
/// higher one; of several sources with that version, the best.
pub(super) fn choose_schema(list: &[SchemaCandidate], version: u8) -> Option<u32> {
    let best = list.iter().min_by_key(|c| {
        let distance = match c.version.cmp(&version) {
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Less => (1, version.abs_diff(c.version)),
            std::cmp::Ordering::Greater => (2, c.version.abs_diff(version)),
        };
        (distance, c.rank)
    });
    best.map(|c| c.schema)
}
