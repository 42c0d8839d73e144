/* pshpack4.h: members from here on are aligned to at most 4 bytes; poppack.h ends this. */
#pragma pack(push, 4)
