//! Finds compiled manifests and message tables in PE and ELF files.

use object::read::elf::{ElfFile32, ElfFile64};
use object::read::pe::{
    ImageNtHeaders, PeFile, PeFile32, PeFile64, ResourceDirectory, ResourceDirectoryTable, ResourceNameOrId,
};
use object::{Endianness, LittleEndian as LE, Object, ObjectSection};

use super::{ELF_SECTION, ProviderFileKind, detect_file_kind};
use crate::source::messages::MessageTable;
use crate::source::provider::ProviderSchemas;
use crate::source::wevt;
use crate::{Error, Result};

/// The index of the byte of an ELF header that says whether the file is 32 or 64 bits wide.
const EI_CLASS: usize = 4;
const WEVT_TEMPLATE: &str = "WEVT_TEMPLATE";
const RT_MESSAGETABLE: u16 = 11;
const RESOURCE_NAME: u16 = 1;
const ENGLISH_US: u16 = 0x409;

/// Reads the providers that a PE or ELF file describes.
///
/// Returns [`Error::NoMetadata`] if the file is sound but has no compiled manifest.
pub fn load(bytes: &[u8]) -> Result<Vec<ProviderSchemas>> {
    match detect_file_kind(bytes) {
        ProviderFileKind::Pe => {
            match object::read::pe::optional_header_magic(bytes).map_err(unreadable_binary)? {
                object::pe::IMAGE_NT_OPTIONAL_HDR32_MAGIC => {
                    read_pe(&PeFile32::parse(bytes).map_err(unreadable_binary)?, bytes)
                }
                _ => read_pe(&PeFile64::parse(bytes).map_err(unreadable_binary)?, bytes),
            }
        }
        ProviderFileKind::Elf if bytes.get(EI_CLASS) == Some(&object::elf::ELFCLASS32) => {
            read_elf(&ElfFile32::<Endianness>::parse(bytes).map_err(unreadable_binary)?)
        }
        ProviderFileKind::Elf => read_elf(&ElfFile64::<Endianness>::parse(bytes).map_err(unreadable_binary)?),
        ProviderFileKind::Xml | ProviderFileKind::Other => {
            Err(Error::Binary("neither a PE nor an ELF file".into()))
        }
    }
}

pub(in crate::source) fn unreadable_binary(error: object::Error) -> Error {
    Error::Binary(error.to_string())
}

fn read_elf<'data>(file: &impl Object<'data>) -> Result<Vec<ProviderSchemas>> {
    let section = file.section_by_name(ELF_SECTION);
    let section =
        section.ok_or_else(|| Error::NoMetadata(format!("the ELF file has no section {ELF_SECTION}")))?;
    read_section_providers(section.data().map_err(unreadable_binary)?)
}

/// Reads the providers of all manifests in a section.
pub(in crate::source) fn read_section_providers(section: &[u8]) -> Result<Vec<ProviderSchemas>> {
    let mut providers = Vec::new();
    let mut remaining = section;
    loop {
        let blob = wevt::trim_to_size(remaining)?;
        remaining = remaining.get(blob.len().next_multiple_of(4)..).unwrap_or_default();
        let messages = match remaining {
            [] | [b'C', b'R', b'I', b'M', ..] => MessageTable::default(),
            table => MessageTable::parse(table)?,
        };
        remaining = remaining.get(messages.resource_bytes().next_multiple_of(4)..).unwrap_or_default();
        providers.extend(wevt::read_providers(blob, &messages)?);
        while let [0, 0, 0, 0, after @ ..] = remaining {
            remaining = after;
        }
        // Other bytes that do not begin a manifest are padding as well.
        if !remaining.starts_with(b"CRIM") {
            return Ok(providers);
        }
    }
}

fn read_pe<'data, Pe: ImageNtHeaders>(
    file: &PeFile<'data, Pe, &'data [u8]>,
    bytes: &'data [u8],
) -> Result<Vec<ProviderSchemas>> {
    let sections = file.section_table();
    let directory =
        file.data_directories().resource_directory(bytes, &sections).map_err(unreadable_binary)?;
    let directory = directory.ok_or_else(|| Error::NoMetadata("the PE file has no resources".into()))?;
    let read_resource = |(address, size): (u32, u32)| {
        let data = sections.pe_data_at(bytes, address).and_then(|d| d.get(..usize::try_from(size).ok()?));
        data.ok_or_else(|| Error::Binary("a resource is outside the file".into()))
    };
    let blob = find_resource(directory, |id| has_name(id, directory, WEVT_TEMPLATE), None)?;
    let blob =
        blob.ok_or_else(|| Error::NoMetadata(format!("the PE file has no resource {WEVT_TEMPLATE}")))?;
    let messages = find_resource(directory, |id| id.id() == Some(RT_MESSAGETABLE), Some(ENGLISH_US))?;
    let messages = match messages {
        Some(resource) => MessageTable::parse(read_resource(resource)?)?,
        None => MessageTable::default(),
    };
    wevt::read_providers(read_resource(blob)?, &messages)
}

/// Returns the address and the size of the resource with a type and the name [`RESOURCE_NAME`]: the
/// resource in `language` if there is one, else the resource in the first language.
fn find_resource(
    directory: ResourceDirectory<'_>,
    is_type: impl Fn(ResourceNameOrId) -> bool,
    language: Option<u16>,
) -> Result<Option<(u32, u32)>> {
    let root = directory.root().map_err(unreadable_binary)?;
    let Some(names) = find_subtable(directory, &root, is_type)? else { return Ok(None) };
    let Some(languages) = find_subtable(directory, &names, |id| id.id() == Some(RESOURCE_NAME))? else {
        return Ok(None);
    };
    let preferred = languages.entries.iter().find(|e| language.is_some() && e.name_or_id().id() == language);
    let Some(entry) = preferred.or(languages.entries.first()) else { return Ok(None) };
    let data = entry.data(directory).map_err(unreadable_binary)?.data();
    let data = data.ok_or_else(|| Error::Binary("the resource directory is nested too deeply".into()))?;
    Ok(Some((data.offset_to_data.get(LE), data.size.get(LE))))
}

/// Returns the table below the first entry that `is_wanted` accepts.
fn find_subtable<'data>(
    directory: ResourceDirectory<'data>,
    table: &ResourceDirectoryTable<'data>,
    is_wanted: impl Fn(ResourceNameOrId) -> bool,
) -> Result<Option<ResourceDirectoryTable<'data>>> {
    match table.entries.iter().find(|e| is_wanted(e.name_or_id())) {
        Some(entry) => Ok(entry.data(directory).map_err(unreadable_binary)?.table()),
        None => Ok(None),
    }
}

fn has_name(id: ResourceNameOrId, directory: ResourceDirectory<'_>, name: &str) -> bool {
    let Some(Ok(units)) = id.name().map(|n| n.data(directory)) else { return false };
    units.iter().map(|u| u.get(LE)).eq(name.encode_utf16())
}
