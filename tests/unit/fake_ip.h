/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pretended `ip` command in front of PATH: it writes down its words and succeeds, so that what is asked of it can be
 * looked at without root. Words like the pattern FAKE_IP_FAIL fail always, words like FAKE_IP_FAIL_ONCE fail once.
 */
#ifndef TESTS_UNIT_FAKE_IP_H
#define TESTS_UNIT_FAKE_IP_H

#include "plugin_files.h"

static const char fake_ip_script[] = "#!/bin/sh\n"
                                     "echo \"$*\" >>\"$FAKE_IP_FOLDER/log\"\n"
                                     "case \"$*\" in $FAKE_IP_FAIL) exit 1 ;; esac\n"
                                     "case \"$*\" in $FAKE_IP_FAIL_ONCE) ;; *) exit 0 ;; esac\n"
                                     "[ -e \"$FAKE_IP_FOLDER/failed\" ] && exit 0\n"
                                     ": >\"$FAKE_IP_FOLDER/failed\"\n"
                                     "exit 1\n";

static char fake_ip_path_before[4096];

/* Puts it into a folder that the test made. */
static inline void fake_ip_install(const char *folder)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    char search[8192];
    (void)snprintf(path, sizeof path, "%s/ip", folder);
    file_write(path, fake_ip_script, sizeof fake_ip_script - 1);
    (void)snprintf(fake_ip_path_before, sizeof fake_ip_path_before, "%s", getenv("PATH"));
    (void)snprintf(search, sizeof search, "%s:%s", folder, fake_ip_path_before);
    (void)setenv("PATH", search, 1);
    (void)setenv("FAKE_IP_FOLDER", folder, 1);
}

static inline void fake_ip_remove(void)
{
    (void)setenv("PATH", fake_ip_path_before, 1);
}

/* Forgets what was asked so far and says what fails from now on; NULL = nothing. */
static inline void fake_ip_reset(const char *folder, const char *fail, const char *fail_once)
{
    static const char *const names[] = {"log", "failed"};
    for (size_t i = 0; i < 2; i++) {
        char path[PLUGIN_FILE_PATH_BYTES];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)setenv("FAKE_IP_FAIL", fail != NULL ? fail : "none", 1);
    (void)setenv("FAKE_IP_FAIL_ONCE", fail_once != NULL ? fail_once : "none", 1);
}

/* All commands since the reset, one a line. */
static inline void fake_ip_log(const char *folder, char *text, size_t capacity)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/log", folder);
    struct file_bytes log = file_read(path);
    (void)snprintf(text, capacity, "%.*s", (int)log.size, (const char *)log.bytes);
    free(log.bytes);
}

#endif
