//! Writes a trace with a known story, half a second long, to ask questions about:
//!
//! ```text
//!   ms      0        100         300    350      420    450        480          481
//!   2001    Cart.Add │ Prices.Sum │ Cart.Add …                      a message    orders.exe ends
//!           "import begins"   "import ends"
//!   2002    running                     waiting  ready, woken by 3001
//!   3001                                running  waiting; wrote most to journal.log
//!   CPU 2                                               events were lost before
//! ```

use std::io::Result;
use std::path::Path;

use traceweir_format::dotnet::RUNTIME;
use traceweir_format::header::event::EventHeader;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::Put;

use super::kernel_trace::{KernelWriter, Switch, Transfer, WAITING};

const END_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROCESS_END, 4);
/// The event `PerfInfo/Mark`: a text.
const MARK: u16 = 0x0F22;
/// The event `MethodLoadVerbose`.
const METHOD_LOAD: u16 = 143;

const ORDERS: u32 = 200;
const BACKUP: u32 = 300;
const MAIN_THREAD: u32 = 2001;
const WORKER: u32 = 2002;
const BACKUP_THREAD: u32 = 3001;
const CODE: u64 = 0x7FF9_0000_0000;
const ADD: u64 = CODE + 0x1000;
const SUM: u64 = CODE + 0x3000;
const JOURNAL: u64 = 0xFFFF_8000_0000_1000;
const PRICES: u64 = 0xFFFF_8000_0000_2000;
const MILLISECOND: i64 = 10_000;

/// Writes the trace.
pub(crate) fn write(path: &Path) -> Result<()> {
    let mut output = KernelWriter::create(path, 3)?;
    write_rundown(&mut output)?;
    let at = |time: i64| time * MILLISECOND;
    output.put_switch(0, 1, run(MAIN_THREAD, 0))?;
    output.put_switch(1, 1, run(WORKER, 0))?;
    for millisecond in 1..500 {
        let time = at(millisecond);
        match millisecond {
            100 => put_mark(&mut output, 0, time, "import begins")?,
            300 => put_mark(&mut output, 0, time, "import ends")?,
            350 => output.put_switch(1, time, run(BACKUP_THREAD, WORKER))?,
            420 => {
                output.put_ready(1, time, WORKER)?;
                output.put_switch(1, time + 5000, run(WORKER, BACKUP_THREAD))?;
            }
            450 => {
                output.flag_loss(2)?;
                put_mark(&mut output, 2, time, "backup of the journal is late")?;
            }
            480 => {
                put_mark(&mut output, 0, time, "order 4711: the price list is empty")?;
                put_end(&mut output, time + 10)?;
                output.put_switch(0, time + 20, run(0, MAIN_THREAD))?;
                break;
            }
            _ => {}
        }
        let is_import = (100..300).contains(&millisecond);
        // Outside of the import, all samples are in Add, so that it is the hottest of the whole trace.
        let function = if is_import && millisecond % 5 != 0 { SUM } else { ADD };
        output.put_sample(0, time + 20, MAIN_THREAD, function + 0x40)?;
        output.put_stack(0, time + 20, ORDERS, MAIN_THREAD, &[function + 0x40, CODE + 0x10])?;
        if (350..420).contains(&millisecond) {
            put_transfer(&mut output, time + 30, JOURNAL, 256 << 10, true)?;
            put_transfer(&mut output, time + 60, PRICES, 1 << 20, false)?;
            put_transfer(&mut output, time + 90, PRICES, 4 << 10, true)?;
        }
    }
    output.finish(at(500), 17).map(drop)
}

const fn run(new_tid: u32, old_tid: u32) -> Switch {
    Switch { new_tid, old_tid, old_state: WAITING, wait_reason: 6 }
}

fn write_rundown(output: &mut KernelWriter) -> Result<()> {
    for (pid, name, threads) in
        [(ORDERS, "orders.exe", &[MAIN_THREAD, WORKER][..]), (BACKUP, "backup.exe", &[BACKUP_THREAD])]
    {
        output.put_process(pid, name, name)?;
        threads.iter().try_for_each(|tid| output.put_thread(pid, *tid))?;
    }
    output.put_file(JOURNAL, "\\Device\\HarddiskVolume1\\data\\journal.log")?;
    output.put_file(PRICES, "\\Device\\HarddiskVolume1\\data\\prices.db")?;
    for (start, namespace, name) in
        [(CODE, "Shop.Program", "Main"), (ADD, "Shop.Cart", "Add"), (SUM, "Shop.Prices", "Sum")]
    {
        output.payload.clear();
        output.payload.put_u64(start).put_u64(1).put_u64(start).put_u32(0x1000).put_u32(1).put_u32(1);
        for text in [namespace, name, "void  ()"] {
            output.payload.put_wide_z(text);
        }
        let descriptor = EventDescriptor { id: METHOD_LOAD, ..EventDescriptor::default() };
        let header = EventHeader {
            provider: RUNTIME,
            descriptor,
            process_id: ORDERS,
            thread_id: MAIN_THREAD,
            ..EventHeader::default()
        };
        output.put_event(&header, 0)?;
    }
    Ok(())
}

fn put_mark(output: &mut KernelWriter, cpu: u16, time: i64, text: &str) -> Result<()> {
    output.payload.clear();
    output.payload.extend_from_slice(text.as_bytes());
    output.payload.push(0);
    output.put_perfinfo(MARK, 0, cpu, time)
}

fn put_end(output: &mut KernelWriter, time: i64) -> Result<()> {
    output.payload.clear();
    put_kernel_event!(
        &mut output.payload,
        END_LAYOUT,
        { ProcessId: ORDERS, ParentId: 4_u32, SessionId: 1_u32, ExitStatus: 0xC000_0005_u32.cast_signed() },
        { UserSID: None::<&Sid>, ImageFileName: "orders.exe", CommandLine: "orders.exe", PackageFullName: "", ApplicationId: "" }
    );
    output.put_system(hook::PROCESS_END, END_LAYOUT.version(), 0, time)
}

fn put_transfer(output: &mut KernelWriter, time: i64, file: u64, bytes: u32, is_write: bool) -> Result<()> {
    output.put_transfer(1, time, Transfer { tid: BACKUP_THREAD, file, bytes, is_write, duration: 500 })
}
