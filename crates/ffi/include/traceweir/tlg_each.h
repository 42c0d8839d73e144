/* Macros that expand once for each argument. Part of TraceLoggingProvider.h.
 *
 *   _TLG_EACH(m, skipped, a, b, c)   ->   m(3, a) m(2, b) m(1, c)
 *
 * The first item of the list is skipped: it stands before the arguments and is always there, so
 * that a list without arguments needs no empty "...", which C11 forbids. The number passed to m is
 * different for each argument, and can be used to make names.
 */
#ifndef TRACEWEIR_TLG_EACH_H
#define TRACEWEIR_TLG_EACH_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#define _TLG_CAT(a, b) _TLG_CAT_(a, b)
#define _TLG_CAT_(a, b) a##b
#define _TLG_UNPACK(...) __VA_ARGS__
#define _TLG_FIRST(...) _TLG_FIRST_(__VA_ARGS__, 0)
#define _TLG_FIRST_(first, ...) first

/* The number of arguments: 1 to 99 as a number, more as a name that the compiler rejects. */
#define _TLG_COUNT(...)                                                                                                \
    _TLG_COUNT_(__VA_ARGS__,                                                                                           \
    more_than_99_arguments, more_than_99_arguments, more_than_99_arguments, more_than_99_arguments,                    \
    more_than_99_arguments, more_than_99_arguments, more_than_99_arguments, more_than_99_arguments,                    \
    more_than_99_arguments, more_than_99_arguments, more_than_99_arguments, 99, 98, 97, 96, 95, 94, 93, 92, 91, 90,    \
    89, 88, 87, 86, 85, 84, 83, 82, 81, 80, 79, 78, 77, 76, 75, 74, 73, 72, 71, 70, 69, 68, 67, 66, 65, 64, 63, 62,    \
    61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, 36, 35, 34,    \
    33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4,  \
    3, 2, 1, 0)
#define _TLG_COUNT_(                                                                                                   \
    _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, _22, _23, _24,     \
    _25, _26, _27, _28, _29, _30, _31, _32, _33, _34, _35, _36, _37, _38, _39, _40, _41, _42, _43, _44, _45, _46, _47, \
    _48, _49, _50, _51, _52, _53, _54, _55, _56, _57, _58, _59, _60, _61, _62, _63, _64, _65, _66, _67, _68, _69, _70, \
    _71, _72, _73, _74, _75, _76, _77, _78, _79, _80, _81, _82, _83, _84, _85, _86, _87, _88, _89, _90, _91, _92, _93, \
    _94, _95, _96, _97, _98, _99, _100, _101, _102, _103, _104, _105, _106, _107, _108, _109, _110, n, ...)           \
    n

/* Expands to 0 for one argument, to 1 for more. */
#define _TLG_MORE(...)                                                          \
    _TLG_COUNT_(__VA_ARGS__,                                                                                          \
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  \
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  \
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)

#define _TLG_EACH(m, ...) _TLG_CAT(_TLG_EACH_AFTER_, _TLG_MORE(__VA_ARGS__))(m, __VA_ARGS__)
#define _TLG_EACH_AFTER_0(m, skipped)
#define _TLG_EACH_AFTER_1(m, skipped, ...) _TLG_CAT(_TLG_EACH_, _TLG_COUNT(__VA_ARGS__))(m, __VA_ARGS__)

#define _TLG_EACH_1(m, a) m(1, a)
#define _TLG_EACH_2(m, a, ...) m(2, a) _TLG_EACH_1(m, __VA_ARGS__)
#define _TLG_EACH_3(m, a, ...) m(3, a) _TLG_EACH_2(m, __VA_ARGS__)
#define _TLG_EACH_4(m, a, ...) m(4, a) _TLG_EACH_3(m, __VA_ARGS__)
#define _TLG_EACH_5(m, a, ...) m(5, a) _TLG_EACH_4(m, __VA_ARGS__)
#define _TLG_EACH_6(m, a, ...) m(6, a) _TLG_EACH_5(m, __VA_ARGS__)
#define _TLG_EACH_7(m, a, ...) m(7, a) _TLG_EACH_6(m, __VA_ARGS__)
#define _TLG_EACH_8(m, a, ...) m(8, a) _TLG_EACH_7(m, __VA_ARGS__)
#define _TLG_EACH_9(m, a, ...) m(9, a) _TLG_EACH_8(m, __VA_ARGS__)
#define _TLG_EACH_10(m, a, ...) m(10, a) _TLG_EACH_9(m, __VA_ARGS__)
#define _TLG_EACH_11(m, a, ...) m(11, a) _TLG_EACH_10(m, __VA_ARGS__)
#define _TLG_EACH_12(m, a, ...) m(12, a) _TLG_EACH_11(m, __VA_ARGS__)
#define _TLG_EACH_13(m, a, ...) m(13, a) _TLG_EACH_12(m, __VA_ARGS__)
#define _TLG_EACH_14(m, a, ...) m(14, a) _TLG_EACH_13(m, __VA_ARGS__)
#define _TLG_EACH_15(m, a, ...) m(15, a) _TLG_EACH_14(m, __VA_ARGS__)
#define _TLG_EACH_16(m, a, ...) m(16, a) _TLG_EACH_15(m, __VA_ARGS__)
#define _TLG_EACH_17(m, a, ...) m(17, a) _TLG_EACH_16(m, __VA_ARGS__)
#define _TLG_EACH_18(m, a, ...) m(18, a) _TLG_EACH_17(m, __VA_ARGS__)
#define _TLG_EACH_19(m, a, ...) m(19, a) _TLG_EACH_18(m, __VA_ARGS__)
#define _TLG_EACH_20(m, a, ...) m(20, a) _TLG_EACH_19(m, __VA_ARGS__)
#define _TLG_EACH_21(m, a, ...) m(21, a) _TLG_EACH_20(m, __VA_ARGS__)
#define _TLG_EACH_22(m, a, ...) m(22, a) _TLG_EACH_21(m, __VA_ARGS__)
#define _TLG_EACH_23(m, a, ...) m(23, a) _TLG_EACH_22(m, __VA_ARGS__)
#define _TLG_EACH_24(m, a, ...) m(24, a) _TLG_EACH_23(m, __VA_ARGS__)
#define _TLG_EACH_25(m, a, ...) m(25, a) _TLG_EACH_24(m, __VA_ARGS__)
#define _TLG_EACH_26(m, a, ...) m(26, a) _TLG_EACH_25(m, __VA_ARGS__)
#define _TLG_EACH_27(m, a, ...) m(27, a) _TLG_EACH_26(m, __VA_ARGS__)
#define _TLG_EACH_28(m, a, ...) m(28, a) _TLG_EACH_27(m, __VA_ARGS__)
#define _TLG_EACH_29(m, a, ...) m(29, a) _TLG_EACH_28(m, __VA_ARGS__)
#define _TLG_EACH_30(m, a, ...) m(30, a) _TLG_EACH_29(m, __VA_ARGS__)
#define _TLG_EACH_31(m, a, ...) m(31, a) _TLG_EACH_30(m, __VA_ARGS__)
#define _TLG_EACH_32(m, a, ...) m(32, a) _TLG_EACH_31(m, __VA_ARGS__)
#define _TLG_EACH_33(m, a, ...) m(33, a) _TLG_EACH_32(m, __VA_ARGS__)
#define _TLG_EACH_34(m, a, ...) m(34, a) _TLG_EACH_33(m, __VA_ARGS__)
#define _TLG_EACH_35(m, a, ...) m(35, a) _TLG_EACH_34(m, __VA_ARGS__)
#define _TLG_EACH_36(m, a, ...) m(36, a) _TLG_EACH_35(m, __VA_ARGS__)
#define _TLG_EACH_37(m, a, ...) m(37, a) _TLG_EACH_36(m, __VA_ARGS__)
#define _TLG_EACH_38(m, a, ...) m(38, a) _TLG_EACH_37(m, __VA_ARGS__)
#define _TLG_EACH_39(m, a, ...) m(39, a) _TLG_EACH_38(m, __VA_ARGS__)
#define _TLG_EACH_40(m, a, ...) m(40, a) _TLG_EACH_39(m, __VA_ARGS__)
#define _TLG_EACH_41(m, a, ...) m(41, a) _TLG_EACH_40(m, __VA_ARGS__)
#define _TLG_EACH_42(m, a, ...) m(42, a) _TLG_EACH_41(m, __VA_ARGS__)
#define _TLG_EACH_43(m, a, ...) m(43, a) _TLG_EACH_42(m, __VA_ARGS__)
#define _TLG_EACH_44(m, a, ...) m(44, a) _TLG_EACH_43(m, __VA_ARGS__)
#define _TLG_EACH_45(m, a, ...) m(45, a) _TLG_EACH_44(m, __VA_ARGS__)
#define _TLG_EACH_46(m, a, ...) m(46, a) _TLG_EACH_45(m, __VA_ARGS__)
#define _TLG_EACH_47(m, a, ...) m(47, a) _TLG_EACH_46(m, __VA_ARGS__)
#define _TLG_EACH_48(m, a, ...) m(48, a) _TLG_EACH_47(m, __VA_ARGS__)
#define _TLG_EACH_49(m, a, ...) m(49, a) _TLG_EACH_48(m, __VA_ARGS__)
#define _TLG_EACH_50(m, a, ...) m(50, a) _TLG_EACH_49(m, __VA_ARGS__)
#define _TLG_EACH_51(m, a, ...) m(51, a) _TLG_EACH_50(m, __VA_ARGS__)
#define _TLG_EACH_52(m, a, ...) m(52, a) _TLG_EACH_51(m, __VA_ARGS__)
#define _TLG_EACH_53(m, a, ...) m(53, a) _TLG_EACH_52(m, __VA_ARGS__)
#define _TLG_EACH_54(m, a, ...) m(54, a) _TLG_EACH_53(m, __VA_ARGS__)
#define _TLG_EACH_55(m, a, ...) m(55, a) _TLG_EACH_54(m, __VA_ARGS__)
#define _TLG_EACH_56(m, a, ...) m(56, a) _TLG_EACH_55(m, __VA_ARGS__)
#define _TLG_EACH_57(m, a, ...) m(57, a) _TLG_EACH_56(m, __VA_ARGS__)
#define _TLG_EACH_58(m, a, ...) m(58, a) _TLG_EACH_57(m, __VA_ARGS__)
#define _TLG_EACH_59(m, a, ...) m(59, a) _TLG_EACH_58(m, __VA_ARGS__)
#define _TLG_EACH_60(m, a, ...) m(60, a) _TLG_EACH_59(m, __VA_ARGS__)
#define _TLG_EACH_61(m, a, ...) m(61, a) _TLG_EACH_60(m, __VA_ARGS__)
#define _TLG_EACH_62(m, a, ...) m(62, a) _TLG_EACH_61(m, __VA_ARGS__)
#define _TLG_EACH_63(m, a, ...) m(63, a) _TLG_EACH_62(m, __VA_ARGS__)
#define _TLG_EACH_64(m, a, ...) m(64, a) _TLG_EACH_63(m, __VA_ARGS__)
#define _TLG_EACH_65(m, a, ...) m(65, a) _TLG_EACH_64(m, __VA_ARGS__)
#define _TLG_EACH_66(m, a, ...) m(66, a) _TLG_EACH_65(m, __VA_ARGS__)
#define _TLG_EACH_67(m, a, ...) m(67, a) _TLG_EACH_66(m, __VA_ARGS__)
#define _TLG_EACH_68(m, a, ...) m(68, a) _TLG_EACH_67(m, __VA_ARGS__)
#define _TLG_EACH_69(m, a, ...) m(69, a) _TLG_EACH_68(m, __VA_ARGS__)
#define _TLG_EACH_70(m, a, ...) m(70, a) _TLG_EACH_69(m, __VA_ARGS__)
#define _TLG_EACH_71(m, a, ...) m(71, a) _TLG_EACH_70(m, __VA_ARGS__)
#define _TLG_EACH_72(m, a, ...) m(72, a) _TLG_EACH_71(m, __VA_ARGS__)
#define _TLG_EACH_73(m, a, ...) m(73, a) _TLG_EACH_72(m, __VA_ARGS__)
#define _TLG_EACH_74(m, a, ...) m(74, a) _TLG_EACH_73(m, __VA_ARGS__)
#define _TLG_EACH_75(m, a, ...) m(75, a) _TLG_EACH_74(m, __VA_ARGS__)
#define _TLG_EACH_76(m, a, ...) m(76, a) _TLG_EACH_75(m, __VA_ARGS__)
#define _TLG_EACH_77(m, a, ...) m(77, a) _TLG_EACH_76(m, __VA_ARGS__)
#define _TLG_EACH_78(m, a, ...) m(78, a) _TLG_EACH_77(m, __VA_ARGS__)
#define _TLG_EACH_79(m, a, ...) m(79, a) _TLG_EACH_78(m, __VA_ARGS__)
#define _TLG_EACH_80(m, a, ...) m(80, a) _TLG_EACH_79(m, __VA_ARGS__)
#define _TLG_EACH_81(m, a, ...) m(81, a) _TLG_EACH_80(m, __VA_ARGS__)
#define _TLG_EACH_82(m, a, ...) m(82, a) _TLG_EACH_81(m, __VA_ARGS__)
#define _TLG_EACH_83(m, a, ...) m(83, a) _TLG_EACH_82(m, __VA_ARGS__)
#define _TLG_EACH_84(m, a, ...) m(84, a) _TLG_EACH_83(m, __VA_ARGS__)
#define _TLG_EACH_85(m, a, ...) m(85, a) _TLG_EACH_84(m, __VA_ARGS__)
#define _TLG_EACH_86(m, a, ...) m(86, a) _TLG_EACH_85(m, __VA_ARGS__)
#define _TLG_EACH_87(m, a, ...) m(87, a) _TLG_EACH_86(m, __VA_ARGS__)
#define _TLG_EACH_88(m, a, ...) m(88, a) _TLG_EACH_87(m, __VA_ARGS__)
#define _TLG_EACH_89(m, a, ...) m(89, a) _TLG_EACH_88(m, __VA_ARGS__)
#define _TLG_EACH_90(m, a, ...) m(90, a) _TLG_EACH_89(m, __VA_ARGS__)
#define _TLG_EACH_91(m, a, ...) m(91, a) _TLG_EACH_90(m, __VA_ARGS__)
#define _TLG_EACH_92(m, a, ...) m(92, a) _TLG_EACH_91(m, __VA_ARGS__)
#define _TLG_EACH_93(m, a, ...) m(93, a) _TLG_EACH_92(m, __VA_ARGS__)
#define _TLG_EACH_94(m, a, ...) m(94, a) _TLG_EACH_93(m, __VA_ARGS__)
#define _TLG_EACH_95(m, a, ...) m(95, a) _TLG_EACH_94(m, __VA_ARGS__)
#define _TLG_EACH_96(m, a, ...) m(96, a) _TLG_EACH_95(m, __VA_ARGS__)
#define _TLG_EACH_97(m, a, ...) m(97, a) _TLG_EACH_96(m, __VA_ARGS__)
#define _TLG_EACH_98(m, a, ...) m(98, a) _TLG_EACH_97(m, __VA_ARGS__)
#define _TLG_EACH_99(m, a, ...) m(99, a) _TLG_EACH_98(m, __VA_ARGS__)

#endif /* TRACEWEIR_TLG_EACH_H */
