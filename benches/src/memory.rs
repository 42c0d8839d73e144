//! Measures memory while reading a file much larger than the allowed memory.
//!
//! This process writes a real (not sparse) file of 4 GiB. A child process decodes it completely and
//! reports its peak memory. The limit includes the memory that any reader needs: one buffer for
//! each processor.

use std::path::Path;

use crate::error::{Error, Result};
use crate::etl::{self, EtlLayout};
use crate::figure::{Figure, FigureUnit, Requirement, Rounds};
use crate::{peer, process};

const FILE_BYTES: u64 = 4 << 30;
/// Bytes that must stay free on the disk.
const RESERVE_BYTES: u64 = 1 << 30;
/// Memory that a reader may use in addition to its buffers, in MiB.
const BASE_MIB: f64 = 64.0;
const MIB: f64 = 1024.0 * 1024.0;

/// Figure, number of processors and buffer size in bytes of each case.
const CASES: [(&str, u16, u32); 2] =
    [("read_memory", 2, 64 << 10), ("read_memory_large_buffers", 8, 1 << 20)];

/// Measures all cases, or none if the disk has too little space.
pub(crate) fn measure(folder: &Path) -> Result<Vec<Figure>> {
    let free = process::free_bytes(folder)?;
    if free < FILE_BYTES + RESERVE_BYTES {
        eprintln!("read_memory left out: {} has {} MiB free, 5 GiB are needed", folder.display(), free >> 20);
        return Ok(Vec::new());
    }
    let mut figures = Vec::new();
    for (name, cpus, buffer_size) in CASES {
        eprintln!("{name}: 4 GiB, {cpus} processors, buffers of {} KiB", buffer_size >> 10);
        let peak_mib = peak_mib(&folder.join("large.etl"), cpus, buffer_size)?;
        let limit_mib = BASE_MIB + f64::from(cpus) * f64::from(buffer_size) / MIB;
        let mut rounds = Rounds::default();
        rounds.add(Some(peak_mib), Some(limit_mib));
        let figure = rounds.figure(name, FigureUnit::Mebibytes, Requirement::at_least(1.0).with_target(1.0));
        // Here the peer is the limit, and a larger ratio is better.
        figures.extend(figure.map(|f| Figure { ratio: f.peer / f.ours, ..f }));
    }
    Ok(figures)
}

fn peak_mib(path: &Path, cpus: u16, buffer_size: u32) -> Result<f64> {
    let written = etl::write(path, EtlLayout { cpus, buffer_size, events: u64::MAX, bytes: FILE_BYTES })?;
    let decoded = peer::run_our_decoder(path);
    std::fs::remove_file(path).map_err(Error::file(path))?;
    let (_, tally, peak_kib) = decoded?;
    if tally.events != written.events {
        let reason = format!("{} of {} events in the large file", tally.events, written.events);
        return Err(Error::WrongEvents { reader: "our reader", reason });
    }
    // The KiB of a process are far below 2⁵³.
    #[allow(clippy::cast_precision_loss)]
    Ok(peak_kib as f64 / 1024.0)
}
