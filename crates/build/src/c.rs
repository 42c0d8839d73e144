//! C and C++ headers in the style of the message compiler: constants, descriptors, and macros that
//! write events.
//!
//! ```text
//!   EventRegisterExample_Workshop()      EventUnregisterExample_Workshop()
//!   EventEnabledMapped()                 one load and a test while not enabled
//!   EventWriteMapped(Tool, Guards)       arguments are not evaluated unless enabled
//!   EventWriteMapped_AssumeEnabled(…)    for callers that have checked already
//!   EventWriteMapped_Activity(ActivityId, RelatedActivityId, …)
//! ```
//!
//! The macros call the documented functions of `evntprov.h`. Arguments are the fields of the
//! template in order: the caller passes counts and lengths, and arrays as pointers. A field whose
//! size no other field holds (structures, arrays of texts, counted texts) takes two arguments,
//! first the number of bytes.

mod event;

use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use traceweir_decode::source::manifest::{MapDefinition, Name, ProviderDefinition};
use traceweir_format::Guid;

use crate::code::{Code, comment};
use crate::ident::{UsedNames, c_name, c_symbol, constant};
use crate::manifest::{Manifest, write_file};
use crate::{Result, plan};

/// The part that all headers of a program share.
const COMMON: &str = include_str!("c/common.h");

/// Options for C headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct COptions {
    /// The prefix of the names of write macros.
    pub prefix: String,
}

impl Default for COptions {
    fn default() -> Self {
        Self { prefix: "EventWrite".to_owned() }
    }
}

impl Manifest {
    /// Returns the source of a C and C++ header.
    #[must_use]
    pub fn c_header(&self, options: &COptions) -> String {
        header(self, options)
    }

    /// Returns the source of a C file with the resource, to be compiled into the program.
    pub fn c_resource(&self) -> Result<String> {
        Ok(resource(self, &self.resource()?))
    }

    /// Writes `STEM.h` and `STEM_etw.c`, which holds the resource, into a folder, and returns both
    /// paths.
    pub fn write_c(&self, folder: impl AsRef<Path>, options: &COptions) -> Result<[PathBuf; 2]> {
        let (folder, stem) = (folder.as_ref(), self.stem());
        Ok([
            write_file(folder.join(format!("{stem}.h")), self.c_header(options).as_bytes())?,
            write_file(folder.join(format!("{stem}_etw.c")), self.c_resource()?.as_bytes())?,
        ])
    }
}

/// Returns the source of the header.
fn header(manifest: &Manifest, options: &COptions) -> String {
    let mut code = Code::default();
    let guard = format!("TRACEWEIR_MC_{}_H", constant(&manifest.stem()));
    code.line(format!(
        "/* Made from {} by the manifest compiler of Traceweir. Do not edit. */",
        comment(&manifest.file_name())
    ));
    code.line(format!("#ifndef {guard}"));
    code.line(format!("#define {guard}"));
    code.line("");
    COMMON.lines().for_each(|line| code.line(line));
    let mut taken = UsedNames::default();
    let mut symbols = Symbols { taken: plan::symbols(manifest.providers()), defined: HashSet::new() };
    for provider in manifest.providers() {
        let name = taken.unique(c_name(provider.name.as_deref().unwrap_or_default()));
        write_provider(&mut code, provider, &name, options, &mut symbols);
    }
    code.line("");
    code.line(format!("#endif /* {guard} */"));
    code.finish()
}

/// The names of a header, which has one scope for all of them.
struct Symbols {
    taken: UsedNames,
    /// Constants of the manifest that are already in the header: a manifest may name the same
    /// number twice.
    defined: HashSet<String>,
}

impl Symbols {
    /// Writes a constant under its symbol in the manifest, or under the name that `otherwise`
    /// returns.
    fn constant(
        &mut self,
        code: &mut Code,
        symbol: Option<&str>,
        otherwise: impl FnOnce() -> String,
        value: &str,
    ) {
        let name = match symbol {
            Some(symbol) if !self.defined.insert(symbol.to_owned()) => return,
            Some(symbol) => c_symbol(symbol),
            None => self.taken.unique(otherwise()),
        };
        code.line(format!("#define {name} {value}"));
    }
}

/// Returns the source of the file with the resource.
fn resource(manifest: &Manifest, bytes: &[u8]) -> String {
    let mut code = Code::default();
    code.line(format!(
        "/* The compiled manifest of {}. Compile it into the program: readers of traces find it there. */",
        comment(&manifest.file_name())
    ));
    code.line("#if defined(__has_attribute)");
    code.line("#if __has_attribute(retain)");
    code.line("#define TRACEWEIR_MC_KEEP __attribute__((used, retain))");
    code.line("#endif");
    code.line("#endif");
    code.line("#ifndef TRACEWEIR_MC_KEEP");
    code.line("#define TRACEWEIR_MC_KEEP __attribute__((used))");
    code.line("#endif");
    let name = format!("{}_etw_manifest", c_name(&manifest.stem()));
    code.line(format!("extern const unsigned char {name}[{}];", bytes.len()));
    code.line("TRACEWEIR_MC_KEEP");
    let section = traceweir_decode::source::binary::ELF_SECTION;
    code.line(format!("__attribute__((section(\"{section}\"), aligned(4)))"));
    code.block(format!("const unsigned char {name}[{}] = {{", bytes.len()), "};", |code| {
        for row in bytes.chunks(24) {
            let mut line = String::new();
            for byte in row {
                let _ = write!(line, "{byte},");
            }
            code.line(line);
        }
    });
    code.finish()
}

fn write_provider(
    code: &mut Code,
    provider: &ProviderDefinition,
    name: &str,
    options: &COptions,
    symbols: &mut Symbols,
) {
    let own = provider.symbol.as_deref().map(c_symbol);
    let symbol = own.unwrap_or_else(|| symbols.taken.unique(format!("{name}_ProviderId")));
    code.line("");
    code.line(format!(
        "/* Provider {} {{{}}} */",
        comment(provider.name.as_deref().unwrap_or_default()),
        provider.id
    ));
    code.line(format!("static const GUID {symbol} __attribute__((unused)) = {};", guid(&provider.id)));
    let prefix = constant(name);
    for (what, names) in plan::tables(provider) {
        write_constants(code, what, names, &prefix, symbols);
    }
    write_maps(code, &provider.maps, &prefix, symbols);
    let context = symbols.taken.unique(format!("{name}_Context"));
    code.line("");
    code.line(format!("extern MCGEN_TRACE_CONTEXT {context} __attribute__((weak, visibility(\"hidden\")));"));
    code.line(format!("MCGEN_TRACE_CONTEXT {context} = {{0, 0, 0, 0, 0}};"));
    code.line(format!("#define EventRegister{name}() McGenEventRegister(&{symbol}, &{context})"));
    code.line(format!("#define EventUnregister{name}() McGenEventUnregister(&{context})"));
    for event in plan::events(provider, &mut symbols.taken) {
        event::write(code, &event, &context, &options.prefix);
    }
}

fn guid(id: &Guid) -> String {
    let b = id.to_bytes();
    let [b0, b1, b2, b3, b4, b5, b6, b7, rest @ ..] = b;
    let rest = rest.map(|byte| format!("{byte:#04x}")).join(", ");
    format!(
        "{{{:#010x}, {:#06x}, {:#06x}, {{{rest}}}}}",
        u32::from_le_bytes([b0, b1, b2, b3]),
        u16::from_le_bytes([b4, b5]),
        u16::from_le_bytes([b6, b7])
    )
}

fn write_constants(code: &mut Code, what: &str, names: &[Name], prefix: &str, symbols: &mut Symbols) {
    for name in names {
        let otherwise = || format!("{prefix}_{}_{}", constant(what), constant(&name.name));
        let ending = if what == "keyword" { "ull" } else { "" };
        let value = format!("{:#x}{ending} /* {} */", name.value, comment(name.display()));
        symbols.constant(code, name.symbol.as_deref(), otherwise, &value);
    }
}

fn write_maps(code: &mut Code, maps: &[MapDefinition], prefix: &str, symbols: &mut Symbols) {
    for map in maps {
        let map_name = map.symbol.clone().unwrap_or_else(|| format!("{prefix}_{}", constant(&map.map.name)));
        code.line(format!("/* Map {} */", comment(&map.map.name)));
        for (value, text, symbol) in &map.entries {
            let own = || text.as_deref().map_or_else(|| format!("VALUE_{value}"), constant);
            let otherwise = || format!("{map_name}_{}", own());
            symbols.constant(code, symbol.as_deref(), otherwise, &format!("{value:#x}u"));
        }
    }
}
