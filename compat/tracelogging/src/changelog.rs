//! Changes are listed in `CHANGELOG.md` of Traceweir. This crate has the macros, types and methods
//! of version 1.2.4 of Microsoft's crate `tracelogging`.
