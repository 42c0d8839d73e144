// std::codecvt_utf8 and std::codecvt_utf8_utf16, with which programs convert text
// (std::wstring_convert): for a wchar_t of 16 bits both are the conversion of file streams.
#include "facets.h"

#include <codecvt>

namespace std {

#define DEFINE_CODECVT(name)                                                                                                    \
    name<wchar_t>::~name() {}                                                                                                   \
    codecvt_base::result name<wchar_t>::do_out(mbstate_t &state, const wchar_t *from, const wchar_t *end, const wchar_t *&next, \
                                               char *to, char *to_end, char *&to_next) const {                                  \
        return traceweir_wide::get_codecvt().out(state, from, end, next, to, to_end, to_next);                                  \
    }                                                                                                                           \
    codecvt_base::result name<wchar_t>::do_in(mbstate_t &state, const char *from, const char *end, const char *&next,           \
                                              wchar_t *to, wchar_t *to_end, wchar_t *&to_next) const {                          \
        return traceweir_wide::get_codecvt().in(state, from, end, next, to, to_end, to_next);                                   \
    }                                                                                                                           \
    codecvt_base::result name<wchar_t>::do_unshift(mbstate_t &state, char *to, char *end, char *&next) const {                  \
        return traceweir_wide::get_codecvt().unshift(state, to, end, next);                                                     \
    }                                                                                                                           \
    int name<wchar_t>::do_encoding() const noexcept { return 0; }                                                               \
    bool name<wchar_t>::do_always_noconv() const noexcept { return false; }                                                     \
    int name<wchar_t>::do_max_length() const noexcept { return 4; }                                                             \
    int name<wchar_t>::do_length(mbstate_t &state, const char *from, const char *end, size_t most) const {                      \
        return traceweir_wide::get_codecvt().length(state, from, end, most);                                                    \
    }

DEFINE_CODECVT(__codecvt_utf8_base)
DEFINE_CODECVT(__codecvt_utf8_utf16_base)

} // namespace std
