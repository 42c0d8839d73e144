#include "windows.h" /* for sources that spell it so */
