//! Changes are listed in `CHANGELOG.md` of Traceweir. The names are those of version 1.2.4 of
//! Microsoft's crate.
