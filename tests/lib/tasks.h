/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of this process, but for those that are ending: one that was joined may be listed for a moment longer. */
#ifndef CONVOY_TESTS_LIB_TASKS_H
#define CONVOY_TESTS_LIB_TASKS_H

unsigned tasks_count(void);

#endif
