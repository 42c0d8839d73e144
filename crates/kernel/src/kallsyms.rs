//! Addresses of functions of the kernel, by name.
//!
//! ```text
//!   /proc/kallsyms   ffffffff81374e30 T __x64_sys_getppid          address, kind, name; all zeros where the system hides them
//! ```
//!
//! 1. Read once by a process, when the first session wants something of it; only what families ask for is kept: entries of system calls and routines of interrupts.
//! 2. 0 is "not known": hidden, not there, or a name that several functions have. 3. Functions of modules are none of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::OnceLock;

use crate::family::{interrupt, syscall};

const PATH: &str = "/proc/kallsyms";
/// Tables are some megabytes.
const MAX_BYTES: u64 = 128 << 20;

/// Reads the table if nobody has: it takes a tenth of a second.
pub(crate) fn read_once() -> &'static HashMap<Box<str>, u64> {
    static TABLE: OnceLock<HashMap<Box<str>, u64>> = OnceLock::new();
    TABLE.get_or_init(|| match File::open(PATH) {
        Ok(file) => read(BufReader::with_capacity(64 << 10, file.take(MAX_BYTES))),
        Err(_) => HashMap::new(),
    })
}

/// The address of a function; 0 where it is not known.
pub(crate) fn address(name: &str) -> u64 {
    read_once().get(name).copied().unwrap_or(0)
}

/// Keeps what is wanted of a table. A line that cannot be read ends it.
fn read(mut text: impl BufRead) -> HashMap<Box<str>, u64> {
    let mut kept = HashMap::new();
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(parse) {
            let once = kept.entry(Box::from(name)).or_insert(address);
            if *once != address {
                *once = 0;
            }
        }
        line.clear();
    }
    kept
}

/// Address and name of a function that is wanted.
fn parse(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let is_wanted = syscall::is_entry(name) || interrupt::is_routine(name);
    if !is_wanted || !matches!(kind, "t" | "T") || words.next().is_some() {
        return None;
    }
    u64::from_str_radix(address, 16).ok().filter(|it| *it != 0).map(|address| (address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_known_and_unique_is_kept() {
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
        assert_eq!(table.get("tasklet_action"), Some(&0), "two of a name");
        assert_eq!(table.len(), 3);
    }
}
