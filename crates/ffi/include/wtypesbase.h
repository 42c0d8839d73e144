/* wtypesbase.h: types of COM, which windows.h and guiddef.h declare. */
#include <windows.h>
