//! What our headers have: the names in them, comments left aside.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::here;

/// A unit that includes every header of tracing.
pub(crate) const ALL: &str = "#include <windows.h>\n#include <evntprov.h>\n#include <evntrace.h>\n#include <winmeta.h>\n\
    #if __has_include(<evntcons.h>)\n#include <evntcons.h>\n#endif\n#if __has_include(<tdh.h>)\n#include <tdh.h>\n#endif\n";

/// Every word in the text of our headers.
pub(crate) fn words() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut folders = vec![here("include")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = without_comments(&std::fs::read_to_string(&path).unwrap());
                words.extend(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
            }
        }
    }
    assert!(words.contains("EventRegister") && words.contains("TraceLoggingWrite"));
    words
}

/// What a folder holds, in the order of names.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
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
