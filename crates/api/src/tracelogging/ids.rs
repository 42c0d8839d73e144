//! Functions about ids that every kind of provider has, as the published ones do, though they ask nothing of a provider.

/// Gives them to a type of providers whose ids are its parameter.
macro_rules! id_functions {
    ($of:ident) => {
        impl<G: $crate::tracelogging::values::Id> $of<G> {
            /// The thread's activity id.
            pub fn current_thread_activity_id() -> G {
                $crate::provider::activity::current().into()
            }

            /// Sets the thread's activity id and returns the one before.
            pub fn set_current_thread_activity_id(value: &G) -> G {
                $crate::provider::activity::set((*value).into()).into()
            }

            /// A new activity id, unique on the machine until it restarts.
            pub fn create_activity_id() -> G {
                $crate::provider::activity::create().into()
            }

            /// The id that a provider of this name has if it is not given another.
            pub fn guid_from_name(name: &str) -> G {
                traceweir_format::Guid::from_provider_name(name).into()
            }
        }
    };
}

pub(super) use id_functions;
