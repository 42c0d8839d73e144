//! Checks that generated code has the intended structure: names and texts of a manifest stay inside
//! literals, comments and identifiers.

use proc_macro2::{TokenStream, TokenTree};

/// Checks a Rust module: it parses to tokens, and its top level has as many modules as the manifest
/// has providers, one static, and no function, `impl`, `use` or macro.
pub fn check_rust(text: &str, providers: usize) {
    let tokens: TokenStream =
        text.parse().unwrap_or_else(|e| panic!("the module has no valid tokens: {e}\n{text}"));
    let words: Vec<String> = tokens
        .into_iter()
        .filter_map(|token| if let TokenTree::Ident(word) = token { Some(word.to_string()) } else { None })
        .collect();
    let count = |item: &str| words.iter().filter(|word| *word == item).count();
    assert_eq!(count("mod"), providers, "wrong number of modules: {words:?}");
    assert_eq!(count("static"), 1, "wrong number of statics: {words:?}");
    assert!(
        ["fn", "impl", "use", "macro_rules"].iter().all(|item| count(item) == 0),
        "an item is not allowed here: {words:?}"
    );
}

/// Checks a C file: comments end on their line, every directive is one that the generator writes,
/// and the rest is plain text with balanced braces.
pub fn check_c(text: &str) {
    let mut depth = 0_i64;
    for line in text.lines() {
        let code = strip_comments(line);
        assert!(code.bytes().all(|b| b.is_ascii_graphic() || b == b' '), "code is not plain ASCII: {line}");
        assert!(!code.ends_with('\\') && !code.contains("??"), "a continued line or a trigraph: {line}");
        if let Some(directive) = code.trim_start().strip_prefix('#') {
            let directives = ["include", "ifdef", "ifndef", "define", "endif", "if "];
            assert!(directives.iter().any(|word| directive.starts_with(word)), "a foreign directive: {line}");
        }
        let count =
            |brace: char| i64::try_from(code.matches(brace).count()).expect("the count of braces fits");
        depth += count('{') - count('}');
        assert!(depth >= 0, "a closing brace without an opening brace: {line}");
    }
    assert_eq!(depth, 0, "a brace is not closed");
}

/// Returns the part of a line outside of comments, which must end on the same line.
fn strip_comments(line: &str) -> String {
    let mut code = String::new();
    let mut remaining = line;
    while let Some((before, comment)) = remaining.split_once("/*") {
        code.push_str(before);
        remaining = comment
            .split_once("*/")
            .unwrap_or_else(|| panic!("the comment does not end on its line: {line}"))
            .1;
    }
    code + remaining
}
