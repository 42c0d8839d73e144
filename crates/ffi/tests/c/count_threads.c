/* Prints the number of threads of this program, which itself registers nothing. The program takes
 * the address of malloc. If it is linked with -no-pie, this address is one in the program itself. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void *(*volatile allocate)(size_t) = malloc;
    int count = 0;
    free(allocate(1));
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    printf("%d\n", count);
    return 0;
}
