/* For sources that use this spelling; see Windows.h. */
#include "../libloaderapi.h"
