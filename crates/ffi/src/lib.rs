//! `libtraceweir`: the published C interface, one file for each of its headers.
