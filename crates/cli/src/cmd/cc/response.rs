//! Response files: arguments `@FILE`, which gcc and clang replace by the words in FILE.
//!
//! Words are separated by white space. Quotes, single or double, enclose a word with white space,
//! and a backslash takes the meaning from the next character, also between quotes. A word of the
//! file may be `@OTHER`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Result, bail};

/// The limit of gcc for files that name each other.
const MAX_FILES: usize = 2000;

/// Returns the arguments with the words of response files, or `None` if there are no such files. As
/// for gcc, the argument `@FILE` stays if there is no such file.
pub(super) fn expand(arguments: &[OsString]) -> Result<Option<Vec<OsString>>> {
    let mut remaining: Vec<OsString> = arguments.iter().rev().cloned().collect();
    let mut words = Vec::new();
    let mut files = 0;
    while let Some(word) = remaining.pop() {
        let Some(text) = read_response_file(&word) else {
            words.push(word);
            continue;
        };
        files += 1;
        if files > MAX_FILES {
            bail!("{} names itself, or there are more than {MAX_FILES} response files", word.display());
        }
        remaining.extend(split(&text).into_iter().rev());
    }
    Ok((files > 0).then_some(words))
}

fn read_response_file(word: &OsStr) -> Option<Vec<u8>> {
    let path = word.as_bytes().strip_prefix(b"@")?;
    std::fs::read(Path::new(OsStr::from_bytes(path))).ok()
}

fn split(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if is_space(byte) && quote.is_none() {
            words.extend(word.take().map(OsString::from_vec));
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'\\' => word.extend(bytes.next()),
            _ if quote == Some(byte) => quote = None,
            b'\'' | b'"' if quote.is_none() => quote = Some(byte),
            _ => word.push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    words
}

/// Returns the text of a response file with these arguments.
pub(super) fn join(arguments: &[OsString]) -> Vec<u8> {
    let mut text = Vec::new();
    for argument in arguments {
        if argument.is_empty() {
            text.extend(b"\"\"");
        }
        for byte in argument.as_bytes() {
            if is_space(*byte) || matches!(byte, b'\\' | b'\'' | b'"') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        text.push(b'\n');
    }
    text
}

/// Returns whether a byte separates words. Unlike Rust, C counts the vertical tab.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(OsString::from).collect()
    }

    #[test]
    fn words_are_split_as_by_gcc() {
        assert_eq!(split(b" a.o\n'b c.o'\t-DX=\"1 2\"\\ 3 \r\n"), words(&["a.o", "b c.o", "-DX=1 2 3"]));
        assert_eq!(
            split(br#"-DT=\"text\" "a'b" 'a"b' 'a\'b' a\\b"#),
            words(&["-DT=\"text\"", "a'b", "a\"b", "a'b", "a\\b"])
        );
        assert_eq!(split(b"\"\" ''"), words(&["", ""]));
        assert_eq!(split(b" \n"), words(&[]));
    }

    #[test]
    fn joined_words_are_split_into_the_same() {
        let arguments = words(&["a.o", "b c\n.o", "-DT=\"it's\\n\"", "", "@x"]);
        assert_eq!(split(&join(&arguments)), arguments);
    }

    #[test]
    fn files_are_expanded_in_place_and_recursively() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            format!("@{}", path.display())
        };
        let inner = write("inner", "b.c 'c d.c'");
        let outer = write("outer", &format!("-c {inner} e.c"));
        let expanded = expand(&words(&["-O2", &outer, "-o", "x"])).unwrap();
        assert_eq!(expanded, Some(words(&["-O2", "-c", "b.c", "c d.c", "e.c", "-o", "x"])));
        assert_eq!(expand(&words(&["-c", "@/nonexistent", "@", "a@b.c"])).unwrap(), None);
        let own = folder.path().join("own");
        let endless = write("own", &format!("@{}", own.display()));
        assert!(expand(&words(&[&endless])).unwrap_err().to_string().contains("names itself"));
    }
}
