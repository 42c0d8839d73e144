mod smoke {
    use traceweir::{define_provider, write_event};
    define_provider!(P, "Smoke", group_id("12345678-9abc-def0-1234-56789abcdef0"),);
    #[test]
    fn smoke() {
        let s = String::from("x");
        let r = write_event!(P, "E", level(Warning), keyword(1), keyword(2), u32("a", &1), str8("b", &s), cstr16("c", &[65, 66]), f32_slice("d", &[]),
            struct("s", tag(3), { u8("n", &3, format(Hex)), systemtime("t", &std::time::SystemTime::now()) }), ipv6("six", &[0; 16]), activity_id(&[1; 16]), related_id(P.id()));
        assert_eq!(r, 0);
        assert!(!traceweir::provider_enabled!(P, traceweir::tracelogging::Level::Error, 3));
    }
}
