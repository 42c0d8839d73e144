/* pshpack8.h: structures from here on are packed to 8; poppack.h ends this. */
#pragma pack(push, 8)
