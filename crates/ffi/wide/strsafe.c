/* The functions of strsafe.h for both widths.
 *
 *   StringCch…   sizes in characters      StringCb…    sizes in bytes
 *   …Ex          also returns the end of the text and the room after it, and takes flags
 *
 * For a text that does not fit, a function returns STRSAFE_E_INSUFFICIENT_BUFFER, and cuts the text
 * unless a flag says otherwise.
 */
#include "wide.h"

#include <string.h>

#include "../include/wide/strsafe.h"

#define FLAGS (0xFFu | STRSAFE_IGNORE_NULLS | STRSAFE_FILL_BEHIND_NULL | STRSAFE_FILL_ON_FAILURE | STRSAFE_NULL_ON_FAILURE | STRSAFE_NO_TRUNCATION)

#define UNIT wchar_t
#define IS_WIDE 1
#define NAME(name) name##W
#define LENGTH wcsnlen
#include "strsafe_body.h"
#undef UNIT
#undef IS_WIDE
#undef NAME
#undef LENGTH

#define UNIT char
#define IS_WIDE 0
#define NAME(name) name##A
#define LENGTH strnlen
#include "strsafe_body.h"
