/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy perf transfer`: measures one hand-over after the other between two processes of this machine. */
#ifndef CONVOY_CLI_PERF_TRANSFER_H
#define CONVOY_CLI_PERF_TRANSFER_H

/* argv[0] is the command's name; the word "transfer" is among the rest. Returns the exit code. */
int convoy_cli_perf_transfer(int argc, char **argv);

#endif
