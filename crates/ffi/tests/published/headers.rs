//! The headers of this project: a source that includes them, and their words outside of comments.

use std::collections::BTreeSet;

use crate::support::library::list_headers;

/// The beginning of a C source: includes the headers of the C API, without those of TraceLogging.
pub(crate) const INCLUDE_ALL: &str = "#include <windows.h>\n#include <evntprov.h>\n#include <evntrace.h>\n#include <winmeta.h>\n\
    #if __has_include(<evntcons.h>)\n#include <evntcons.h>\n#endif\n#if __has_include(<tdh.h>)\n#include <tdh.h>\n#endif\n";

/// Returns every word in the headers of this project, except the words of comments.
pub(crate) fn collect_words() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for header in list_headers() {
        let text = strip_comments(&std::fs::read_to_string(header).unwrap());
        words.extend(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
    }
    assert!(words.contains("EventRegister") && words.contains("TraceLoggingWrite"));
    words
}

fn strip_comments(text: &str) -> String {
    let mut remaining = text;
    let mut out = String::with_capacity(text.len());
    while let Some((before, comment)) = remaining.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        remaining = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(remaining);
    let strip_line_comment =
        |line: &str| line.split_once("//").map_or(line.to_owned(), |(code, _)| code.to_owned());
    out.lines().map(strip_line_comment).collect::<Vec<_>>().join("\n")
}
