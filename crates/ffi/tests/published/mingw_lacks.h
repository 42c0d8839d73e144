/* Published names that the headers of mingw-w64 10 do not have, so that the examples compile with
 * those headers. A later mingw-w64 that has one of these names causes a redefinition error; then
 * remove the name here. */
#include <windows.h>
#include <evntrace.h>
#include <evntcons.h>
#include <tdh.h>

/* mingw-w64 has only the name that this member has for classic events. */
#define EventNameOffset ActivityIDNameOffset

enum { TDH_INTYPE_INT8 = 3, TDH_INTYPE_INT16 = 5, TDH_INTYPE_UINT64 = 10 };

ULONG __stdcall TdhFormatProperty(PTRACE_EVENT_INFO EventInfo, PEVENT_MAP_INFO MapInfo, ULONG PointerSize, USHORT PropertyInType,
                                  USHORT PropertyOutType, USHORT PropertyLength, USHORT UserDataLength, PBYTE UserData,
                                  PULONG BufferSize, PWCHAR Buffer, PUSHORT UserDataConsumed);
