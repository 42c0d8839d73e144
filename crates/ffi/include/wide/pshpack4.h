/* pshpack4.h: structures from here on are packed to 4; poppack.h ends this. */
#pragma pack(push, 4)
