/* pshpack1.h: structures from here on are packed to 1; poppack.h ends this. */
#pragma pack(push, 1)
