/* pshpack1.h: members from here on are aligned to at most 1 byte; poppack.h ends this. */
#pragma pack(push, 1)
