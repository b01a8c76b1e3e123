/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `convoy doctor`: one page for an operator about what convoy finds on this machine. All findings are gathered into one
 * JSON object first, which `--json` prints as it is; the page for humans is made from it.
 */
#ifndef CONVOY_CLI_DOCTOR_H
#define CONVOY_CLI_DOCTOR_H

#include <jansson.h>
#include <stdio.h>

/* Exit code: 0 the page was printed, 1 no plugin could be opened (the page is printed all the same), 2 wrong usage. */
int convoy_cli_doctor(int argc, char **argv);

/* doctor_system.c: objects about this process and machine, NULL = out of memory. All give. */
json_t *convoy_doctor_shared_memory(void); /* shm_bytes, shm_free_bytes (null = no /dev/shm), memfd, error */
json_t *convoy_doctor_process_vm(void);    /* of_child, of_other: bool; error; ptrace_scope (null = no Yama) */
json_t *convoy_doctor_limits(void);        /* memlock_bytes, descriptors, descriptors_hard; -1 = unlimited */
json_t *convoy_doctor_namespaces(void);    /* net, pid, mnt, user, ipc: inode numbers */
json_t *convoy_doctor_processor(void);     /* cores_usable, cores_online, streaming_threshold_bytes (null = unknown) */
json_t *convoy_doctor_peer(const char *host); /* host, address, source, interface; error */

/* doctor_device.c: the CUDA driver: file, version, devices; error (null = it answers). gives */
json_t *convoy_doctor_device(void);

/* doctor_plugin.c: {file, release, build_id, error, ucx: topic NET or null, settings: topic CONFIG or null}. path: NULL
 * = search as convoy/loader.h says. gives */
json_t *convoy_doctor_plugin(const char *path);

/* doctor_page.c: the page for humans. */
void convoy_doctor_print(FILE *out, const json_t *all);

#endif
