//! Seeds of index files of `weir view`.

use traceweir_fuzz::kernel_trace;
use traceweir_view::probe::build_index;

use crate::Seeds;

pub(crate) fn view_index_seeds() -> Seeds {
    let trace = tempfile::NamedTempFile::new().expect("a temporary file can be created");
    kernel_trace::write(trace.path()).expect("the trace can be written");
    let index = build_index(trace.reopen().expect("the trace can be opened")).expect("the trace is valid");
    let cut = index[index.len() / 2..].to_vec();
    vec![("kernel", index), ("cut", cut)]
}
