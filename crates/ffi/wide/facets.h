// The facets of wide streams: what libstdc++'s streams ask a locale for.
//
// A locale has one facet for each kind, and those for wchar_t in libstdc++.so expect 32 bits. Other
// code of the process may use them, so the locales stay as they are. Instead, the functions by
// which the streams of this library fetch a facet return ours, whatever the locale is.
//
// The namespace std of libstdc++ has the visibility "default", which would outweigh the compiler's
// option -fvisibility=hidden; so its macro is replaced before the first header. The file that has
// the instances (TRACEWEIR_WIDE_INSTANCES) must not see the promise that libstdc++.so has them.
#ifndef TRACEWEIR_WIDE_FACETS_H
#define TRACEWEIR_WIDE_FACETS_H

#include <bits/c++config.h>
#undef _GLIBCXX_VISIBILITY
#define _GLIBCXX_VISIBILITY(kind)
#ifdef TRACEWEIR_WIDE_INSTANCES
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
#endif

#include <locale>

static_assert(sizeof(wchar_t) == 2, "compile with -fshort-wchar");

namespace traceweir_wide {

const std::ctype<wchar_t> &get_ctype();
const std::codecvt<wchar_t, char, std::mbstate_t> &get_codecvt();

template <class Facet>
const Facet &get_facet() {
    static const auto &facet = *new Facet(1);
    return facet;
}

template <>
inline const std::ctype<wchar_t> &get_facet<std::ctype<wchar_t>>() {
    return get_ctype();
}

template <>
inline const std::codecvt<wchar_t, char, std::mbstate_t> &get_facet<std::codecvt<wchar_t, char, std::mbstate_t>>() {
    return get_codecvt();
}

} // namespace traceweir_wide

namespace std {

// Newer versions of libstdc++ have a third function.
#if _GLIBCXX_RELEASE >= 13
#define TRACEWEIR_TRY_USE_FACET(...)                                              \
    template <>                                                                   \
    inline const __VA_ARGS__ *__try_use_facet<__VA_ARGS__>(const locale &) noexcept { \
        return &traceweir_wide::get_facet<__VA_ARGS__>();                         \
    }
#else
#define TRACEWEIR_TRY_USE_FACET(...)
#endif

#define TRACEWEIR_USE_FACET(...)                                        \
    template <>                                                         \
    const __VA_ARGS__ &use_facet<__VA_ARGS__>(const locale &) {         \
        return traceweir_wide::get_facet<__VA_ARGS__>();                \
    }                                                                   \
    template <>                                                         \
    bool has_facet<__VA_ARGS__>(const locale &) noexcept {              \
        return true;                                                    \
    }                                                                   \
    TRACEWEIR_TRY_USE_FACET(__VA_ARGS__)

} // namespace std

#endif
