//! Addresses of kernel functions, by name.
//!
//! ```text
//!   /proc/kallsyms   ffffffff81374e30 T __x64_sys_getppid     address, kind, name
//!                                                             (address 0 if the system hides it)
//! ```
//!
//! 1. The process reads the table once, when the first session needs it, and keeps only what
//!    families use: system call entries and interrupt routines.
//! 2. Address 0 means "unknown": hidden, missing, or a name shared by several functions.
//! 3. Functions of modules are skipped.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::OnceLock;

use crate::family::{interrupt, syscall};

const PATH: &str = "/proc/kallsyms";
/// Upper bound for the size of the table, which has some megabytes.
const MAX_BYTES: u64 = 128 << 20;

/// Returns the table. The first call reads it, which takes a tenth of a second.
pub(crate) fn read_once() -> &'static HashMap<Box<str>, u64> {
    static TABLE: OnceLock<HashMap<Box<str>, u64>> = OnceLock::new();
    TABLE.get_or_init(|| match File::open(PATH) {
        Ok(file) => read(BufReader::with_capacity(64 << 10, file.take(MAX_BYTES))),
        Err(_) => HashMap::new(),
    })
}

/// Returns the address of a function, or 0 if it is unknown.
pub(crate) fn address(name: &str) -> u64 {
    read_once().get(name).copied().unwrap_or(0)
}

/// Reads the needed entries of a table, up to the first line that fails to read.
fn read(mut text: impl BufRead) -> HashMap<Box<str>, u64> {
    let mut kept = HashMap::new();
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(parse) {
            let unique = kept.entry(Box::from(name)).or_insert(address);
            if *unique != address {
                *unique = 0;
            }
        }
        line.clear();
    }
    kept
}

/// Parses a line. Returns the address and name if the function is needed.
fn parse(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let is_wanted = syscall::is_entry(name) || interrupt::is_routine(name);
    if !is_wanted || !matches!(kind, "t" | "T") || words.next().is_some() {
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
        let entry = |name: &str| format!("{}{name}", syscall::PREFIX);
        let text = format!(
            "ffffffff81374e30 T {}\nffffffff81374e40 T __pfx_other\n0000000000000000 T {}\nffffffffc0000000 t net_rx_action\t[module]\n\
             ffffffff81000010 t net_rx_action\nffffffff81000020 t tasklet_action\nffffffff81000030 t tasklet_action\n\
             ffffffff81000040 D {}\nnonsense\n\u{fffd}",
            entry("getppid"),
            entry("read"),
            entry("write"),
        );
        let table = read(text.as_bytes());
        assert_eq!(table.get(&*entry("getppid")), Some(&0xffff_ffff_8137_4e30));
        assert_eq!(table.get("net_rx_action"), Some(&0xffff_ffff_8100_0010));
        assert_eq!(table.get("tasklet_action"), Some(&0), "a name shared by two functions");
        assert_eq!(table.len(), 3);
    }
}
