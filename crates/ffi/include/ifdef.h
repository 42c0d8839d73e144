/* ifdef.h: numbers of network interfaces. */
#ifndef TRACEWEIR_IFDEF_H
#define TRACEWEIR_IFDEF_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#define TRACEWEIR_TYPES_ONLY
#include <windows.h>
#undef TRACEWEIR_TYPES_ONLY

typedef ULONG NET_IFINDEX, *PNET_IFINDEX;
typedef USHORT NET_IFTYPE, *PNET_IFTYPE;
typedef NET_IFINDEX IF_INDEX, *PIF_INDEX;

#define NET_IFINDEX_UNSPECIFIED ((NET_IFINDEX)0)
#define IFI_UNSPECIFIED NET_IFINDEX_UNSPECIFIED

#endif /* TRACEWEIR_IFDEF_H */
