//! What changed: see `CHANGELOG.md` of Traceweir. The names are those of version 1.2.4 of the original.
