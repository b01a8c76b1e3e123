/* SPDX-License-Identifier: Apache-2.0 */
#include "report_in.h"

#include "sized.h"

int32_t convoy_report_in(struct convoy_report *full, const struct convoy_report *caller, struct convoy_error *error)
{
    int32_t status = convoy_sized_out_begin(full, &CONVOY_SHAPE(report), caller, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_sized_array rows = {full->members, full->member_stride, full->member_capacity};
    return convoy_sized_array_check_out(&rows, &CONVOY_SHAPE(member_report), error);
}
