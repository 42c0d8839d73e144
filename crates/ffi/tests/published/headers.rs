//! The names in the headers of this project, without comments.

use std::collections::BTreeSet;

use crate::support::library::headers;

/// A translation unit that includes every tracing header.
pub(crate) const ALL: &str = "#include <windows.h>\n#include <evntprov.h>\n#include <evntrace.h>\n#include <winmeta.h>\n\
    #if __has_include(<evntcons.h>)\n#include <evntcons.h>\n#endif\n#if __has_include(<tdh.h>)\n#include <tdh.h>\n#endif\n";

/// Returns every word in the headers of this project, without comments.
pub(crate) fn words() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for header in headers() {
        let text = without_comments(&std::fs::read_to_string(header).unwrap());
        words.extend(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
    }
    assert!(words.contains("EventRegister") && words.contains("TraceLoggingWrite"));
    words
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    let is_code = |line: &str| line.split_once("//").map_or(line.to_owned(), |(code, _)| code.to_owned());
    out.lines().map(is_code).collect::<Vec<_>>().join("\n")
}
