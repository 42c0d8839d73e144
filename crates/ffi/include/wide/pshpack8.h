/* pshpack8.h: members from here on are aligned to at most 8 bytes; poppack.h ends this. */
#pragma pack(push, 8)
