//! Random messages for the property tests, grouped by the kind of client that exchanges them with
//! the daemon.

use super::*;

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("no NUL", |c| *c != '\0'), 0..40).prop_map(String::from_iter)
}

fn path() -> impl Strategy<Value = PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    vec(1_u8..=255, 0..60).prop_map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn guid() -> impl Strategy<Value = Guid> {
    any::<[u8; 16]>().prop_map(|bytes| Guid::from_bytes(&bytes))
}

fn session() -> impl Strategy<Value = SessionRef> {
    prop_oneof![any::<u64>().prop_map(SessionRef::Id), text().prop_map(SessionRef::Name)]
}

fn filters() -> impl Strategy<Value = Vec<Filter>> {
    let filter = (any::<u32>(), vec(any::<u8>(), 0..100)).prop_map(|(kind, data)| Filter { kind, data });
    vec(filter, 0..=MAX_FILTERS)
}

prop_compose! {
    fn config()(
        name in text(), guid in guid(), log_file in option::of(path()), low_latency: bool, tied: bool, numbers: [u32; 11],
        options: u64, filters in filters(), kernel_stacks in vec(any::<u8>(), 0..100),
    ) -> SessionConfig {
        let [log_file_mode, clock, buffer_size, minimum_buffers, maximum_buffers, maximum_file_size, flush_timer, ring_bytes,
            enable_flags, flush_threshold, stack_bytes] = numbers;
        SessionConfig {
            name, guid, log_file_mode, clock, buffer_size, minimum_buffers, maximum_buffers, maximum_file_size, flush_timer,
            log_file, low_latency, ring_bytes, tied, enable_flags, flush_threshold, options, filters, stack_bytes, kernel_stacks,
        }
    }
}

prop_compose! {
    fn properties()(config in config(), small: [u32; 11], large: [u64; 11]) -> Properties {
        Properties {
            id: large[0],
            config,
            number_of_buffers: small[0],
            free_buffers: small[1],
            buffers_written: small[2],
            events_lost: large[1],
            log_buffers_lost: small[3],
            real_time_buffers_lost: small[4],
            real_time_events_lost: large[2],
            logger_thread_id: small[5],
            events: large[3],
            lost_by_cause: LostByCause {
                no_room: large[4],
                not_written: large[5],
                damaged: large[6],
                no_region: large[8],
                kernel: large[9],
                overwritten: large[10],
            },
            processes: small[6],
            consumers: small[7],
            damaged_regions: small[8],
            uncounted_processes: small[0],
            collector_ns: large[7],
            end_status: small[9],
            overwritten_buffers: small[10],
        }
    }
}

fn control() -> impl Strategy<Value = Control> {
    let update = (any::<(Option<u32>, Option<u32>, Option<bool>, Option<u32>)>(), option::of(path()))
        .prop_map(|((flush_timer, maximum_buffers, real_time, enable_flags), log_file)| {
            Control::Update(Update { flush_timer, maximum_buffers, real_time, log_file, enable_flags })
        });
    let flush = option::of(path()).prop_map(|log_file| Control::Flush { log_file });
    prop_oneof![
        Just(Control::Query),
        Just(Control::Stop),
        Just(Control::Outcome),
        Just(Control::Increment),
        Just(Control::ConvertToRealTime),
        update,
        flush
    ]
}

fn code() -> impl Strategy<Value = EnableCode> {
    prop_oneof![Just(EnableCode::Disable), Just(EnableCode::Enable), Just(EnableCode::CaptureState)]
}

prop_compose! {
    fn params()(
        level: u8, match_any: u64, match_all: u64, property: u32, source in guid(),
        filters in filters(),
    ) -> Box<EnableParams> {
        Box::new(EnableParams { level, match_any, match_all, property, source, filters })
    }
}

prop_compose! {
    fn region()(
        raw_layout in option::of(any::<(u32, u16, u32)>()), cpus in 1_u16..=1024, shift in 12_u32..=28, is_empty: bool,
        uses_cycles: bool, wake_at: u32, max_record: u32,
    ) -> RegionParams {
        // A layout of any version, or `ours` if the random numbers are no valid layout.
        let ours = Layout::new(cpus, if is_empty { 0 } else { 1 << shift }).unwrap();
        let raw_layout = raw_layout.and_then(|(version, cpus, ring_bytes)| Layout::with_version(version, cpus, ring_bytes).ok());
        let layout = raw_layout.unwrap_or(ours);
        let clock = if uses_cycles { Counter::Cycles } else { Counter::Monotonic };
        RegionParams { layout, clock, wake_at, max_record }
    }
}

prop_compose! {
    fn enable_entry()(
        session: u64, level: u8, any: u64, all: u64, property: u32, filters in filters(), name in text(),
        traced: u32, left_out: u32,
    ) -> EnableEntry {
        EnableEntry { session, level, any, all, property, filters, name, traced, left_out }
    }
}

prop_compose! {
    fn provider()(
        provider in guid(), name in text(), pids in vec(any::<u32>(), 0..20),
        sessions in vec(enable_entry(), 0..4), privates in vec(enable_entry(), 0..2), groups in vec(guid(), 0..4), kinds: (bool, bool),
        contained in vec(any::<u32>(), 0..4),
    ) -> ProviderEntry {
        let (is_group, is_classic) = kinds;
        ProviderEntry { provider, name, pids, sessions, privates, groups, is_group, is_classic, contained }
    }
}

fn greeting() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::Provider), Just(Role::Controller), Just(Role::Consumer)];
    prop_oneof![
        (any::<(u16, u16)>(), role, any::<u64>(), text()).prop_map(|(versions, role, instance, program)| {
            Message::Hello { versions, role, instance, program }
        }),
        any::<(u16, u16)>().prop_map(|versions| Message::Knock { versions }),
        any::<(u16, u64)>().prop_map(|(version, daemon)| Message::Welcome { version, daemon }),
        (any::<u32>(), text()).prop_map(|(status, reason)| Message::Refused { status, reason }),
        Just(Message::Done),
    ]
}

fn provider_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<(u32, bool)>(), guid(), vec(any::<u8>(), 0..300)).prop_map(
            |((registration, classic), provider, traits)| Message::Register {
                registration,
                provider,
                traits,
                classic,
            }
        ),
        any::<u32>().prop_map(|registration| Message::Unregister { registration }),
        (any::<u32>(), vec(any::<u8>(), 0..300))
            .prop_map(|(registration, traits)| Message::SetTraits { registration, traits }),
        any::<u32>().prop_map(|order| Message::Ack { order }),
        any::<u32>().prop_map(|registration| Message::Registered { registration }),
        (any::<u64>(), region()).prop_map(|(session, params)| Message::Region { session, params }),
        (any::<(u32, u64)>(), vec(any::<u32>(), 0..9), code(), params()).prop_map(
            |((order, session), registrations, code, params)| {
                Message::Enable { order, registrations, session, code, params }
            }
        ),
        any::<(u32, u64)>().prop_map(|(order, session)| Message::CloseSession { order, session }),
        (vec(any::<u32>(), 0..9), any::<u64>())
            .prop_map(|(registrations, session)| Message::ReportModules { registrations, session }),
        (any::<(u32, Option<u32>, u64, u32)>(), text()).prop_map(
            |((order, registration, session, status), reason)| {
                Message::Failed { order, registration, session, status, reason }
            }
        ),
    ]
}

fn private_session_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<(u32, u64, u32)>(), config()).prop_map(|((order, session, starter), config)| {
            Message::PrivateStart { order, session, starter, config: Box::new(config) }
        }),
        (any::<(u32, u64, u32)>(), control()).prop_map(|((order, session, user), control)| {
            Message::PrivateControl { order, session, user, control }
        }),
        (any::<(u32, u64)>(), guid(), code(), params()).prop_map(
            |((order, session), provider, code, params)| {
                Message::PrivateEnable { order, session, provider, code, params }
            }
        ),
        (any::<(u32, u64, u32)>(), text(), properties()).prop_map(
            |((order, session, status), reason, properties)| {
                Message::PrivateState { order, session, status, reason, properties: Box::new(properties) }
            }
        ),
    ]
}

fn controller_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        config().prop_map(|config| Message::Start(Box::new(config))),
        (session(), control()).prop_map(|(session, control)| Message::Control { session, control }),
        properties().prop_map(|properties| Message::Properties(Box::new(properties))),
        any::<u32>().prop_map(|from| Message::QueryAll { from }),
        any::<u32>().prop_map(|from| Message::QueryEnded { from }),
        (any::<u32>(), vec(properties(), 0..5))
            .prop_map(|(total, sessions)| Message::Sessions { total, sessions }),
        (session(), guid(), code(), params(), text(), any::<u32>()).prop_map(
            |(session, provider, code, params, name, timeout_ms)| {
                Message::EnableProvider { session, provider, code, params, name, timeout_ms }
            }
        ),
        vec(guid(), 0..5).prop_map(|providers| Message::CheckEnables { providers }),
        any::<Option<(u128, bool)>>().prop_map(|after| Message::QueryProviders {
            after: after.map(|(guid, is_group)| (Guid::from_u128(guid), is_group))
        }),
        (any::<bool>(), vec(provider(), 0..5))
            .prop_map(|(more, providers)| Message::Providers { more, providers }),
        (guid(), any::<(u32, u32, bool)>(), vec(any::<u8>(), 0..70)).prop_map(
            |(object, (operation, rights, allow), sid)| Message::SetAccess {
                object,
                operation,
                sid,
                rights,
                allow,
            }
        ),
        guid().prop_map(|object| Message::QueryAccess { object }),
        vec(any::<u8>(), 0..300).prop_map(|descriptor| Message::Access { descriptor }),
        guid().prop_map(|object| Message::RemoveAccess { object }),
        any::<u32>().prop_map(|from| Message::QueryAccessLists { from }),
        (any::<u32>(), vec(guid(), 0..5))
            .prop_map(|(total, objects)| Message::AccessLists { total, objects }),
    ]
}

fn information_messages() -> impl Strategy<Value = Message> {
    let registration = (any::<(u32, bool, bool)>(), vec(enable_entry(), 0..4)).prop_map(
        |((pid, is_pre_enabled, is_classic), sessions)| RegistrationEntry {
            pid,
            is_pre_enabled,
            is_classic,
            sessions,
        },
    );
    prop_oneof![
        (session(), any::<u32>(), vec(any::<u8>(), 0..300))
            .prop_map(|(session, class, data)| Message::SetInformation { session, class, data }),
        (session(), any::<(u32, u32)>()).prop_map(|(session, (class, input))| Message::QueryInformation {
            session,
            class,
            input
        }),
        (session(), any::<u32>(), vec(any::<u8>(), 0..100)).prop_map(|(session, configuration, events)| {
            Message::ConfigureBranches { session, configuration, events }
        }),
        vec(any::<u8>(), 0..300).prop_map(|data| Message::Information { data }),
        session().prop_map(|session| Message::QueryKernelLosses { session }),
        vec(any::<u64>(), 0..300).prop_map(|lost| Message::KernelLosses { lost }),
        (guid(), any::<u32>()).prop_map(|(provider, from)| Message::QueryRegistrations { provider, from }),
        (any::<u32>(), vec(registration, 0..5))
            .prop_map(|(total, registrations)| Message::Registrations { total, registrations }),
    ]
}

fn consumer_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        session().prop_map(|session| Message::OpenConsumer { session }),
        (properties(), any::<(u32, u32)>(), vec(any::<u8>(), 0..500)).prop_map(
            |(properties, (slots, buffer_bytes), header)| Message::Consumer {
                properties: Box::new(properties),
                slots,
                buffer_bytes,
                header,
            }
        ),
    ]
}

pub(super) fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        greeting(),
        provider_messages(),
        private_session_messages(),
        controller_messages(),
        information_messages(),
        consumer_messages()
    ]
}
