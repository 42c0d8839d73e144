/* pshpack2.h: structures from here on are packed to 2; poppack.h ends this. */
#pragma pack(push, 2)
