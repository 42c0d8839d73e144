/* poppack.h: ends the packing that the last pshpack1.h, 2, 4 or 8 began. */
#pragma pack(pop)
