//! Reads text lists of symbols: of a running kernel, of a kernel build, and of code that a program
//! generated at run time.
//!
//! ```text
//!   /proc/kallsyms  ffffffffa1000000 T _stext                   address, kind, name
//!                   ffffffffc0a01000 t ext4_read    [ext4]      with the module of the symbol
//!   System.map      ffffffff81000000 T _stext
//!   perf-PID.map    7f12a0001000 40 LazyCompile:~work app.js:3  address, size, rest is the name
//! ```
//!
//! Addresses are hexadecimal. Other lines are skipped.

use std::io::{self, BufRead, BufReader, Read};

use super::table::{MAX_NAME_BYTES, MAX_SYMBOLS, SymbolRank, SymbolTable};

/// The most bytes of a list that are read.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// Reads the code symbols of a kernel from `/proc/kallsyms` or `System.map`. The kernel shows all
/// addresses as 0 to readers without permission.
pub fn read_kernel_symbols(from: impl Read) -> io::Result<SymbolTable> {
    read_lines(from, |line, table| {
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let (address, kind, name) = (parse_hex(words.next()?)?, words.next()?, words.next()?);
        let rank = match kind {
            b"T" => SymbolRank::Global,
            b"t" => SymbolRank::Local,
            b"W" | b"w" => SymbolRank::Weak,
            _ => return None,
        };
        let module = words.next().and_then(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"));
        let module = module.map(String::from_utf8_lossy);
        table.push_in_group(address, 0, name, rank, module.as_deref());
        Some(())
    })
}

/// Reads the functions that a program generated at run time, from the perf map that it wrote.
pub fn read_perf_map(from: impl Read) -> io::Result<SymbolTable> {
    read_lines(from, |line, table| {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (start, size, name) = (parse_hex(parts.next()?)?, parse_hex(parts.next()?)?, parts.next()?);
        table.push(start, size, name.trim_ascii(), SymbolRank::Global);
        Some(())
    })
}

/// Passes each line to `parse_line`.
fn read_lines(
    from: impl Read,
    parse_line: impl Fn(&[u8], &mut SymbolTable) -> Option<()>,
) -> io::Result<SymbolTable> {
    let mut from = BufReader::new(from.take(MAX_LIST_BYTES));
    let mut table = SymbolTable::default();
    let mut line = Vec::new();
    while table.len() < MAX_SYMBOLS {
        line.clear();
        // A line that is longer than `max_line_bytes` is read as several lines.
        let max_line_bytes = u64::try_from(MAX_NAME_BYTES).unwrap_or(u64::MAX);
        if (&mut from).take(max_line_bytes).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        parse_line(line.trim_ascii_end(), &mut table);
    }
    if table.len() >= MAX_SYMBOLS || from.get_ref().limit() == 0 {
        table.mark_cut();
    }
    table.finish();
    Ok(table)
}

fn parse_hex(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").unwrap_or(word);
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_list_has_code_of_kernel_and_modules() {
        let list = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 t do_work\n\
                    ffffffff81000180 D data\nffffffff81000200 W weak\nnonsense\n\nffffffffc0001000 t ext4_read\t[ext4]\n";
        let table = read_kernel_symbols(list.as_bytes()).unwrap();
        let symbol = |address| {
            let symbol = table.lookup(address).unwrap();
            (symbol.text().into_owned(), address - symbol.start, symbol.group.map(ToString::to_string))
        };
        assert_eq!(symbol(0xFFFF_FFFF_8100_0010), ("_text".into(), 0x10, None));
        assert_eq!(symbol(0xFFFF_FFFF_8100_0190), ("do_work".into(), 0x90, None));
        assert_eq!(symbol(0xFFFF_FFFF_C000_1004), ("ext4_read".into(), 4, Some("ext4".into())));
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn perf_map_names_may_contain_blanks() {
        let list = "7f0000001000 40 Interpreter: do it()\n0x7f0000001040 10 stub\n7f x y\n7f0000002000 20\n";
        let table = read_perf_map(list.as_bytes()).unwrap();
        assert_eq!(table.lookup(0x7F00_0000_103F).unwrap().text(), "Interpreter: do it()");
        assert_eq!(table.lookup(0x7F00_0000_1040).unwrap().text(), "stub");
        assert_eq!((table.lookup(0x7F00_0000_1050), table.len()), (None, 2));
    }

    #[test]
    fn endless_line_gives_no_symbol_and_repeated_lines_give_one() {
        let table = read_kernel_symbols(io::repeat(b'f').take(4 << 20)).unwrap();
        assert!(table.is_empty());
        let repeated = "0 T a\n".repeat(100_000);
        assert_eq!(read_kernel_symbols(repeated.as_bytes()).unwrap().len(), 1);
    }
}
