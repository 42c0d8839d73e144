/* For sources that spell it so. In a folder of its own: not every file system on which the project is checked out tells the two apart. */
#include "../windows.h"
