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

/* Text with the scope and the port, unless they are 0: "10.0.0.1:443", "[fe80::1%2]:443". The port
 * is in network byte order. *AddressStringLength is the room in characters, and becomes the length
 * of the text with its NUL. If the text does not fit, they return STATUS_INVALID_PARAMETER. */
LONG WINAPI RtlIpv4AddressToStringExA(_In_ const struct in_addr *Address, USHORT Port, LPSTR AddressString, PULONG AddressStringLength);
LONG WINAPI RtlIpv4AddressToStringExW(_In_ const struct in_addr *Address, USHORT Port, LPWSTR AddressString, PULONG AddressStringLength);
LONG WINAPI RtlIpv6AddressToStringExA(_In_ const struct in6_addr *Address, ULONG ScopeId, USHORT Port, LPSTR AddressString,
                                      PULONG AddressStringLength);
LONG WINAPI RtlIpv6AddressToStringExW(_In_ const struct in6_addr *Address, ULONG ScopeId, USHORT Port, LPWSTR AddressString,
                                      PULONG AddressStringLength);

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define RtlIpv4AddressToString RtlIpv4AddressToStringW
#define RtlIpv6AddressToString RtlIpv6AddressToStringW
#define RtlIpv4AddressToStringEx RtlIpv4AddressToStringExW
#define RtlIpv6AddressToStringEx RtlIpv6AddressToStringExW
#else
#define RtlIpv4AddressToString RtlIpv4AddressToStringA
#define RtlIpv6AddressToString RtlIpv6AddressToStringA
#define RtlIpv4AddressToStringEx RtlIpv4AddressToStringExA
#define RtlIpv6AddressToStringEx RtlIpv6AddressToStringExA
#endif
#endif

#endif /* TRACEWEIR_IP2STRING_H */
