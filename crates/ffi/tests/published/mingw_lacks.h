/* Published names that the headers of mingw-w64 10 do not have, to check the examples against those
 * headers. Other tests compare their sizes with the windows-sys crate. A later mingw-w64 that has
 * one of them causes a redefinition error; remove the line then. */
#include <windows.h>
#include <evntrace.h>
#include <evntcons.h>
#include <tdh.h>

/* The other name of this member, for events that are not classic. */
#define EventNameOffset ActivityIDNameOffset

enum { TDH_INTYPE_INT8 = 3, TDH_INTYPE_INT16 = 5, TDH_INTYPE_UINT64 = 10 };

ULONG __stdcall TdhFormatProperty(PTRACE_EVENT_INFO EventInfo, PEVENT_MAP_INFO MapInfo, ULONG PointerSize, USHORT PropertyInType,
                                  USHORT PropertyOutType, USHORT PropertyLength, USHORT UserDataLength, PBYTE UserData,
                                  PULONG BufferSize, PWCHAR Buffer, PUSHORT UserDataConsumed);
