//! What the addresses of a trace mean: the module they lie in, as its image events tell.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_format::header::Record;

use crate::images::Images;

/// Where symbols are looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {}

/// Where symbols are looked for, as typed.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Symbols")]
pub(crate) struct SymbolArgs {}

impl From<&SymbolArgs> for Options {
    fn from(_: &SymbolArgs) -> Self {
        Self {}
    }
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(dead_code)]
pub(crate) struct Frame {
    pub(crate) module: Option<Arc<str>>,
    pub(crate) function: Option<Arc<str>>,
    pub(crate) offset: u64,
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: Option<u32>,
    pub(crate) is_inlined: bool,
}

/// What is known about the addresses of one trace.
pub(crate) struct Symbols {
    images: Images,
    decoder: Decoder,
    names: HashMap<Box<str>, Arc<str>>,
}

impl Symbols {
    pub(crate) fn new(_: Options) -> Self {
        Self { images: Images::default(), decoder: Decoder::new(), names: HashMap::new() }
    }

    pub(crate) fn observe(&mut self, record: &Record<'_>) {
        if Images::is_informative(record)
            && let Ok(found) = self.decoder.find(record)
        {
            self.images.observe(record, &found);
        }
    }

    pub(crate) fn resolve(&mut self, process: u32, address: u64, time: i64) -> Arc<[Frame]> {
        let frame = match self.images.locate(process, address, time) {
            Some((name, offset)) => {
                let name = match self.names.get(name) {
                    Some(name) => Arc::clone(name),
                    None => {
                        let shared: Arc<str> = name.into();
                        self.names.insert(name.into(), Arc::clone(&shared));
                        shared
                    }
                };
                Frame { module: Some(name), offset, ..Frame::default() }
            }
            None => Frame { offset: address, ..Frame::default() },
        };
        Arc::new([frame])
    }
}
