/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy inspect FILE` and `convoy version`. Return the exit code: 0 done, 1 failed, 2 wrong usage. */
#ifndef CONVOY_CLI_INSPECT_H
#define CONVOY_CLI_INSPECT_H

int convoy_cli_inspect(int argc, char **argv);
int convoy_cli_version(int argc, char **argv);

#endif
