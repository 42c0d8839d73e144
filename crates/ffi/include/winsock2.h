/* winsock2.h: Windows' names for the addresses of Linux's sockets, and what <arpa/inet.h> declares:
 * ntohs, htonl, inet_ntop … The functions that send and receive are those of Linux; there is no
 * SOCKET and no WSAStartup.
 *
 * Types and constants are those of Linux: AF_INET6 is 10 here, and 23 in traces of Windows.
 */
#ifndef TRACEWEIR_WINSOCK2_H
#define TRACEWEIR_WINSOCK2_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#define TRACEWEIR_TYPES_ONLY
#include <windows.h>
#undef TRACEWEIR_TYPES_ONLY

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

typedef USHORT ADDRESS_FAMILY;
typedef struct in_addr IN_ADDR, *PIN_ADDR, *LPIN_ADDR;
typedef struct in6_addr IN6_ADDR, *PIN6_ADDR, *LPIN6_ADDR;
typedef struct sockaddr SOCKADDR, *PSOCKADDR, *LPSOCKADDR;
typedef struct sockaddr_in SOCKADDR_IN, *PSOCKADDR_IN, *LPSOCKADDR_IN;
typedef struct sockaddr_in6 SOCKADDR_IN6, SOCKADDR_IN6_LH, *PSOCKADDR_IN6, *LPSOCKADDR_IN6;
typedef struct sockaddr_storage SOCKADDR_STORAGE, *PSOCKADDR_STORAGE, *LPSOCKADDR_STORAGE;

typedef union _SOCKADDR_INET {
    SOCKADDR_IN Ipv4;
    SOCKADDR_IN6 Ipv6;
    ADDRESS_FAMILY si_family;
} SOCKADDR_INET, *PSOCKADDR_INET;

#endif /* TRACEWEIR_WINSOCK2_H */
