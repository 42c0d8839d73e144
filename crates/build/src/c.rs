//! C and C++ headers in the style of the message compiler: constants, descriptors, and macros that
//! write events. For provider `Example-Workshop` with an event `Mapped` of two fields:
//!
//! ```text
//!   EventRegisterExample_Workshop()      EventUnregisterExample_Workshop()
//!   EventEnabledMapped()                 one load and a test while not enabled
//!   EventWriteMapped(Tool, Guards)       arguments are not evaluated unless enabled
//!   EventWriteMapped_AssumeEnabled(…)    for callers that have checked already
//!   EventWriteMapped_Activity(ActivityId, RelatedActivityId, …)
//! ```
//!
//! The macros call the documented functions of `evntprov.h`, unless the program defines macros such
//! as `MCGEN_EVENTWRITETRANSFER` before it includes the header, as for the output of mc.exe.
//! Arguments are the fields of the template in order, including those that hold counts and lengths;
//! arrays are passed as pointers. A field whose size no other field holds (structures, arrays of
//! texts, counted texts) takes two arguments, first the number of bytes.

mod event;

use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use traceweir_decode::source::manifest::{MapDefinition, NameDefinition, ProviderDefinition};
use traceweir_format::Guid;

use crate::code::{SourceText, sanitize_comment};
use crate::ident::{UsedNames, to_c_name, to_c_symbol, to_constant_name};
use crate::manifest::{Manifest, write_file};
use crate::{Result, plan};

/// The part that all headers of a program share.
const COMMON_HEADER: &str = include_str!("c/common.h");

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
        generate_header(self, options)
    }

    /// Returns the source of a C file with the resource, to be compiled into the program.
    pub fn c_resource(&self) -> Result<String> {
        Ok(generate_resource_file(self, &self.resource()?))
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

fn generate_header(manifest: &Manifest, options: &COptions) -> String {
    let mut code = SourceText::default();
    let guard = format!("TRACEWEIR_MC_{}_H", to_constant_name(&manifest.stem()));
    code.push(format!(
        "/* Made from {} by the manifest compiler of Traceweir. Do not edit. */",
        sanitize_comment(&manifest.file_name())
    ));
    code.push(format!("#ifndef {guard}"));
    code.push(format!("#define {guard}"));
    code.push("");
    COMMON_HEADER.lines().for_each(|line| code.push(line));
    let mut provider_names = UsedNames::default();
    let mut symbols =
        HeaderSymbols { used_names: plan::manifest_symbols(manifest.providers()), defined: HashSet::new() };
    for provider in manifest.providers() {
        let name = provider_names.make_unique(to_c_name(provider.name.as_deref().unwrap_or_default()));
        write_provider(&mut code, provider, &name, options, &mut symbols);
    }
    code.push("");
    code.push(format!("#endif /* {guard} */"));
    code.finish()
}

/// The names of a header, which has one scope for all of them.
struct HeaderSymbols {
    used_names: UsedNames,
    /// Symbols of the manifest that the header already defines: a manifest may define a symbol
    /// twice, for the same number.
    defined: HashSet<String>,
}

impl HeaderSymbols {
    /// Writes a constant under its symbol in the manifest, or under the name that `default_name`
    /// returns.
    fn write_constant(
        &mut self,
        code: &mut SourceText,
        symbol: Option<&str>,
        default_name: impl FnOnce() -> String,
        value: &str,
    ) {
        let name = match symbol {
            Some(symbol) if !self.defined.insert(symbol.to_owned()) => return,
            Some(symbol) => to_c_symbol(symbol),
            None => self.used_names.make_unique(default_name()),
        };
        code.push(format!("#define {name} {value}"));
    }
}

fn generate_resource_file(manifest: &Manifest, bytes: &[u8]) -> String {
    let mut code = SourceText::default();
    code.push(format!(
        "/* The compiled manifest of {}. Compile it into the program: readers of traces find it there. */",
        sanitize_comment(&manifest.file_name())
    ));
    code.push("#if defined(__has_attribute)");
    code.push("#if __has_attribute(retain)");
    code.push("#define TRACEWEIR_MC_KEEP __attribute__((used, retain))");
    code.push("#endif");
    code.push("#endif");
    code.push("#ifndef TRACEWEIR_MC_KEEP");
    code.push("#define TRACEWEIR_MC_KEEP __attribute__((used))");
    code.push("#endif");
    let name = format!("{}_etw_manifest", to_c_name(&manifest.stem()));
    code.push(format!("extern const unsigned char {name}[{}];", bytes.len()));
    code.push("TRACEWEIR_MC_KEEP");
    let section = traceweir_decode::source::binary::ELF_SECTION;
    code.push(format!("__attribute__((section(\"{section}\"), aligned(4)))"));
    code.push_block(format!("const unsigned char {name}[{}] = {{", bytes.len()), "};", |code| {
        for row in bytes.chunks(24) {
            let mut line = String::new();
            for byte in row {
                let _ = write!(line, "{byte},");
            }
            code.push(line);
        }
    });
    code.finish()
}

fn write_provider(
    code: &mut SourceText,
    provider: &ProviderDefinition,
    name: &str,
    options: &COptions,
    symbols: &mut HeaderSymbols,
) {
    let declared_symbol = provider.symbol.as_deref().map(to_c_symbol);
    // As in the output of mc.exe, the name of the context begins with the provider's symbol.
    let context = format!("{}_Context", declared_symbol.as_deref().unwrap_or(name));
    let symbol =
        declared_symbol.unwrap_or_else(|| symbols.used_names.make_unique(format!("{name}_ProviderId")));
    code.push("");
    code.push(format!(
        "/* Provider {} {{{}}} */",
        sanitize_comment(provider.name.as_deref().unwrap_or_default()),
        provider.id
    ));
    code.push(format!(
        "static const GUID {symbol} __attribute__((unused)) = {};",
        guid_initializer(&provider.id)
    ));
    let prefix = to_constant_name(name);
    for (kind, names) in plan::name_tables(provider) {
        write_constants(code, kind, names, &prefix, symbols);
    }
    write_maps(code, &provider.maps, &prefix, symbols);
    let context = symbols.used_names.make_unique(context);
    let handle = symbols.used_names.make_unique(format!("{name}Handle"));
    let events = plan::plan_events(provider, &mut symbols.used_names);
    for event in &events {
        event::write_descriptor(code, event);
    }
    code.push("");
    code.push("#ifndef MCGEN_DISABLE_PROVIDER_CODE_GENERATION");
    code.push(format!("extern MCGEN_TRACE_CONTEXT {context} __attribute__((weak, visibility(\"hidden\")));"));
    code.push(format!("MCGEN_TRACE_CONTEXT {context} = {{0, 0, 0, 0, 0}};"));
    code.push(format!("#define {handle} ({context}.RegistrationHandle)"));
    code.push(format!("#define EventRegister{name}() McGenEventRegister(&{symbol}, &{context})"));
    code.push(format!("#define EventUnregister{name}() McGenEventUnregister(&{context})"));
    for event in &events {
        event::write_event(code, event, &context, &options.prefix);
    }
    code.push("#endif /* MCGEN_DISABLE_PROVIDER_CODE_GENERATION */");
}

fn guid_initializer(id: &Guid) -> String {
    let [b0, b1, b2, b3, b4, b5, b6, b7, data4 @ ..] = id.to_bytes();
    let data4 = data4.map(|byte| format!("{byte:#04x}")).join(", ");
    format!(
        "{{{:#010x}, {:#06x}, {:#06x}, {{{data4}}}}}",
        u32::from_le_bytes([b0, b1, b2, b3]),
        u16::from_le_bytes([b4, b5]),
        u16::from_le_bytes([b6, b7])
    )
}

fn write_constants(
    code: &mut SourceText,
    kind: &str,
    names: &[NameDefinition],
    prefix: &str,
    symbols: &mut HeaderSymbols,
) {
    for name in names {
        let default_name = || format!("{prefix}_{}_{}", to_constant_name(kind), to_constant_name(&name.name));
        let suffix = if kind == "keyword" { "ull" } else { "" };
        let value = format!("{:#x}{suffix} /* {} */", name.value, sanitize_comment(name.display()));
        symbols.write_constant(code, name.symbol.as_deref(), default_name, &value);
    }
}

fn write_maps(code: &mut SourceText, maps: &[MapDefinition], prefix: &str, symbols: &mut HeaderSymbols) {
    for map in maps {
        let map_name =
            map.symbol.clone().unwrap_or_else(|| format!("{prefix}_{}", to_constant_name(&map.map.name)));
        code.push(format!("/* Map {} */", sanitize_comment(&map.map.name)));
        for (value, text, symbol) in &map.entries {
            let entry_name = || text.as_deref().map_or_else(|| format!("VALUE_{value}"), to_constant_name);
            let default_name = || format!("{map_name}_{}", entry_name());
            // As in the output of mc.exe, the symbol of the map precedes that of the value.
            let map_symbol = map.symbol.as_deref().unwrap_or_default();
            let symbol = symbol.as_ref().map(|symbol| format!("{map_symbol}{symbol}"));
            symbols.write_constant(code, symbol.as_deref(), default_name, &format!("{value:#x}u"));
        }
    }
}
