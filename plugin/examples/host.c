/* SPDX-License-Identifier: Apache-2.0 */
#include <convoy/loader.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) /* usage: host RANK PORT, once with rank 0 and once with rank 1 */
{
    if (argc != 3) return 2;
    int32_t ids[] = {0, 1}, own = atoi(argv[1]);
    char where[64];
    int length = snprintf(where, sizeof where, "tcp://127.0.0.1:%s", argv[2]);
    uint8_t mine[] = {CONVOY_STATE_SUCCESS, own == 0 ? CONVOY_STATE_SUCCESS : CONVOY_STATE_TRANSFERRING}, all[2];
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_loader_options options = {.host_name = "example"}; /* no path: CONVOY_LIBRARY, then a search */
    struct convoy_context_config config = {.struct_size = sizeof config, .secret = "ours", .secret_bytes = 4};
    struct convoy_group_options pair = {.struct_size = sizeof pair, .name = "tp", .name_length = 2, .member_ids = ids,
        .member_count = 2, .own_index = (uint32_t)own, .own_id = own, .rendezvous = where, .rendezvous_length = (size_t)length};
    struct convoy_poll_list list = {.count = 2, .states = mine};
    struct convoy_poll_call call = {.struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result states = {.states = all, .states_capacity = 2};
    struct convoy_poll_result result = {.struct_size = sizeof result, .lists = &states, .list_stride = sizeof states,
        .list_capacity = 1};
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_group *group;
    if (convoy_loader_open(&options, &loader, &error) || convoy_host_context_open(loader, &config, &context, &error) ||
        convoy_host_group_open(context, &pair, &group, &error) || convoy_host_reduce(group, &call, 0, &result, &error))
        return fprintf(stderr, "rank %d: %s\n", own, error.text), 1;
    printf("rank %d: on the slowest rank request 0 is in state %d, request 1 in state %d\n", own, all[0], all[1]);
    return convoy_host_context_close(context, 0, &error) || convoy_loader_close(loader, &error);
}
