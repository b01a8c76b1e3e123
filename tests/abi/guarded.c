/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abi/guarded.h"

#include "tests/lib/expect.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *guarded_create(struct guarded *guarded, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes + page - 1) / page * page;
    guarded->map_bytes = room + page;
    guarded->map = mmap(NULL, guarded->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(guarded->map != MAP_FAILED);
    EXPECT_EQUAL(mprotect((char *)guarded->map + room, page, PROT_NONE), 0);
    return memset((char *)guarded->map + room - bytes, 0xee, bytes);
}

void guarded_destroy(struct guarded *guarded)
{
    EXPECT_EQUAL(munmap(guarded->map, guarded->map_bytes), 0);
}
