/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy perf`: measures poll reduce, sync gather or transfers among processes of this machine. */
#ifndef CONVOY_CLI_PERF_H
#define CONVOY_CLI_PERF_H

int convoy_cli_perf(int argc, char **argv);

#endif
