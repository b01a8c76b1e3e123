/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CONVOY_HOT: a function of the rounds of a group. The linker puts all of them side by side, so that a call lies on few
 * pages: where a system call costs the entries of the TLB (page-table isolation without process context identifiers),
 * every page that the first call after one touches is looked up anew, which in a virtual machine takes as long as the
 * exchange itself.
 */
#ifndef CONVOY_CORE_HOT_H
#define CONVOY_CORE_HOT_H

#define CONVOY_HOT __attribute__((hot))

#endif
