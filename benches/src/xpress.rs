//! Compression of trace buffers, compared with memcpy of the same buffers.
//!
//! ```text
//!   figure                          ours                                      peer
//!   xpress_decompress_vs_memcpy     compressed by Windows or by us, output    memcpy of the output
//!   xpress_compress_vs_memcpy       every buffer, input                       memcpy of the input
//!   xpress_decompress_vs_limit      as above                                  1.5 GB a second
//!   xpress_compress_vs_limit        as above                                  300 MB a second
//! ```
//!
//! The buffers are those of all `.etl` files in the folder of real traces, also inside `.zip` files.
//! Buffers that are stored without compression are compressed by us before `xpress_decompress` is
//! measured.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::etl::{self, Trace};
use traceweir_format::xpress::{self, Compressor};

use crate::error::{Error, Result};
use crate::figure::{Direction, Figure, FigureUnit, Requirement, Rounds};
use crate::machine::MeasuredMachine;
use crate::process;
use crate::record::OutputOptions;

/// The shortest measured time: small samples are repeated until it has passed.
const MIN_TIME: Duration = Duration::from_millis(50);

/// The rates that decompression (output) and compression (input) must reach, in bytes per second.
const MIN_DECOMPRESSED_RATE: f64 = 1.5e9;
const MIN_COMPRESSED_RATE: f64 = 300e6;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct XpressOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// Folder with real traces [default: `TRACEWEIR_SAMPLES`, or else `../shared/data`].
    #[arg(long, value_name = "FOLDER")]
    samples: Option<PathBuf>,
    /// Number of rounds.
    #[arg(long, default_value_t = 15, value_name = "N")]
    rounds: u32,
}

/// The records of one buffer in both forms.
struct SampleBuffer {
    records: Vec<u8>,
    stream: Vec<u8>,
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &XpressOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    process::pin_to_last_core()?;
    let samples = arguments.samples.clone().unwrap_or_else(|| {
        std::env::var_os("TRACEWEIR_SAMPLES").map_or_else(|| PathBuf::from("../shared/data"), PathBuf::from)
    });
    let buffers = load_buffers(&samples)?;
    let bytes: usize = buffers.iter().map(|buffer| buffer.records.len()).sum();
    if bytes == 0 {
        return Err(Error::IncompleteRun(format!("{}: no buffers", samples.display())));
    }
    eprintln!("{} buffers, {bytes} bytes of records", buffers.len());
    let mut compressor = Compressor::new();
    let mut out = Vec::new();
    let mut compressed = 0;
    let (mut decompression, mut compression) = (Rounds::default(), Rounds::default());
    let (mut decompression_limit, mut compression_limit) = (Rounds::default(), Rounds::default());
    for _ in 0..arguments.rounds {
        let copy = rate_of(bytes, &mut || {
            for buffer in &buffers {
                out.clear();
                out.extend_from_slice(black_box(&buffer.records));
            }
            true
        })?;
        let decompressed = rate_of(bytes, &mut || {
            buffers.iter().all(|b| xpress::decompress(&b.stream, b.records.len(), &mut out).is_ok())
        })?;
        decompression.add(Some(decompressed), Some(copy));
        decompression_limit.add(Some(decompressed), Some(MIN_DECOMPRESSED_RATE));
        let packed = rate_of(bytes, &mut || {
            compressed = 0;
            for buffer in &buffers {
                compressor.compress(&buffer.records, &mut out);
                compressed += out.len();
            }
            true
        })?;
        compression.add(Some(packed), Some(copy));
        compression_limit.add(Some(packed), Some(MIN_COMPRESSED_RATE));
    }
    let (report, limit) = (Requirement::report_only(Direction::Larger), Requirement::at_least(1.0));
    let figures: Vec<Figure> = [
        decompression.figure("xpress_decompress_vs_memcpy", FigureUnit::BytesPerSecond, report),
        compression.figure("xpress_compress_vs_memcpy", FigureUnit::BytesPerSecond, report),
        decompression_limit.figure("xpress_decompress_vs_limit", FigureUnit::BytesPerSecond, limit),
        compression_limit.figure("xpress_compress_vs_limit", FigureUnit::BytesPerSecond, limit),
    ]
    .into_iter()
    .flatten()
    .collect();
    let circumstances = [("bytes", bytes.to_string()), ("compressed_bytes", compressed.to_string())];
    eprintln!("compressed to {compressed} bytes");
    arguments.output.report("xpress", &machine, &circumstances, &figures)
}

/// Returns bytes per second of processor time; `work` returns false if it failed.
#[allow(clippy::cast_precision_loss)] // Amounts are far below 2⁵³.
fn rate_of(bytes: usize, work: &mut dyn FnMut() -> bool) -> Result<f64> {
    let mut repetitions = 0_u32;
    let mut time = Duration::ZERO;
    let mut has_succeeded = true;
    while time < MIN_TIME {
        time += process::measure_own_time(|| has_succeeded &= work())?;
        repetitions += 1;
    }
    if !has_succeeded {
        return Err(Error::IncompleteRun("a buffer could not be decompressed".to_owned()));
    }
    Ok(bytes as f64 * f64::from(repetitions) / time.as_secs_f64())
}

fn load_buffers(folder: &Path) -> Result<Vec<SampleBuffer>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
        .map_err(Error::file(folder))?;
    paths.sort();
    let mut buffers = Vec::new();
    for path in paths {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("etl") => add_buffers(&std::fs::read(&path).map_err(Error::file(&path))?, &mut buffers),
            Some("zip") => {
                let file = File::open(&path).map_err(Error::file(&path))?;
                let unzip_error = |e: zip::result::ZipError| Error::file(&path)(e.into());
                let mut archive = zip::ZipArchive::new(file).map_err(unzip_error)?;
                for index in 0..archive.len() {
                    let mut entry = archive.by_index(index).map_err(unzip_error)?;
                    let mut bytes = Vec::new();
                    if entry.name().is_ok_and(|name| name.ends_with(".etl")) {
                        entry.read_to_end(&mut bytes).map_err(Error::file(&path))?;
                        add_buffers(&bytes, &mut buffers);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(buffers)
}

/// Adds the buffers of a trace; those that cannot be read are left out.
fn add_buffers(file: &[u8], buffers: &mut Vec<SampleBuffer>) {
    let Ok(trace) = Trace::open(file) else { return };
    let mut image = Vec::new();
    for buffer in trace.buffers() {
        let start = usize::try_from(buffer.offset).unwrap_or(usize::MAX).min(file.len());
        let raw = &file[start..start.saturating_add(buffer.size as usize).min(file.len())];
        let Some(header) = raw.first_chunk().map(BufferHeader::parse) else { continue };
        if etl::unpack(raw, &mut image).is_err() {
            continue;
        }
        let records = image[HEADER_SIZE..].to_vec();
        let mut stream = raw[HEADER_SIZE..].to_vec();
        if !header.is_compressed() {
            Compressor::new().compress(&records, &mut stream);
        }
        buffers.push(SampleBuffer { records, stream });
    }
}
