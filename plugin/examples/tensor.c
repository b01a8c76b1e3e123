/* SPDX-License-Identifier: Apache-2.0 */
#include <convoy/loader.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) /* usage: tensor (receives; prints its session), tensor SESSION (sends) */
{
    float latents[2][3] = {{1, 2, 3}, {4, 5, 6}};
    uint64_t shape[] = {2, 3};
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_loader_options options = {.host_name = "example"};
    struct convoy_context_config config = {.struct_size = sizeof config, .secret = "ours", .secret_bytes = 4};
    struct convoy_transfer_options small = {.struct_size = sizeof small, .pool_bytes = 4 << 20};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    struct convoy_tensor_source source = {.name = "latents", .name_length = 7, .dtype = "float32", .dtype_length = 7,
        .data = latents, .shape = shape, .rank = 2};
    struct convoy_stage stage = {.struct_size = sizeof stage, .request = "r1", .request_length = 2, .tensors = &source,
        .tensor_stride = sizeof source, .tensor_count = 1};
    struct convoy_send send = {.struct_size = sizeof send};
    struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_VIEW, .timeout_ns = 30000000000u};
    struct convoy_tensor_view view;
    struct convoy_payload payload = {.struct_size = sizeof payload, .tensors = &view, .tensor_stride = sizeof view,
        .tensor_capacity = 1};
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_engine *engine;
    convoy_transfer moved;
    int32_t failed = convoy_loader_open(&options, &loader, &error) ||
                     convoy_host_context_open(loader, &config, &context, &error) ||
                     convoy_host_engine_open(context, &small, &engine, &error);
    if (!failed && argc == 2) /* copied once, into this side's pool; returns when the receiver has it */
        failed = convoy_host_peer_connect(engine, argv[1], strlen(argv[1]), 0, &send.peer, &error) ||
                 convoy_host_transfer_send(engine, &stage, &send, &moved, &error);
    if (!failed && argc == 1) {
        failed = convoy_host_engine_info(engine, &info, &error);
        printf("%s\n", info.session), fflush(stdout);
        failed = failed || convoy_host_transfer_accept(engine, &load, &moved, &error) ||
                 convoy_host_transfer_payload(engine, moved, &payload, &error);
        if (!failed) /* read in place, in the sender's pool */
            printf("%.*s of %.*s: the last element is %g\n", (int)view.name_length, view.name, (int)payload.request_length,
                   payload.request, ((const float *)view.data)[5]);
    }
    if (failed) return fprintf(stderr, "%s\n", error.text), 1;
    return convoy_host_transfer_release(engine, moved, &error) || convoy_host_engine_close(engine, 0, &error) ||
           convoy_host_context_close(context, 0, &error) || convoy_loader_close(loader, &error);
}
