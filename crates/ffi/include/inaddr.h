/* winsock2.h declares the content of this header. */
#include "winsock2.h"
