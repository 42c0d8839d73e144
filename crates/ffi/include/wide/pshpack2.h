/* pshpack2.h: members from here on are aligned to at most 2 bytes; poppack.h ends this. */
#pragma pack(push, 2)
