//! Images of the kernel and of its modules.
//!
//! ```text
//!   /proc/kallsyms  _text … _etext ──▶ [kernel.kallsyms]
//!                                      build id: /sys/kernel/notes
//!   /proc/modules   name size … address ──▶ [name]
//!                                      build id: /sys/module/NAME/notes/.note.gnu.build-id
//! ```
//!
//! Where addresses are hidden (`kernel.kptr_restrict`) they read as 0, and no images are returned.
//! Names are those that perf uses.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::program::BuildId;
use super::table::LoadedImage;

/// The most bytes of the symbol list that are read.
const MAX_SYMBOL_BYTES: u64 = 256 << 20;
/// The most bytes of any other file that are read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most modules that are returned.
const MAX_MODULES: usize = 4096;

/// The image name of the kernel without its modules.
pub(crate) const KERNEL_NAME: &str = "[kernel.kallsyms]";

/// Reads the kernel's images. Keeps the kernel's code range, which does not change while it runs.
#[derive(Debug, Default)]
pub(crate) struct KernelImages {
    /// `None`: not looked up yet. `Some(None)`: the addresses are hidden.
    text: Option<Option<(u64, u64)>>,
}

impl KernelImages {
    /// Returns all images of the kernel, the kernel without its modules first, from the `proc` and
    /// `sys` directories below `root`.
    pub(crate) fn read_images(&mut self, root: &Path) -> Vec<LoadedImage> {
        let text = *self.text.get_or_insert_with(|| find_text_range(&root.join("proc/kallsyms")));
        let kernel =
            text.map(|(start, end)| build_image(KERNEL_NAME, start, end, &root.join("sys/kernel/notes")));
        let modules = read_file(&root.join("proc/modules"));
        let modules = String::from_utf8_lossy(&modules);
        let modules = modules.lines().take(MAX_MODULES).filter_map(|line| parse_module(line, root));
        kernel.into_iter().chain(modules).collect()
    }
}

fn build_image(name: &str, start: u64, end: u64, notes: &Path) -> LoadedImage {
    let build_id = BuildId::from_notes(&read_file(notes));
    let size = end.saturating_sub(start);
    LoadedImage { base: start, size, default_base: start, code: start..end, name: name.into(), build_id }
}

/// Parses a line such as `nf_tables 270336 120 nft_ct,nft_masq, Live 0xffffffffc0a5d000`.
fn parse_module(line: &str, root: &Path) -> Option<LoadedImage> {
    let mut words = line.split(' ');
    let (name, size) = (words.next()?, words.next()?.parse().ok()?);
    let start = words.find_map(|word| word.strip_prefix("0x"))?;
    let start = u64::from_str_radix(start, 16).ok().filter(|start| *start != 0)?;
    let end = start.checked_add(size)?;
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let folder: PathBuf = root.join("sys/module").join(Some(name).filter(|name| is_name(name))?);
    let notes = folder.join("notes/.note.gnu.build-id");
    Some(LoadedImage { default_base: 0, ..build_image(&format!("[{name}]"), start, end, &notes) })
}

/// Returns start and end of the kernel's code, the end rounded up to a page.
fn find_text_range(symbols: &Path) -> Option<(u64, u64)> {
    let mut lines = BufReader::with_capacity(64 << 10, File::open(symbols).ok()?.take(MAX_SYMBOL_BYTES));
    let (mut line, mut start) = (Vec::new(), None);
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_ascii_end();
        let address = || {
            let digits = line.split(|byte| *byte == b' ').next()?;
            u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|address| *address > 0)
        };
        // The list is sorted by address, so the end follows the start.
        if start.is_none() && (line.ends_with(b" _text") || line.ends_with(b" _stext")) {
            start = Some(address()?);
        } else if line.ends_with(b" _etext") {
            let end = address()?.checked_add(4095)? & !4095;
            return start.filter(|start| *start < end).map(|start| (start, end));
        }
    }
}

fn read_file(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // Bytes read before an error are used.
        let _ = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_note(id: &[u8]) -> Vec<u8> {
        // Lengths of the name and of the id, and the type NT_GNU_BUILD_ID.
        let mut note = vec![4, 0, 0, 0, u8::try_from(id.len()).unwrap(), 0, 0, 0, 3, 0, 0, 0];
        note.extend_from_slice(b"GNU\0");
        note.extend_from_slice(id);
        note
    }

    #[test]
    fn kernel_and_module_images_are_read_from_files() {
        let root = tempfile::tempdir().unwrap();
        let write_file = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        write_file(
            "proc/kallsyms",
            b"ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000010 t x\tmod\nffffffff82000ca0 T _etext\n",
        );
        write_file("sys/kernel/notes", &build_note(&[7; 20]));
        write_file(
            "proc/modules",
            b"ext4 4096 1 - Live 0xffffffffc0000000\nhidden 4096 0 - Live 0x0000000000000000\n\
              ../etc 4096 0 - Live 0xffffffffc1000000\njbd2 8192 1 ext4, Live 0xffffffffc0002000 (OE)\nbroken\n",
        );
        write_file("sys/module/jbd2/notes/.note.gnu.build-id", &build_note(&[9; 16]));
        let images = KernelImages::default().read_images(root.path());
        let images: Vec<_> =
            images.iter().map(|image| (&*image.name, image.base, image.size, image.build_id)).collect();
        assert_eq!(
            images,
            [
                (KERNEL_NAME, 0xFFFF_FFFF_8100_0000, 0x100_1000, BuildId::new(&[7; 20])),
                ("[ext4]", 0xFFFF_FFFF_C000_0000, 4096, None),
                ("[jbd2]", 0xFFFF_FFFF_C000_2000, 8192, BuildId::new(&[9; 16])),
            ]
        );
    }

    #[test]
    fn hidden_addresses_give_no_images() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let symbols = "0000000000000000 T _text\n0000000000000000 T _etext\n";
        std::fs::write(root.path().join("proc/kallsyms"), symbols).unwrap();
        assert_eq!(KernelImages::default().read_images(root.path()), []);
        assert_eq!(KernelImages::default().read_images(Path::new("/nowhere")), []);
    }
}
