/* ip2string.h: text of IP addresses. */
#ifndef TRACEWEIR_IP2STRING_H
#define TRACEWEIR_IP2STRING_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "winsock2.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS
#ifdef __cplusplus
extern "C" {
#endif

/* Each returns the address of the NUL at the end of the text. S has room for 16 characters (IPv4)
 * or 46 (IPv6). */
LPSTR WINAPI RtlIpv4AddressToStringA(_In_ const struct in_addr *Addr, LPSTR S);
LPWSTR WINAPI RtlIpv4AddressToStringW(_In_ const struct in_addr *Addr, LPWSTR S);
LPSTR WINAPI RtlIpv6AddressToStringA(_In_ const struct in6_addr *Addr, LPSTR S);
LPWSTR WINAPI RtlIpv6AddressToStringW(_In_ const struct in6_addr *Addr, LPWSTR S);

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define RtlIpv4AddressToString RtlIpv4AddressToStringW
#define RtlIpv6AddressToString RtlIpv6AddressToStringW
#else
#define RtlIpv4AddressToString RtlIpv4AddressToStringA
#define RtlIpv6AddressToString RtlIpv6AddressToStringA
#endif
#endif

#endif /* TRACEWEIR_IP2STRING_H */
