// String streams as they are since C++20, where some of their functions have other names for the
// linker. build.sh compiles this file for C++20; instances.cpp has all that is common.
#include "facets.h"

#include <sstream>

namespace std {

template class basic_stringbuf<wchar_t>;
template class basic_istringstream<wchar_t>;
template class basic_ostringstream<wchar_t>;
template class basic_stringstream<wchar_t>;

} // namespace std
