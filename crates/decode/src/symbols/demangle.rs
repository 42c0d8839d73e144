//! Demangles names of Rust, C++ and Microsoft's C++.
//!
//! A short mangled name can expand to a very long text, and hostile names expand without end. So
//! names that are too long to be real stay mangled, the writer limits the output, and the demangler
//! that has no limit (Microsoft's) gets only short names with few back references.

use std::fmt::{self, Write};

use cpp_demangle::DemangleOptions;
use msvc_demangler::DemangleFlags;

/// The longest mangled name that is demangled, in bytes.
const MAX_MANGLED_BYTES: usize = 8 << 10;
/// The longest demangled name, in bytes.
const MAX_DEMANGLED_BYTES: usize = 4 << 10;
/// The longest Microsoft name in bytes: its demangler recurses one level for each letter.
const MAX_MICROSOFT_BYTES: usize = 512;
/// The most digits in a Microsoft name: each may repeat an earlier part of the name.
const MAX_MICROSOFT_DIGITS: usize = 24;

/// A text with a limited size.
struct LimitedText(String);

impl Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len().saturating_add(text.len()) > MAX_DEMANGLED_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Demangles a name; returns the name itself if it is not mangled, not valid or too long. Cuts the
/// result at 4 KiB.
#[must_use]
pub fn demangle(name: &str) -> String {
    // Linkers append a version. Compilers append a suffix to a part that they split off a function.
    let (mangled, suffix) = split_suffix(name);
    let text = demangle_rust(mangled).or_else(|| demangle_cpp(mangled)).or_else(|| demangle_microsoft(name));
    let mut text = match text {
        Some(text) if mangled.len() < name.len() && !name.starts_with('?') => text + suffix,
        Some(text) => text,
        None => name.to_owned(),
    };
    if let Some((at, _)) =
        text.char_indices().find(|(at, c)| at.saturating_add(c.len_utf8()) > MAX_DEMANGLED_BYTES)
    {
        text.truncate(at);
    }
    text
}

/// Splits a name into the mangled part and the suffix: `.cold`, `.part.0`, `.llvm.123`,
/// `@@GLIBC_2.2`.
fn split_suffix(name: &str) -> (&str, &str) {
    let is_mangled = name.starts_with("_Z") || name.starts_with("_R");
    match name.find(['.', '@']).filter(|_| is_mangled) {
        // Rust's older names, which end with `17h` and a hash, contain dots themselves.
        Some(at) if !name.contains("17h") => name.split_at(at),
        _ => (name, ""),
    }
}

fn demangle_rust(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED_BYTES {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = LimitedText(String::new());
    write!(text, "{demangled:#}").ok()?;
    Some(text.0)
}

fn demangle_cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") || name.len() > MAX_MANGLED_BYTES {
        return None;
    }
    let symbol =
        cpp_demangle::BorrowedSymbol::with_tail(name.as_bytes()).ok().filter(|(_, tail)| tail.is_empty())?.0;
    let mut text = LimitedText(String::new());
    let options = DemangleOptions::new().no_return_type();
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

fn demangle_microsoft(name: &str) -> Option<String> {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    if !name.starts_with('?')
        || !name.is_ascii()
        || name.len() > MAX_MICROSOFT_BYTES
        || digits > MAX_MICROSOFT_DIGITS
    {
        return None;
    }
    msvc_demangler::demangle(name, DemangleFlags::NAME_ONLY).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled() {
        for (mangled, text) in [
            ("main", "main"),
            ("_ZN4shop4Cart3addEib", "shop::Cart::add(int, bool)"),
            ("_ZN4shop4Cart3addEib.cold", "shop::Cart::add(int, bool).cold"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("?add@Cart@shop@@QEAAXH@Z", "shop::Cart::add"),
            ("_Znonsense", "_Znonsense"),
            ("_Z", "_Z"),
            ("?", "?"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), text, "{mangled}");
        }
    }

    #[test]
    fn demangled_names_are_bounded() {
        // Each template argument is twice as long as the one before.
        let mut bomb = String::from("_Z1fI1aS_S_E");
        for at in 0..30 {
            let _ = write!(bomb, "1gIS{at}_S{at}_E");
        }
        let deep = format!("_Z1f{}i", "P".repeat(8000));
        let long = format!("?x@@3{}H", "PEA".repeat(100_000));
        let exponential = format!("?f@@YAX{}@Z", "P6AX0000@Z".repeat(60));
        let rust = format!("_RNvC1a{}", "_".repeat(8000));
        for name in [bomb, deep, long, exponential, rust, "é".repeat(9000)] {
            assert!(demangle(&name).len() <= MAX_DEMANGLED_BYTES);
        }
    }
}
