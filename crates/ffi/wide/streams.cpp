// std::wcout and its siblings, and the facets of wide streams, for a wchar_t of 16 bits. Text
// leaves and enters as UTF-8.
#include "facets.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cwctype>
#include <istream>
#include <new>
#include <ostream>
#include <streambuf>

extern "C" {
struct text {
    int is_wide;
    const void *units;
    size_t length;
};
uint32_t traceweir_wide_next(const struct text *text, size_t *at);
size_t traceweir_wide_to_utf8(uint32_t code_point, char *bytes);
size_t traceweir_wide_to_utf16(uint32_t code_point, wchar_t *units);
}

namespace {

bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }

/// Classes and cases of characters.
class Ctype final : public std::ctype<wchar_t> {
public:
    using std::ctype<wchar_t>::ctype;

private:
    static bool has_class(mask classes, wchar_t unit) {
        return ((classes & space) && std::iswspace(unit)) || ((classes & print) && std::iswprint(unit)) ||
               ((classes & cntrl) && std::iswcntrl(unit)) || ((classes & upper) && std::iswupper(unit)) ||
               ((classes & lower) && std::iswlower(unit)) || ((classes & alpha) && std::iswalpha(unit)) ||
               ((classes & digit) && std::iswdigit(unit)) || ((classes & punct) && std::iswpunct(unit)) ||
               ((classes & xdigit) && std::iswxdigit(unit)) || ((classes & blank) && std::iswblank(unit));
    }

    bool do_is(mask classes, wchar_t unit) const override { return has_class(classes, unit); }

    const wchar_t *do_is(const wchar_t *from, const wchar_t *end, mask *classes) const override {
        for (; from < end; ++from, ++classes) {
            *classes = 0;
            for (unsigned bit = 0; bit < 16; ++bit)
                if (has_class(static_cast<mask>(1u << bit), *from))
                    *classes = static_cast<mask>(*classes | 1u << bit);
        }
        return end;
    }

    const wchar_t *do_scan_is(mask classes, const wchar_t *from, const wchar_t *end) const override {
        while (from < end && !has_class(classes, *from))
            ++from;
        return from;
    }

    const wchar_t *do_scan_not(mask classes, const wchar_t *from, const wchar_t *end) const override {
        while (from < end && has_class(classes, *from))
            ++from;
        return from;
    }

    wchar_t do_toupper(wchar_t unit) const override { return static_cast<wchar_t>(std::towupper(unit)); }
    wchar_t do_tolower(wchar_t unit) const override { return static_cast<wchar_t>(std::towlower(unit)); }

    const wchar_t *do_toupper(wchar_t *from, const wchar_t *end) const override {
        for (; from < end; ++from)
            *from = do_toupper(*from);
        return end;
    }

    const wchar_t *do_tolower(wchar_t *from, const wchar_t *end) const override {
        for (; from < end; ++from)
            *from = do_tolower(*from);
        return end;
    }

    wchar_t do_widen(char byte) const override { return static_cast<unsigned char>(byte); }

    const char *do_widen(const char *from, const char *end, wchar_t *to) const override {
        for (; from < end; ++from)
            *to++ = do_widen(*from);
        return end;
    }

    char do_narrow(wchar_t unit, char other) const override { return unit < 0x80 ? static_cast<char>(unit) : other; }

    const wchar_t *do_narrow(const wchar_t *from, const wchar_t *end, char other, char *to) const override {
        for (; from < end; ++from)
            *to++ = do_narrow(*from, other);
        return end;
    }
};

/// Converts between the UTF-16 of a file stream and the UTF-8 of its file.
class Codecvt final : public std::codecvt<wchar_t, char, std::mbstate_t> {
public:
    using std::codecvt<wchar_t, char, std::mbstate_t>::codecvt;

private:
    result do_out(state_type &, const wchar_t *from, const wchar_t *end, const wchar_t *&next, char *to, char *to_end,
                  char *&to_next) const override {
        text units = {1, from, static_cast<size_t>(end - from)};
        result answer = ok;
        size_t at = 0;
        while (at < units.length) {
            char bytes[4];
            size_t start = at;
            if (is_high_surrogate(from[at]) && at + 1 == units.length) {
                answer = partial;
                break;
            }
            size_t size = traceweir_wide_to_utf8(traceweir_wide_next(&units, &at), bytes);
            if (static_cast<size_t>(to_end - to) < size) {
                at = start;
                answer = partial;
                break;
            }
            to = std::copy_n(bytes, size, to);
        }
        next = from + at;
        to_next = to;
        return answer;
    }

    result do_in(state_type &, const char *from, const char *end, const char *&next, wchar_t *to, wchar_t *to_end,
                 wchar_t *&to_next) const override {
        text bytes = {0, from, static_cast<size_t>(end - from)};
        result answer = ok;
        size_t at = 0;
        while (at < bytes.length) {
            wchar_t units[2];
            size_t start = at, size = size_of_character(from[at]);
            if (bytes.length - at < size) {
                answer = partial;
                break;
            }
            size = traceweir_wide_to_utf16(traceweir_wide_next(&bytes, &at), units);
            if (static_cast<size_t>(to_end - to) < size) {
                at = start;
                answer = partial;
                break;
            }
            to = std::copy_n(units, size, to);
        }
        next = from + at;
        to_next = to;
        return answer;
    }

    static size_t size_of_character(char first) {
        auto byte = static_cast<unsigned char>(first);
        return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    }

    result do_unshift(state_type &, char *to, char *, char *&to_next) const override {
        to_next = to;
        return noconv;
    }

    int do_encoding() const noexcept override { return 0; }
    bool do_always_noconv() const noexcept override { return false; }
    int do_max_length() const noexcept override { return 4; }

    int do_length(state_type &, const char *from, const char *end, size_t most) const override {
        text bytes = {0, from, static_cast<size_t>(end - from)};
        size_t at = 0, length = 0;
        while (at < bytes.length) {
            wchar_t units[2];
            size_t start = at;
            length += traceweir_wide_to_utf16(traceweir_wide_next(&bytes, &at), units);
            if (length > most)
                return static_cast<int>(start);
        }
        return static_cast<int>(at);
    }
};

/// The buffer of a standard stream, which writes to the FILE of C at once, so that C and C++ may
/// write in turns. Only the first half of a surrogate pair waits.
class StdioBuffer final : public std::wstreambuf {
public:
    explicit StdioBuffer(std::FILE *file) : file_(file) {}

private:
    int_type overflow(int_type unit) override {
        if (traits_type::eq_int_type(unit, traits_type::eof()))
            return sync() == 0 ? traits_type::not_eof(unit) : traits_type::eof();
        wchar_t units[1] = {traits_type::to_char_type(unit)};
        return xsputn(units, 1) == 1 ? unit : traits_type::eof();
    }

    /// Writes all complete characters; half of a pair waits for its other half.
    std::streamsize xsputn(const wchar_t *units, std::streamsize count) override {
        char bytes[256];
        size_t size = 0;
        for (std::streamsize at = 0; at < count; ++at) {
            if (size + 8 > sizeof bytes) {
                if (std::fwrite(bytes, 1, size, file_) != size)
                    return 0;
                size = 0;
            }
            const wchar_t pair[2] = {high_ ? high_ : units[at], units[at]};
            text taken = {1, pair, high_ ? 2u : 1u};
            if (!high_ && is_high_surrogate(units[at])) {
                high_ = units[at];
                continue;
            }
            high_ = 0;
            for (size_t start = 0; start < taken.length;)
                size += traceweir_wide_to_utf8(traceweir_wide_next(&taken, &start), bytes + size);
        }
        return std::fwrite(bytes, 1, size, file_) == size ? count : 0;
    }

    int sync() override { return std::fflush(file_) == 0 ? 0 : -1; }

    int_type underflow() override {
        if (gptr() < egptr())
            return traits_type::to_int_type(*gptr());
        char bytes[4];
        int first = std::getc(file_);
        if (first == EOF)
            return traits_type::eof();
        bytes[0] = static_cast<char>(first);
        size_t size = 1;
        for (int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0; more > 0; --more) {
            int next = std::getc(file_);
            if (next == EOF || (next & 0xC0) != 0x80) {
                std::ungetc(next, file_);
                break;
            }
            bytes[size++] = static_cast<char>(next);
        }
        text character = {0, bytes, size};
        size_t at = 0;
        size_t count = traceweir_wide_to_utf16(traceweir_wide_next(&character, &at), read_);
        setg(read_, read_, read_ + count);
        return traits_type::to_int_type(read_[0]);
    }

    std::FILE *file_;
    wchar_t high_ = 0;
    wchar_t read_[2] = {};
};

} // namespace

// The streams' memory, under the names of the streams: no constructor or destructor of the compiler
// touches it, so that programs can use the streams until they end.
#define DEFINE_STREAM(name, type) \
    alignas(type) __attribute__((visibility("hidden"))) char name##_memory[sizeof(type)] __asm__("_ZSt" name##_symbol)
#define wcout_symbol "5wcout"
#define wcerr_symbol "5wcerr"
#define wclog_symbol "5wclog"
#define wcin_symbol "4wcin"
DEFINE_STREAM(wcout, std::wostream);
DEFINE_STREAM(wcerr, std::wostream);
DEFINE_STREAM(wclog, std::wostream);
DEFINE_STREAM(wcin, std::wistream);

namespace {

alignas(StdioBuffer) char buffers[3][sizeof(StdioBuffer)];

/// Makes the streams. Runs before all constructors of the program: 101 is the first priority that
/// is not reserved.
__attribute__((constructor(101))) void start_streams() {
    auto *out = new (buffers[0]) StdioBuffer(stdout);
    auto *error = new (buffers[1]) StdioBuffer(stderr);
    auto *in = new (buffers[2]) StdioBuffer(stdin);
    auto *wcout = new (wcout_memory) std::wostream(out);
    auto *wcin = new (wcin_memory) std::wistream(in);
    auto *wcerr = new (wcerr_memory) std::wostream(error);
    new (wclog_memory) std::wostream(error);
    wcin->tie(wcout);
    wcerr->setf(std::ios_base::unitbuf);
    wcerr->tie(wcout);
}

} // namespace

// The argument 1 is a first reference, so that no locale deletes the facet.
const std::ctype<wchar_t> &traceweir_wide::get_ctype() {
    static const auto &facet = *new Ctype(1);
    return facet;
}

const std::codecvt<wchar_t, char, std::mbstate_t> &traceweir_wide::get_codecvt() {
    static const auto &facet = *new Codecvt(1);
    return facet;
}
