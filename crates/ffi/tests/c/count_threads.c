/* Prints the number of threads of this program, which itself registers nothing. */
#include <dirent.h>
#include <stdio.h>

int main(void) {
    int count = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    printf("%d\n", count);
    return 0;
}
