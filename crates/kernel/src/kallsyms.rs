//! Addresses of kernel functions, by name.
//!
//! ```text
//!   /proc/kallsyms   ffffffff81374e30 T __x64_sys_getppid     address, kind, name
//!                                                             (address 0 if the system hides it)
//! ```
//!
//! 1. The process reads the table once, when the first session needs it, and keeps only the
//!    functions that families use.
//! 2. Address 0 means "unknown": hidden, missing, or a name shared by several functions.
//! 3. Functions of modules are skipped.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::OnceLock;

const PATH: &str = "/proc/kallsyms";
/// Upper bound for the size of the table, which takes a few megabytes.
const MAX_TABLE_BYTES: u64 = 128 << 20;

static ADDRESSES: OnceLock<HashMap<Box<str>, u64>> = OnceLock::new();

/// Reads the functions that `is_needed` selects. Only the first call reads the table, which takes a
/// tenth of a second; all calls must select the same functions.
pub(crate) fn read_once(is_needed: impl Fn(&str) -> bool) {
    ADDRESSES.get_or_init(|| match File::open(PATH) {
        Ok(file) => read_table(BufReader::with_capacity(64 << 10, file.take(MAX_TABLE_BYTES)), is_needed),
        Err(_) => HashMap::new(),
    });
}

/// Returns the address of a function, or 0 if it is unknown or the table has not been read.
pub(crate) fn find_address(name: &str) -> u64 {
    ADDRESSES.get().and_then(|table| table.get(name)).copied().unwrap_or(0)
}

/// Reads the needed entries of a table, up to the first line that fails to read.
fn read_table(mut text: impl BufRead, is_needed: impl Fn(&str) -> bool) -> HashMap<Box<str>, u64> {
    let mut addresses = HashMap::new();
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let entry = std::str::from_utf8(&line).ok().and_then(parse_line);
        if let Some((address, name)) = entry.filter(|(_, name)| is_needed(name)) {
            let unique = addresses.entry(Box::from(name)).or_insert(address);
            if *unique != address {
                *unique = 0;
            }
        }
        line.clear();
    }
    addresses
}

/// Parses a line. Returns the address and name of a function of the kernel itself.
fn parse_line(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    if !matches!(kind, "t" | "T") || words.next().is_some() {
        return None;
    }
    let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
    Some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_needed_known_and_unique_functions_are_kept() {
        let text = "ffffffff81374e30 T __x64_sys_getppid\nffffffff81374e40 T __pfx_other\n\
            0000000000000000 T __x64_sys_read\nffffffffc0000000 t net_rx_action\t[module]\n\
            ffffffff81000010 t net_rx_action\nffffffff81000020 t tasklet_action\n\
            ffffffff81000030 t tasklet_action\nffffffff81000040 D __x64_sys_write\nnonsense\n\u{fffd}";
        let is_needed = |name: &str| name.starts_with("__x64_sys_") || name.ends_with("_action");
        let table = read_table(text.as_bytes(), is_needed);
        assert_eq!(table.get("__x64_sys_getppid"), Some(&0xffff_ffff_8137_4e30));
        assert_eq!(table.get("net_rx_action"), Some(&0xffff_ffff_8100_0010));
        assert_eq!(table.get("tasklet_action"), Some(&0), "a shared name has an address");
        assert_eq!(table.len(), 3);
    }
}
