/* netiodef.h: the headers of Ethernet and IP packets. Numbers of more than one byte are in network
 * byte order. */
#ifndef TRACEWEIR_NETIODEF_H
#define TRACEWEIR_NETIODEF_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "ifdef.h"
#include "winsock2.h"

#define ETHERNET_TYPE_MINIMUM 0x0600
#define ETHERNET_TYPE_IPV4 0x0800
#define ETHERNET_TYPE_ARP 0x0806
#define ETHERNET_TYPE_802_1Q 0x8100
#define ETHERNET_TYPE_IPV6 0x86DD
#define ETHERNET_TYPE_802_1AD 0x88A8

#define IPV4_VERSION 4
#define IPV6_VERSION 0x60

#pragma pack(push, 1)

typedef union _DL_EUI48 {
    UCHAR Byte[6];
} DL_EUI48, *PDL_EUI48;

typedef struct _ETHERNET_HEADER {
    DL_EUI48 Destination;
    DL_EUI48 Source;
    __extension__ union {
        USHORT Type;
        USHORT Length;
    };
} ETHERNET_HEADER, *PETHERNET_HEADER;

typedef struct _IPV4_HEADER {
    __extension__ union {
        UCHAR VersionAndHeaderLength;
        __extension__ struct {
            UCHAR HeaderLength : 4;
            UCHAR Version : 4;
        };
    };
    __extension__ union {
        UCHAR TypeOfServiceAndEcnField;
        __extension__ struct {
            UCHAR EcnField : 2;
            UCHAR TypeOfService : 6;
        };
    };
    USHORT TotalLength;
    USHORT Identification;
    __extension__ union {
        USHORT FlagsAndOffset;
        __extension__ struct {
            USHORT DontUse1 : 5;
            USHORT MoreFragments : 1;
            USHORT DontFragment : 1;
            USHORT Reserved : 1;
            USHORT DontUse2 : 8;
        };
    };
    UCHAR TimeToLive;
    UCHAR Protocol;
    USHORT HeaderChecksum;
    IN_ADDR SourceAddress;
    IN_ADDR DestinationAddress;
} IPV4_HEADER, *PIPV4_HEADER;

typedef struct _IPV6_HEADER {
    ULONG VersionClassFlow;
    USHORT PayloadLength;
    UCHAR NextHeader;
    UCHAR HopLimit;
    IN6_ADDR SourceAddress;
    IN6_ADDR DestinationAddress;
} IPV6_HEADER, *PIPV6_HEADER;

#pragma pack(pop)

#endif /* TRACEWEIR_NETIODEF_H */
