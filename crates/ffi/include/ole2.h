/* ole2.h: objbase.h and oleauto.h. */
#include "objbase.h"

#include "oleauto.h"
