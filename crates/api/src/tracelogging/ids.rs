//! Functions about ids. Microsoft's crates offer them for each type of provider, although they need
//! no provider.

/// Implements these functions for a type of providers whose id type is its parameter.
macro_rules! id_functions {
    ($of:ident) => {
        impl<G: $crate::tracelogging::values::Id> $of<G> {
            /// Returns the thread's activity id.
            pub fn current_thread_activity_id() -> G {
                $crate::provider::activity::current().into()
            }

            /// Sets the thread's activity id and returns the former one.
            pub fn set_current_thread_activity_id(value: &G) -> G {
                $crate::provider::activity::set((*value).into()).into()
            }

            /// Returns a new activity id, unique on the machine until it restarts.
            pub fn create_activity_id() -> G {
                $crate::provider::activity::create().into()
            }

            /// Returns the default id of a provider with this name.
            pub fn guid_from_name(name: &str) -> G {
                traceweir_format::Guid::from_provider_name(name).into()
            }
        }
    };
}

pub(super) use id_functions;
