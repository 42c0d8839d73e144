//! The command line as one text, which programs split themselves, and memory by the names of old
//! versions of Windows.
//!
//! Linux passes a list of arguments. [`GetCommandLineW`] joins them with the quotes that
//! [`CommandLineToArgvW`] and the C libraries of Windows remove again.

use std::ffi::{OsStr, OsString, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use traceweir::Status;

use crate::format_message::{LocalFree, TEXTS};
use crate::text::{MAX_PATH_UNITS, TextUnit};
use crate::{boundary, last_error, ptr};

/// Appends an argument: in quotes if it is empty or has spaces or quotes. A backslash is doubled
/// only if a quote follows the backslashes.
fn push_argument(argument: &[u8], line: &mut Vec<u8>) {
    let needs_quotes =
        argument.is_empty() || argument.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'"'));
    if !needs_quotes {
        line.extend_from_slice(argument);
        return;
    }
    line.push(b'"');
    let mut backslashes = 0_usize;
    for &byte in argument {
        if byte == b'"' {
            line.extend(std::iter::repeat_n(b'\\', backslashes.saturating_add(1)));
        }
        backslashes = if byte == b'\\' { backslashes.saturating_add(1) } else { 0 };
        line.push(byte);
    }
    line.extend(std::iter::repeat_n(b'\\', backslashes));
    line.push(b'"');
}

/// Returns the command line of this process.
fn join_arguments() -> OsString {
    // The arguments that std has are missing in a library that musl loads.
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(&arguments);
    let mut line = Vec::new();
    for (index, argument) in arguments.split(|byte| *byte == 0).enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        push_argument(argument, &mut line);
    }
    OsString::from_vec(line)
}

fn encode_with_terminator<U: TextUnit>(text: &OsStr) -> Vec<U> {
    let mut units = U::encode(text);
    units.push(U::default());
    units
}

/// Returns the command line of this process. The caller must not change or free it.
#[unsafe(no_mangle)]
pub extern "C" fn GetCommandLineW() -> *const u16 {
    static LINE: OnceLock<Vec<u16>> = OnceLock::new();
    boundary::catch_panic(std::ptr::null(), || {
        LINE.get_or_init(|| encode_with_terminator(&join_arguments())).as_ptr()
    })
}

/// Like [`GetCommandLineW`], in UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn GetCommandLineA() -> *const u8 {
    static LINE: OnceLock<Vec<u8>> = OnceLock::new();
    boundary::catch_panic(std::ptr::null(), || {
        LINE.get_or_init(|| encode_with_terminator(&join_arguments())).as_ptr()
    })
}

const SPACE: u16 = b' ' as u16;
const TAB: u16 = b'\t' as u16;
const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;

/// Splits a command line as documented for CommandLineToArgvW. In the name of the program, which is
/// first, backslashes have no special meaning, and a quote only starts or ends the name.
fn split_command_line(line: &[u16]) -> Vec<Vec<u16>> {
    let is_space = |unit: u16| matches!(unit, SPACE | TAB);
    let (program, mut rest) = match line.split_first() {
        Some((&QUOTE, quoted)) => {
            let end = quoted.iter().position(|unit| *unit == QUOTE).unwrap_or(quoted.len());
            (quoted.get(..end), quoted.get(end.saturating_add(1)..))
        }
        _ => {
            let end = line.iter().position(|unit| is_space(*unit)).unwrap_or(line.len());
            (line.get(..end), line.get(end..))
        }
    };
    let mut arguments = vec![program.unwrap_or_default().to_vec()];
    let mut units = rest.take().unwrap_or_default().iter().copied().peekable();
    loop {
        while units.next_if(|unit| is_space(*unit)).is_some() {}
        if units.peek().is_none() {
            return arguments;
        }
        let (mut argument, mut is_quoted, mut backslashes) = (Vec::new(), false, 0_usize);
        while let Some(unit) = units.next_if(|unit| is_quoted || !is_space(*unit)) {
            if unit == BACKSLASH {
                backslashes = backslashes.saturating_add(1);
                argument.push(unit);
                continue;
            }
            if unit == QUOTE {
                // Half of the backslashes remain; an odd one makes the quote part of the text.
                argument.truncate(argument.len().saturating_sub(backslashes.div_ceil(2)));
                if backslashes % 2 == 1 {
                    argument.push(unit);
                } else if is_quoted && units.next_if_eq(&QUOTE).is_some() {
                    // Two quotes in quoted text are one that is part of the text.
                    argument.push(unit);
                } else {
                    is_quoted = !is_quoted;
                }
            } else {
                argument.push(unit);
            }
            backslashes = 0;
        }
        arguments.push(argument);
    }
}

/// Splits a command line into arguments. Returns an array of texts, in memory for LocalFree, and
/// stores their number. An empty command line has one argument, the path of the program. On failure
/// it returns NULL and sets the last error.
///
/// # Safety
///
/// `line` is NULL or has a terminator; `count` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CommandLineToArgvW(line: *const u16, count: *mut i32) -> *mut *mut u16 {
    let split = boundary::catch_panic(Err(Status::ERROR_NOACCESS), || {
        if line.is_null() || count.is_null() {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // The longest command line of Linux has several MiB.
        const MAX_UNITS: usize = 256 * MAX_PATH_UNITS;
        // SAFETY: `line` is not NULL, so the caller guarantees a terminator.
        let units = unsafe { ptr::read_text(line, MAX_UNITS) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        let arguments = if units.is_empty() {
            let program = std::env::current_exe().map_err(|_| Status::ERROR_FILE_NOT_FOUND)?;
            vec![u16::encode(program.as_os_str())]
        } else {
            split_command_line(&units)
        };
        // SAFETY: `count` is not NULL, so it can be written.
        unsafe { write_arguments(&arguments, count) }
    });
    split.unwrap_or_else(|status| {
        last_error::set(status);
        std::ptr::null_mut()
    })
}

/// Allocates an array of texts: the addresses, a NULL, and then the texts.
///
/// # Safety
///
/// `count` can be written.
unsafe fn write_arguments(arguments: &[Vec<u16>], count: *mut i32) -> Result<*mut *mut u16, Status> {
    let number = i32::try_from(arguments.len()).map_err(|_| Status::ERROR_NOT_ENOUGH_MEMORY)?;
    let addresses_bytes = arguments.len().saturating_add(1).saturating_mul(size_of::<*mut u16>());
    let units: usize = arguments.iter().map(|argument| argument.len().saturating_add(1)).sum();
    let bytes = addresses_bytes.saturating_add(units.saturating_mul(size_of::<u16>()));
    let memory = TEXTS.allocate(bytes).ok_or(Status::ERROR_NOT_ENOUGH_MEMORY)?;
    let addresses: *mut *mut u16 = memory.cast();
    let mut text: *mut u16 = memory.wrapping_byte_add(addresses_bytes).cast();
    for (index, argument) in arguments.iter().enumerate() {
        // SAFETY: the memory has room for all addresses and texts, each with a unit more, which
        // stays 0.
        unsafe { ptr::store(addresses.wrapping_add(index), text) };
        for unit in argument {
            // SAFETY: see above.
            unsafe { ptr::store(text, *unit) };
            text = text.wrapping_add(1);
        }
        text = text.wrapping_add(1);
    }
    // SAFETY: the caller passes a writable `count`.
    unsafe { ptr::store(count, number) };
    Ok(addresses)
}

/// Allocates zeroed memory for LocalFree. The flags have no effect: memory never moves, so its
/// handle is its address.
#[unsafe(no_mangle)]
pub extern "C" fn LocalAlloc(_flags: u32, bytes: usize) -> *mut c_void {
    boundary::catch_panic(std::ptr::null_mut(), || {
        TEXTS.allocate(bytes).unwrap_or_else(|| {
            last_error::set(Status::ERROR_NOT_ENOUGH_MEMORY);
            std::ptr::null_mut()
        })
    })
}

/// The same as [`LocalAlloc`].
#[unsafe(no_mangle)]
pub extern "C" fn GlobalAlloc(flags: u32, bytes: usize) -> *mut c_void {
    LocalAlloc(flags, bytes)
}

/// The same as [`LocalFree`].
#[unsafe(no_mangle)]
pub extern "C" fn GlobalFree(memory: *mut c_void) -> *mut c_void {
    LocalFree(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        let units: Vec<u16> = line.encode_utf16().collect();
        split_command_line(&units).iter().map(|argument| String::from_utf16(argument).unwrap()).collect()
    }

    #[test]
    fn command_line_is_split_by_the_documented_rules() {
        assert_eq!(split(r#"app "abc" d e"#), ["app", "abc", "d", "e"]);
        assert_eq!(split(r#"app a\\b d"e f"g h"#), ["app", r"a\\b", "de fg", "h"]);
        assert_eq!(split(r#"app a\\\"b c d"#), ["app", r#"a\"b"#, "c", "d"]);
        assert_eq!(split(r#"app a\\\\"b c" d e"#), ["app", r"a\\b c", "d", "e"]);
        assert_eq!(split(r#""C:\my app\x.exe" 	 -f ""  "#), [r"C:\my app\x.exe", "-f", ""]);
        assert_eq!(split(r#"app "a""b" "open end"#), ["app", r#"a"b"#, "open end"]);
        assert_eq!(split(" x"), ["", "x"]);
    }

    #[test]
    fn joined_arguments_split_into_the_same() {
        let arguments =
            ["app", "", "a b", r#"say "x""#, r"C:\dir\", r"C:\my dir\\", r#"\"#, "tab\there", "ü"];
        let mut line = Vec::new();
        for argument in arguments {
            push_argument(argument.as_bytes(), &mut line);
            line.push(b' ');
        }
        assert_eq!(split(std::str::from_utf8(&line).unwrap()), arguments);
    }
}
