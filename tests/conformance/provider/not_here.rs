//! Rules of the provider's half that are not tested here, and why.

use crate::rule::{NotHere, not_here};

pub(crate) const NOT_HERE: &[NotHere] = &[
    not_here!("provider 1", H, "layouts of EVENT_DESCRIPTOR and EVENT_DATA_DESCRIPTOR", "C façade"),
    not_here!("provider 2", O, "Provider or Out NULL → 87; the handle is 0 after a failure", "C façade"),
    not_here!("provider 2", D, "a library unregisters before it unloads", "a rule for callers"),
    not_here!(
        "provider 3",
        D,
        "the callee is quick, takes no loader lock, makes no session-control calls",
        "a rule for callers"
    ),
    not_here!("provider 4.1", D, "desc NULL; n > 0 with NULL data; NULL Ptr with a size → 87", "C façade"),
    not_here!("provider 4.3", D, "descriptor types", "comes with the TraceLogging providers"),
    not_here!(
        "provider 4.4",
        P,
        "header flags that the consumer adds",
        "the consumer's half of the contract (decision 29)"
    ),
    not_here!("provider 4.6", O, "NULL string → 87", "C façade"),
    not_here!("provider 6", D, "EventSetInformation", "comes with the TraceLogging providers"),
    not_here!("provider 7", D, "EtwGetTraitFromProviderTraits", "C façade"),
    not_here!("provider 8", H, "layouts of classic structures; NULLs", "C façade"),
];
