/* rpc.h: UUID, which windows.h declares. */
#include <windows.h>
