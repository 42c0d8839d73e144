/* winnls.h: dates and times as text, and code pages, which windows.h declares. */
#include "windows.h"
