// The classes of C++'s library for a wchar_t of 16 bits.
//
// The headers of libstdc++ promise that the shared library has the instances of its templates for
// wchar_t. Those of libstdc++.so expect 32 bits. Here are the same instances for 16 bits:
//
//   program.o ── std::wstring::append ─▶ libtraceweir-wide.a   16 bits, this file
//   libstdc++.so ── its own uses ──────▶ libstdc++.so          32 bits, untouched
//
// All symbols defined here are hidden, so the second arrow stays: the dynamic linker never sees
// them.
#define TRACEWEIR_WIDE_INSTANCES
#include "facets.h"

#include <ctime>
#include <fstream>
#include <iomanip>
#include <istream>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>

namespace std {

TRACEWEIR_USE_FACET(ctype<wchar_t>)
TRACEWEIR_USE_FACET(codecvt<wchar_t, char, mbstate_t>)
TRACEWEIR_USE_FACET(numpunct<wchar_t>)
TRACEWEIR_USE_FACET(num_put<wchar_t>)
TRACEWEIR_USE_FACET(num_get<wchar_t>)
TRACEWEIR_USE_FACET(time_put<wchar_t>)

// The cache in which streams keep the values of numpunct: one for all locales.
template <>
struct __use_cache<__numpunct_cache<wchar_t>> {
    const __numpunct_cache<wchar_t> *operator()(const locale &any) const {
        static const auto *cache = [&any] {
            auto *filled = new __numpunct_cache<wchar_t>(1);
            filled->_M_cache(any);
            return filled;
        }();
        return cache;
    }
};

// Specializations that libstdc++.so has for speed; here the plain algorithms.

template <>
wistream &wistream::getline(wchar_t *text, streamsize size, wchar_t end) {
    _M_gcount = 0;
    ios_base::iostate state = ios_base::goodbit;
    sentry ready(*this, true);
    streamsize length = 0;
    if (ready) {
        for (;;) {
            auto next = rdbuf()->sgetc();
            if (traits_type::eq_int_type(next, traits_type::eof())) {
                state |= ios_base::eofbit;
                break;
            }
            if (traits_type::to_char_type(next) == end) {
                rdbuf()->sbumpc();
                ++_M_gcount;
                break;
            }
            if (length + 1 >= size) {
                state |= ios_base::failbit;
                break;
            }
            text[length++] = traits_type::to_char_type(next);
            rdbuf()->sbumpc();
            ++_M_gcount;
        }
    }
    if (size > 0)
        text[length] = L'\0';
    if (_M_gcount == 0)
        state |= ios_base::failbit;
    if (state)
        setstate(state);
    return *this;
}

template <>
wistream &wistream::ignore(streamsize count, int_type end) {
    _M_gcount = 0;
    sentry ready(*this, true);
    while (ready && (_M_gcount < count || count == numeric_limits<streamsize>::max())) {
        auto next = rdbuf()->sbumpc();
        if (traits_type::eq_int_type(next, traits_type::eof())) {
            setstate(ios_base::eofbit);
            break;
        }
        if (_M_gcount < numeric_limits<streamsize>::max())
            ++_M_gcount;
        if (traits_type::eq_int_type(next, end))
            break;
    }
    return *this;
}

template <>
wistream &wistream::ignore(streamsize count) {
    return ignore(count, traits_type::eof());
}

template <>
wistream &getline(wistream &stream, wstring &text, wchar_t end) {
    using traits = wistream::traits_type;
    ios_base::iostate state = ios_base::goodbit;
    bool is_taken = false;
    wistream::sentry ready(stream, true);
    if (ready) {
        text.clear();
        for (;;) {
            auto next = stream.rdbuf()->sbumpc();
            if (traits::eq_int_type(next, traits::eof())) {
                state |= ios_base::eofbit;
                break;
            }
            is_taken = true;
            if (traits::to_char_type(next) == end)
                break;
            text.push_back(traits::to_char_type(next));
        }
    }
    if (!is_taken)
        state |= ios_base::failbit;
    if (state)
        stream.setstate(state);
    return stream;
}

template <>
streamsize __copy_streambufs_eof(wstreambuf *from, wstreambuf *to, bool &is_at_end) {
    using traits = wstreambuf::traits_type;
    streamsize copied = 0;
    is_at_end = false;
    for (auto next = from->sgetc();; next = from->snextc(), ++copied) {
        if (traits::eq_int_type(next, traits::eof())) {
            is_at_end = true;
            return copied;
        }
        if (traits::eq_int_type(to->sputc(traits::to_char_type(next)), traits::eof()))
            return copied;
    }
}

// Numbers are written as in the locale "C", whatever locale is asked for.

template <>
void numpunct<wchar_t>::_M_initialize_numpunct(__c_locale) {
    if (!_M_data)
        _M_data = new __numpunct_cache<wchar_t>;
    _M_data->_M_grouping = "";
    _M_data->_M_grouping_size = 0;
    _M_data->_M_use_grouping = false;
    _M_data->_M_decimal_point = L'.';
    _M_data->_M_thousands_sep = L',';
    for (size_t at = 0; at < __num_base::_S_oend; ++at)
        _M_data->_M_atoms_out[at] = static_cast<wchar_t>(__num_base::_S_atoms_out[at]);
    for (size_t at = 0; at < __num_base::_S_iend; ++at)
        _M_data->_M_atoms_in[at] = static_cast<wchar_t>(__num_base::_S_atoms_in[at]);
    _M_data->_M_truename = L"true";
    _M_data->_M_truename_size = 4;
    _M_data->_M_falsename = L"false";
    _M_data->_M_falsename_size = 5;
}

template <>
numpunct<wchar_t>::~numpunct() {
    delete _M_data;
}

// Times are written as in the locale "C".

template <>
time_put<wchar_t>::iter_type time_put<wchar_t>::do_put(iter_type to, ios_base &, wchar_t, const tm *time, char format,
                                                      char modifier) const {
    char text[128], pattern[4] = {'%', modifier ? modifier : format, modifier ? format : '\0', '\0'};
    size_t length = strftime(text, sizeof text, pattern, time);
    for (size_t at = 0; at < length; ++at)
        *to++ = static_cast<unsigned char>(text[at]);
    return to;
}

// The instances, in the order of the headers.

template class basic_string<wchar_t>;
template void wstring::_M_construct(wchar_t *, wchar_t *, forward_iterator_tag);
template void wstring::_M_construct(const wchar_t *, const wchar_t *, forward_iterator_tag);
template void wstring::_M_construct(wstring::iterator, wstring::iterator, forward_iterator_tag);
template wistream &getline(wistream &, wstring &);
template wstring operator+(const wchar_t *, const wstring &);
template wstring operator+(wchar_t, const wstring &);
template wstring operator+(const wstring &, const wstring &);
template wistream &operator>>(wistream &, wstring &);
template wostream &operator<<(wostream &, const wstring &);
template bool operator==(const wchar_t *, const wstring &);
template class basic_streambuf<wchar_t>;
template class basic_ios<wchar_t>;
template class basic_istream<wchar_t>;
template class basic_ostream<wchar_t>;
template class basic_iostream<wchar_t>;
template wistream &ws(wistream &);
template wistream &operator>>(wistream &, wchar_t &);
template void __istream_extract(wistream &, wchar_t *, streamsize);
template wostream &endl(wostream &);
template wostream &ends(wostream &);
template wostream &flush(wostream &);
template wostream &operator<<(wostream &, wchar_t);
template wostream &operator<<(wostream &, char);
template wostream &operator<<(wostream &, const wchar_t *);
template wostream &operator<<(wostream &, const char *);
template wostream &__ostream_insert(wostream &, const wchar_t *, streamsize);
template wostream &operator<<(wostream &, _Setfill<wchar_t>);
template wostream &operator<<(wostream &, _Setiosflags);
template wostream &operator<<(wostream &, _Resetiosflags);
template wostream &operator<<(wostream &, _Setbase);
template wostream &operator<<(wostream &, _Setprecision);
template wostream &operator<<(wostream &, _Setw);
template wistream &operator>>(wistream &, _Setfill<wchar_t>);
template wistream &operator>>(wistream &, _Setiosflags);
template wistream &operator>>(wistream &, _Resetiosflags);
template wistream &operator>>(wistream &, _Setbase);
template wistream &operator>>(wistream &, _Setprecision);
template wistream &operator>>(wistream &, _Setw);
template wostream &wostream::_M_insert(bool);
template wostream &wostream::_M_insert(long);
template wostream &wostream::_M_insert(unsigned long);
template wostream &wostream::_M_insert(long long);
template wostream &wostream::_M_insert(unsigned long long);
template wostream &wostream::_M_insert(double);
template wostream &wostream::_M_insert(long double);
template wostream &wostream::_M_insert(const void *);
template wistream &wistream::_M_extract(bool &);
template wistream &wistream::_M_extract(unsigned short &);
template wistream &wistream::_M_extract(unsigned int &);
template wistream &wistream::_M_extract(long &);
template wistream &wistream::_M_extract(unsigned long &);
template wistream &wistream::_M_extract(long long &);
template wistream &wistream::_M_extract(unsigned long long &);
template wistream &wistream::_M_extract(float &);
template wistream &wistream::_M_extract(double &);
template wistream &wistream::_M_extract(long double &);
template wistream &wistream::_M_extract(void *&);
template class basic_stringbuf<wchar_t>;
template class basic_istringstream<wchar_t>;
template class basic_ostringstream<wchar_t>;
template class basic_stringstream<wchar_t>;
template class basic_filebuf<wchar_t>;
template class basic_ifstream<wchar_t>;
template class basic_ofstream<wchar_t>;
template class basic_fstream<wchar_t>;
template class istreambuf_iterator<wchar_t>;
template class ostreambuf_iterator<wchar_t>;
template class numpunct<wchar_t>;
template class num_get<wchar_t>;
template class num_put<wchar_t>;
template class time_put<wchar_t>;

// Unoptimized programs bring their own copy of this function; with this one beside it, the linker
// hides theirs.
__attribute__((used)) static bool (*const compared)(const wchar_t &, const wchar_t &) = &char_traits<wchar_t>::eq;

} // namespace std
