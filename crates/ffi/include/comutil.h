/* comutil.h, for sources that include it for the functions of objbase.h. There is no COM here, so
 * _bstr_t and _variant_t do not exist. */
#include "objbase.h"
