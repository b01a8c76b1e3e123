/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy run`: replays a serving trace through real host processes and has the result checked. */
#ifndef CONVOY_CLI_RUN_H
#define CONVOY_CLI_RUN_H

int convoy_cli_run(int argc, char **argv);

#endif
