/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/board.h"

#include <sys/mman.h>

struct convoy_board *convoy_board_create(uint32_t rank_count)
{
    struct convoy_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return NULL;
    }
    board->rank_count = rank_count;
    return board;
}

void convoy_board_destroy(struct convoy_board *board)
{
    if (board != NULL) {
        (void)munmap(board, sizeof *board);
    }
}

uint32_t convoy_board_count(const struct convoy_board *board, enum convoy_board_phase phase)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < board->rank_count; i++) {
        count += atomic_load_explicit(&board->ranks[i].phase, memory_order_acquire) >= (uint32_t)phase;
    }
    return count;
}
