/* The start of programs that have wmain: converts the arguments, which are UTF-8, and calls it.
 *
 * A linker takes this file from the library only if the program has no main of its own. In C++ the
 * name of wmain depends on its parameters, so here are the forms that programs use.
 */
#include "wide.h"

#include <stdlib.h>

extern char **environ;

typedef int wide_main(int, wchar_t **, wchar_t **);

extern wide_main wmain __attribute__((weak));
extern wide_main wmain_without __asm__("_Z5wmainv") __attribute__((weak));
extern wide_main wmain_plain __asm__("_Z5wmainiPPw") __attribute__((weak));
extern wide_main wmain_const __asm__("_Z5wmainiPPKw") __attribute__((weak));
extern wide_main wmain_const_list __asm__("_Z5wmainiPKPw") __attribute__((weak));
extern wide_main wmain_all_const __asm__("_Z5wmainiPKPKw") __attribute__((weak));
extern wide_main wmain_environment __asm__("_Z5wmainiPPwS0_") __attribute__((weak));
extern wide_main wmain_const_environment __asm__("_Z5wmainiPPKwS1_") __attribute__((weak));

static wchar_t **widen_list(char **list) {
    size_t count = 0;
    while (list[count])
        count++;
    wchar_t **wide = calloc(count + 1, sizeof(wchar_t *));
    for (size_t at = 0; wide && at < count; at++)
        if (!(wide[at] = traceweir_wide_widen(list[at])))
            abort();
    if (!wide)
        abort();
    return wide;
}

int main(int count, char **arguments) {
    wide_main *const forms[] = {
        wmain, wmain_without, wmain_plain, wmain_const, wmain_const_list, wmain_all_const, wmain_environment, wmain_const_environment,
    };
    for (size_t at = 0; at < sizeof forms / sizeof forms[0]; at++)
        if (forms[at])
            return forms[at](count, widen_list(arguments), widen_list(environ));
    fputs("this program has neither main nor wmain\n", stderr);
    return 1;
}
