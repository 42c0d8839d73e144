//! Sources with assertions that are generated from the windows-sys crate: C and C++ compilers check
//! that the headers agree with the crate on the names that both have.

use std::fmt::Write as _;
use std::process::Command;

use windows_sys::core::GUID;

use crate::support::{C, CPP, Language, STRICT_FLAGS, crate_path, expect_success, has_program};
use crate::{constants, functions, headers, structures};

/// A structure, with the names of members in windows-sys.
#[derive(Debug)]
pub(crate) struct StructureLayout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) members: Vec<(&'static str, usize)>,
}

/// The bits of a constant, and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConstantBits {
    pub(crate) bits: u64,
    pub(crate) bytes: usize,
}

/// The integer types of constants.
pub(crate) trait IntegerConstant {
    fn to_bits(self) -> ConstantBits;
}

macro_rules! impl_integer_constant {
    ($($kind:ty as $unsigned:ty),*) => {$(
        impl IntegerConstant for $kind {
            fn to_bits(self) -> ConstantBits {
                #[allow(clippy::cast_sign_loss)] // Only the bits are compared.
                ConstantBits { bits: u64::from(self as $unsigned), bytes: size_of::<Self>() }
            }
        }
    )*};
}

impl_integer_constant!(u8 as u8, u16 as u16, u32 as u32, i32 as u32, u64 as u64);

/// The last constants of enumerations that have got more members since the windows-sys crate was
/// generated: their values must be larger than in the crate.
const GROWN_CONSTANTS: [&str; 1] = ["MaxTraceSetInfoClass"];

/// Returns the name of a member in C: the names of anonymous members are omitted.
fn c_member_name(member: &str) -> String {
    let parts = member.split('.').map(str::trim).filter(|part| !part.starts_with("Anonymous"));
    parts.collect::<Vec<_>>().join(".")
}

fn assert_compiles(language: &Language, source: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("unit.{}", language.extension));
    std::fs::write(&file, source).unwrap();
    for compiler in language.compilers() {
        let mut command = Command::new(compiler);
        command.args(STRICT_FLAGS).arg("-fsyntax-only").arg(format!("-std={}", language.standards[0]));
        expect_success(command.arg("-I").arg(crate_path("include")).arg(&file));
    }
}

const CHECK: &str = "#define CHECK(row) _Static_assert(row, #row)\n";

#[test]
fn structures_have_the_layout_of_windows() {
    let header_words = headers::collect_words();
    let mut source = format!("{}{CHECK}", headers::INCLUDE_ALL);
    let mut checked = 0;
    for StructureLayout { name, size, align, members } in structures::list_layouts() {
        if !header_words.contains(name) {
            continue;
        }
        checked += 1;
        writeln!(source, "CHECK(sizeof({name}) == {size}); CHECK(_Alignof({name}) == {align});").unwrap();
        for (member, offset) in members {
            writeln!(source, "CHECK(offsetof({name}, {}) == {offset});", c_member_name(member)).unwrap();
        }
    }
    assert!(checked >= 10, "only {checked} structures were checked");
    assert_compiles(&C, &source);
}

#[test]
fn constants_have_the_values_of_windows() {
    let header_words = headers::collect_words();
    let mut source = format!("{}{CHECK}", headers::INCLUDE_ALL);
    let mut checked = 0;
    for (name, ConstantBits { bits, bytes }) in constants::numeric_constants() {
        if header_words.contains(name) {
            checked += 1;
            let kind = format!("uint{}_t", bytes * 8);
            let relation = if GROWN_CONSTANTS.contains(&name) { ">" } else { "==" };
            writeln!(source, "CHECK(({kind})({name}) {relation} ({kind}){bits:#x}ull);").unwrap();
        }
    }
    assert!(checked >= 60, "only {checked} constants were checked");
    assert_compiles(&C, &source);
}

#[test]
fn guids_and_session_names_have_the_values_of_windows() {
    let header_words = headers::collect_words();
    let mut source =
        format!("#include <initguid.h>\n{}#include <string.h>\nint main(void) {{\n", headers::INCLUDE_ALL);
    let mut checked = 0;
    for (name, guid) in constants::guid_constants() {
        if header_words.contains(name) {
            checked += 1;
            let last = guid.data4.map(|byte| byte.to_string()).join(", ");
            let GUID { data1, data2, data3, .. } = guid;
            writeln!(source, "    {{ static const GUID expected = {{{data1}u, {data2}, {data3}, {{{last}}}}}; const GUID actual = {name};").unwrap();
            writeln!(
                source,
                "    if (memcmp(&expected, &actual, sizeof expected) != 0) return {checked}; }}"
            )
            .unwrap();
        }
    }
    for (name, text) in
        constants::session_name_constants().into_iter().filter(|(name, _)| header_words.contains(*name))
    {
        checked += 1;
        let wide = format!("{}W", name.trim_end_matches('A'));
        writeln!(source, "    if (strcmp({name}, \"{text}\") != 0 || sizeof {wide} != sizeof u\"{text}\"")
            .unwrap();
        writeln!(
            source,
            "        || memcmp({wide}, u\"{text}\", sizeof u\"{text}\") != 0) return {checked};"
        )
        .unwrap();
    }
    source.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("guids.c"), folder.path().join("guids"));
    std::fs::write(&file, source).unwrap();
    expect_success(
        Command::new("gcc")
            .args(STRICT_FLAGS)
            .arg("-I")
            .arg(crate_path("include"))
            .arg(&file)
            .arg("-o")
            .arg(&program),
    );
    expect_success(&mut Command::new(&program));
}

const PROTOTYPE_CHECK: &str = "#include <cstddef>
template <class Function> struct Shape;
template <class Answer, class... Kinds> struct Shape<Answer(Kinds...)> {
    template <std::size_t... expected> static constexpr bool has_sizes() {
        constexpr std::size_t sizes[] = {sizeof(Answer), sizeof(Kinds)...}, expected_sizes[] = {expected...};
        if (sizeof sizes != sizeof expected_sizes) return false;
        for (std::size_t at = 0; at < sizeof...(expected); at++) {
            if (sizes[at] != expected_sizes[at]) return false;
        }
        return true;
    }
};
#define SHAPE(name, ...) static_assert(Shape<decltype(name)>::has_sizes<__VA_ARGS__>(), #name)
";

#[test]
fn functions_have_the_prototypes_of_windows() {
    // Only C++ can check the parameters of a function.
    if !has_program("g++") {
        return;
    }
    let header_words = headers::collect_words();
    let mut source = format!("{}{PROTOTYPE_CHECK}", headers::INCLUDE_ALL);
    let mut checked = 0;
    for (name, sizes) in functions::list_functions() {
        if header_words.contains(name) {
            checked += 1;
            let sizes = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            writeln!(source, "SHAPE({name}, {sizes});").unwrap();
        }
    }
    assert!(checked >= 18, "only {checked} functions were checked");
    assert_compiles(&CPP, &source);
}
