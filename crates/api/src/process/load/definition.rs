//! The definition of a function in the loaded objects.
//!
//! The address of a function, as code of this library sees it, does not say where the function is
//! defined. If a program that is linked with `-no-pie` takes the address of `malloc`, this address
//! is everywhere that of an entry in the program's procedure linkage table. The program's symbol
//! then has an address and no section (`SHN_UNDEF`), and the definition is that of a later object.

use std::ffi::{CStr, c_int, c_void};

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6FFF_FEF5;

/// An entry of the dynamic section (`Elf64_Dyn`).
#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: u64,
}

struct DefinitionSearch<'a> {
    name: &'a CStr,
    address: Option<usize>,
}

/// Returns the address of the first definition of a function in the order in which the loader
/// searches: program, preloaded libraries, libraries. Allocates no memory.
pub(super) fn find_definition(name: &CStr) -> Option<usize> {
    let mut search = DefinitionSearch { name, address: None };
    // SAFETY: the function calls `visit_object` with objects that are and stay loaded during the
    // call, and with this pointer.
    unsafe { libc::dl_iterate_phdr(Some(visit_object), (&raw mut search).cast::<c_void>()) };
    search.address
}

/// Searches an object; a result other than 0 ends the search.
unsafe extern "C" fn visit_object(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: called by `dl_iterate_phdr` with a valid object, and with the search of
    // `find_definition`, which no other code uses meanwhile.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<DefinitionSearch<'_>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: `dlpi_phdr` is not null and points to `dlpi_phnum` program headers of an object that
    // stays loaded during the call.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let Some(dynamic) = segments.iter().find(|segment| segment.p_type == libc::PT_DYNAMIC) else {
        return 0;
    };
    // SAFETY: the dynamic section of a loaded object.
    let tables = unsafe { SymbolTables::read(base, base.wrapping_add(dynamic.p_vaddr as usize)) };
    // SAFETY: the tables of a loaded object.
    let offset = tables.and_then(|tables| unsafe { tables.find_defined(search.name) });
    search.address = offset.map(|offset| base.wrapping_add(offset));
    c_int::from(search.address.is_some())
}

/// The addresses of the tables in which the loader looks up symbols of an object.
struct SymbolTables {
    symbols: *const libc::Elf64_Sym,
    names: *const libc::c_char,
    gnu_hash: Option<*const u32>,
    hash: Option<*const u32>,
}

impl SymbolTables {
    /// Reads the addresses from a dynamic section.
    ///
    /// # Safety
    ///
    /// `base` and `dynamic` are those of a loaded object.
    unsafe fn read(base: usize, dynamic: usize) -> Option<Self> {
        let (mut symbols, mut names, mut gnu_hash, mut hash) = (None, None, None, None);
        let mut entry: *const DynamicEntry = std::ptr::with_exposed_provenance(dynamic);
        loop {
            // SAFETY: the section ends with DT_NULL, where this loop ends.
            let DynamicEntry { tag, value } = unsafe { &*entry };
            let value = *value as usize;
            // The loader has replaced offsets by addresses, except in the kernel's object.
            let address = if value < base { base.wrapping_add(value) } else { value };
            match *tag {
                DT_NULL => break,
                DT_SYMTAB => symbols = Some(std::ptr::with_exposed_provenance(address)),
                DT_STRTAB => names = Some(std::ptr::with_exposed_provenance(address)),
                DT_GNU_HASH => gnu_hash = Some(std::ptr::with_exposed_provenance(address)),
                DT_HASH => hash = Some(std::ptr::with_exposed_provenance(address)),
                _ => {}
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
        Some(Self { symbols: symbols?, names: names?, gnu_hash, hash })
    }

    /// Returns the offset of a symbol that the object defines. Searches whichever of the two hash
    /// tables the object has.
    ///
    /// # Safety
    ///
    /// The tables are those of an object that stays loaded during the call.
    unsafe fn find_defined(&self, name: &CStr) -> Option<usize> {
        // SAFETY: as required from the caller.
        unsafe {
            match (self.gnu_hash, self.hash) {
                (Some(table), _) => self.find_by_gnu_hash(table, name),
                (None, Some(table)) => self.find_in_all(table, name),
                (None, None) => None,
            }
        }
    }

    /// Searches a table of the layout: number of buckets, number of the first symbol in the table,
    /// number of filter words, a shift, the filter (u64), the buckets, and for each symbol its hash,
    /// whose lowest bit is set in the last symbol of a bucket.
    ///
    /// # Safety
    ///
    /// `table` is the table of this object, which stays loaded.
    unsafe fn find_by_gnu_hash(&self, table: *const u32, name: &CStr) -> Option<usize> {
        let wanted = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        // SAFETY: the linker wrote the table in this layout, and the indices are those it stored.
        unsafe {
            let (bucket_count, first, filter_words) = (*table, *table.add(1), *table.add(2));
            let buckets = table.add(4).add(2 * filter_words as usize);
            let chain = buckets.add(bucket_count as usize);
            let mut number = *buckets.add(wanted.checked_rem(bucket_count)? as usize);
            if number < first {
                return None;
            }
            loop {
                let hash = *chain.add((number - first) as usize);
                let is_last = hash & 1 == 1;
                let offset = if hash | 1 == wanted | 1 { self.defined_offset(number, name) } else { None };
                if offset.is_some() || is_last {
                    return offset;
                }
                number = number.checked_add(1)?;
            }
        }
    }

    /// Searches all symbols. The second word of the older hash table is their number.
    ///
    /// # Safety
    ///
    /// As [`find_by_gnu_hash`](Self::find_by_gnu_hash).
    unsafe fn find_in_all(&self, table: *const u32, name: &CStr) -> Option<usize> {
        // SAFETY: the linker wrote the table in this layout, and the symbols have these numbers.
        unsafe { (0..*table.add(1)).find_map(|number| self.defined_offset(number, name)) }
    }

    unsafe fn defined_offset(&self, number: u32, name: &CStr) -> Option<usize> {
        // SAFETY: the caller passes the number of a symbol, whose name is NUL-terminated.
        unsafe {
            let symbol = &*self.symbols.add(number as usize);
            let is_defined = symbol.st_shndx != 0 && symbol.st_value != 0;
            (is_defined && CStr::from_ptr(self.names.add(symbol.st_name as usize)) == name)
                .then_some(symbol.st_value as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_found_at_their_addresses() {
        let address = libc::getppid as unsafe extern "C" fn() -> libc::pid_t as usize;
        assert_eq!(find_definition(c"getppid"), Some(address));
        assert_eq!(find_definition(c"traceweir_defines_no_such_function"), None);
    }
}
