/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/tasks.h"

#include "tests/lib/expect.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define THREAD_EXITING 4ul /* PF_EXITING of the kernel's flags: proc(5), /proc/pid/stat, field 9 */

static bool is_thread_alive(const char *id)
{
    char path[64];
    char line[512] = "";
    unsigned long flags = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%.16s/stat", id);
    FILE *stat = fopen(path, "r");
    if (stat == NULL) {
        return false; /* gone since it was listed */
    }
    bool is_read = fgets(line, sizeof line, stat) != NULL;
    (void)fclose(stat);
    const char *fields = is_read ? strrchr(line, ')') : NULL; /* after the name, which may hold anything */
    bool is_known = fields != NULL && sscanf(fields, ") %*c %*d %*d %*d %*d %*d %lu", &flags) == 1;
    return !is_known || (flags & THREAD_EXITING) == 0;
}

unsigned tasks_count(void)
{
    DIR *list = opendir("/proc/self/task");
    EXPECT(list != NULL);
    unsigned count = 0;
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        count += entry->d_name[0] != '.' && is_thread_alive(entry->d_name);
    }
    (void)closedir(list);
    return count;
}
