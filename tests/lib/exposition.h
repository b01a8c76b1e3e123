/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of the Prometheus text format: whatever a scraper would refuse, or take for something else, fails the test.
 *
 *   each metric: HELP, TYPE, then all of its samples; names, labels and escapes as the format has them; no sample twice;
 *   counters end in _total and are whole; histograms have cumulative buckets up to +Inf, _sum and _count for each label set
 */
#ifndef TESTS_LIB_EXPOSITION_H
#define TESTS_LIB_EXPOSITION_H

#include <stddef.h>
#include <stdint.h>

struct exposition;

/* gives (exposition_free) */
struct exposition *exposition_read(const char *text, size_t length);
void exposition_free(struct exposition *exposition);

/* The sample of this name and labels, such as: path="lend". The label that all samples have (`common` of the name engine) is
 * left out. Fails the test when there is none. */
double exposition_value(const struct exposition *exposition, const char *name, const char *labels);
size_t exposition_count(const struct exposition *exposition);

#endif
