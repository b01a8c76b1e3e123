/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors as bytes and as the hosts' message: they come back, and whatever was done to them on the way is refused. */
#include "core/error.h"
#include "core/memory.h"
#include "wire/dtype.h"
#include "xfer/descriptor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SESSION "127.0.0.1:4000+00000000000000aa"
#define ROOM 4096

static struct convoy_manifest_room room; /* of all tests that decode bytes */

static struct convoy_descriptor make(struct convoy_manifest **manifest_out)
{
    char *names = NULL;
    struct convoy_manifest *manifest = convoy_manifest_create(2, 0, 8, &names);
    assert_non_null(manifest);
    memcpy(names, "ab", 2);
    for (uint32_t i = 0; i < 2; i++) {
        manifest->tensors[i] = (struct convoy_tensor){
            .name = names + i, .name_length = 1, .list_index = -1, .dtype = CONVOY_DTYPE_FLOAT16, .rank = 1, .shape = {100}};
    }
    assert_int_equal(convoy_manifest_layout(manifest, NULL), CONVOY_OK);
    *manifest_out = manifest;
    return (struct convoy_descriptor){.flags = CONVOY_DESCRIPTOR_CHECKSUM,
                                      .attempt = 3,
                                      .incarnation = 0xaa,
                                      .serial = 77,
                                      .generation = 1,
                                      .offset = 8192,
                                      .payload_bytes = manifest->payload_bytes,
                                      .slot_bytes = 4096,
                                      .pool_address = 1u << 20,
                                      .checksum = 0x0123456789abcdefu,
                                      .request = {"request", 7},
                                      .session = {SESSION, sizeof SESSION - 1},
                                      .scalars = {"{\"seed\":1}", 10},
                                      .manifest = manifest};
}

static size_t encode(uint8_t bytes[ROOM])
{
    struct convoy_manifest *manifest;
    struct convoy_descriptor descriptor = make(&manifest);
    size_t length = convoy_descriptor_bytes(&descriptor);
    assert_in_range(length, CONVOY_DESCRIPTOR_HEADER_BYTES, ROOM);
    assert_int_equal(convoy_descriptor_encode(&descriptor, bytes, ROOM, NULL), CONVOY_OK);
    assert_int_not_equal(convoy_descriptor_encode(&descriptor, bytes, length - 1, NULL), CONVOY_OK);
    assert_int_equal(convoy_descriptor_encode(&descriptor, bytes, length, NULL), CONVOY_OK);
    convoy_manifest_destroy(manifest);
    return length;
}

static void test_xfer_descriptor_comes_back_as_it_was(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct convoy_descriptor read;
    size_t length = encode(bytes);
    assert_int_equal(convoy_descriptor_decode(bytes, length, &room, &read, NULL), CONVOY_OK);
    assert_int_equal(read.attempt, 3);
    assert_int_equal(read.serial, 77);
    assert_int_equal(read.incarnation, 0xaa);
    assert_int_equal(read.offset, 8192);
    assert_int_equal(read.payload_bytes, 512 + 200);
    assert_true(read.checksum == 0x0123456789abcdefu);
    assert_memory_equal(read.request.text, "request", 7);
    assert_memory_equal(read.scalars.text, "{\"seed\":1}", 10);
    assert_int_equal(read.manifest->count, 2);
}

/* Cut anywhere, or one bit turned anywhere in front of the texts: refused, or something else that is whole. */
static void test_xfer_descriptor_cut_or_spoilt_is_refused_or_whole(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    size_t length = encode(bytes);
    for (size_t cut = 0; cut < length; cut++) {
        struct convoy_descriptor read;
        uint8_t *exact = malloc(cut + 1);
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_int_not_equal(convoy_descriptor_decode(exact, cut, &room, &read, NULL), CONVOY_OK);
        free(exact);
    }
    for (size_t bit = 0; bit < 8 * length; bit++) {
        struct convoy_descriptor read;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (convoy_descriptor_decode(bytes, length, &room, &read, NULL) == CONVOY_OK) {
            assert_int_equal(read.payload_bytes, read.manifest->payload_bytes);
        }
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* kvcache-ai/Mooncake issue 2177: a wire version that is not known here is said, not blamed on the peer. */
static void test_xfer_descriptor_of_another_version_says_both(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct convoy_descriptor read;
    struct convoy_error error = CONVOY_ERROR_INIT;
    size_t length = encode(bytes);
    bytes[4] = 9;
    assert_int_equal(convoy_descriptor_decode(bytes, length, &room, &read, &error), CONVOY_VERSION_MISMATCH);
    assert_non_null(strstr(error.text, "9"));
    bytes[4] = 1;
    bytes[6] = 4;
    assert_int_equal(convoy_descriptor_decode(bytes, length, &room, &read, &error), CONVOY_MALFORMED);
    assert_non_null(strstr(error.text, "flags 0x4"));
}

/* A broker carries it between builds that have agreed on nothing. */
static void test_xfer_descriptor_of_a_later_build_is_read(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct convoy_descriptor read;
    struct convoy_descriptor later;
    struct convoy_error error = CONVOY_ERROR_INIT;
    size_t length = encode(bytes);
    assert_int_equal(convoy_descriptor_decode(bytes, length, &room, &read, &error), CONVOY_OK);
    read.manifest = NULL;
    bytes[7] = 0xff; /* hints */
    assert_int_equal(convoy_descriptor_decode(bytes, length, &room, &later, &error), CONVOY_OK);
    later.manifest = NULL;
    assert_memory_equal(&later, &read, sizeof later);
}

static void test_xfer_descriptor_as_the_hosts_message_comes_back(void **state)
{
    (void)state;
    struct convoy_manifest *manifest;
    struct convoy_descriptor descriptor = make(&manifest);
    struct convoy_descriptor read;
    char *text = NULL;
    char *storage = NULL;
    size_t length = 0;
    assert_int_equal(convoy_descriptor_to_json(&descriptor, &text, &length, NULL), CONVOY_OK);
    assert_non_null(strstr(text, "{\"msg_type\":\"transfer_staged\",\"request_id\":\"request\",\"data_size\":4096,"));
    assert_int_equal(convoy_descriptor_from_json(text, length, &read, &storage, NULL), CONVOY_OK);
    assert_int_equal(read.attempt, 3);
    assert_int_equal(read.incarnation, 0xaa);
    assert_int_equal(read.serial, 0);
    assert_int_equal(read.offset, 8192);
    assert_int_equal(read.payload_bytes, 712);
    assert_memory_equal(read.scalars.text, "{\"seed\":1}", 10);
    convoy_manifest_destroy(read.manifest);
    convoy_memory_free(storage);
    convoy_memory_free(text);
    convoy_manifest_destroy(manifest);
}

/* Lists that end in holes come back as long as they were; their manifest is what hosts read today, to the byte. */
static void test_xfer_descriptor_as_the_hosts_message_keeps_holes(void **state)
{
    (void)state;
    static const char manifest[] = "\"manifest\":{\"e\":[{\"offset\":0,\"shape\":[4],\"dtype\":\"uint8\",\"list_index\":1}]}";
    static const char extra[] = ",\"convoy_manifest\":{\"list_lengths\":{\"e\":4,\"none\":3,\"empty\":0}}}";
    static const struct {
        const char *name;
        uint32_t length;
    } lists[] = {{"e", 4}, {"none", 3}, {"empty", 0}};
    char message[1024];
    struct convoy_descriptor read;
    struct convoy_descriptor again;
    char *storage = NULL;
    char *other = NULL;
    char *text = NULL;
    size_t length = 0;
    (void)snprintf(message, sizeof message,
                   "{\"msg_type\":\"transfer_staged\",\"request_id\":\"r\",\"data_size\":4096,%s,\"session_id\":\"s\","
                   "\"pool_ptr\":0,\"slot_offset\":0,\"scalar_fields\":{}%s",
                   manifest, extra);
    assert_int_equal(convoy_descriptor_from_json(message, strlen(message), &read, &storage, NULL), CONVOY_OK);
    assert_int_equal(convoy_descriptor_to_json(&read, &text, &length, NULL), CONVOY_OK);
    assert_non_null(strstr(text, manifest));
    assert_string_equal(text + length - strlen(extra), extra);
    assert_int_equal(convoy_descriptor_from_json(text, length, &again, &other, NULL), CONVOY_OK);
    assert_int_equal(again.manifest->list_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(again.manifest->lists[i].name_length, strlen(lists[i].name));
        assert_memory_equal(again.manifest->lists[i].name, lists[i].name, strlen(lists[i].name));
        assert_int_equal(again.manifest->lists[i].length, lists[i].length);
    }
    convoy_manifest_destroy(read.manifest);
    convoy_manifest_destroy(again.manifest);
    convoy_memory_free(storage);
    convoy_memory_free(other);
    convoy_memory_free(text);
}

/* Untrusted as all of it: a length that the entries do not bear out, and what is no length. */
static void test_xfer_descriptor_with_holes_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        int32_t status;
    } rows[] = {{"{\"list_lengths\":{\"e\":1}}", CONVOY_MALFORMED},  {"{\"list_lengths\":{\"e\":-1}}", CONVOY_MALFORMED},
                {"{\"list_lengths\":[]}", CONVOY_MALFORMED},          {"[]", CONVOY_MALFORMED},
                {"{\"list_lengths\":{\"e\":2},\"other\":1}", CONVOY_OK}, {"{}", CONVOY_OK}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char message[1024];
        struct convoy_descriptor read;
        char *storage = NULL;
        (void)snprintf(message, sizeof message,
                       "{\"msg_type\":\"transfer_staged\",\"request_id\":\"r\",\"manifest\":{\"e\":[{\"offset\":0,"
                       "\"shape\":[4],\"dtype\":\"uint8\",\"list_index\":1}]},\"convoy_manifest\":%s}",
                       rows[i].extra);
        int32_t status = convoy_descriptor_from_json(message, strlen(message), &read, &storage, NULL);
        if ((status == CONVOY_OK) != (rows[i].status == CONVOY_OK)) {
            fail_msg("%s gave %d", rows[i].extra, status);
        }
        if (status == CONVOY_OK) {
            assert_int_equal(read.manifest->lists[0].length, 2);
            convoy_manifest_destroy(read.manifest);
            convoy_memory_free(storage);
        }
    }
}

/* 0 lies in the bytes as builds before 1.1 write them, and is no field of the message. */
static void test_xfer_descriptor_priority_comes_back_in_both_forms(void **state)
{
    (void)state;
    static const int32_t priorities[] = {0, 1, -1, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof priorities / sizeof priorities[0]; i++) {
        struct convoy_manifest *manifest;
        struct convoy_descriptor descriptor = make(&manifest);
        struct convoy_descriptor read;
        uint8_t bytes[ROOM];
        char *text = NULL;
        char *storage = NULL;
        size_t length = 0;
        descriptor.priority = priorities[i];
        assert_int_equal(convoy_descriptor_encode(&descriptor, bytes, ROOM, NULL), CONVOY_OK);
        assert_int_equal(convoy_descriptor_decode(bytes, convoy_descriptor_bytes(&descriptor), &room, &read, NULL),
                         CONVOY_OK);
        assert_int_equal(read.priority, priorities[i]);
        assert_int_equal(convoy_descriptor_to_json(&descriptor, &text, &length, NULL), CONVOY_OK);
        assert_int_equal(strstr(text, "convoy_priority") != NULL, priorities[i] != 0);
        assert_int_equal(convoy_descriptor_from_json(text, length, &read, &storage, NULL), CONVOY_OK);
        assert_int_equal(read.priority, priorities[i]);
        convoy_manifest_destroy(read.manifest);
        convoy_memory_free(storage);
        convoy_memory_free(text);
        convoy_manifest_destroy(manifest);
    }
}

/* The sign lies in byte 79: little-endian, whatever the host. */
static void test_xfer_descriptor_priority_lies_in_bytes_76_to_79(void **state)
{
    (void)state;
    static const uint8_t minus_two[] = {0xfe, 0xff, 0xff, 0xff};
    static const uint8_t zero[] = {0, 0, 0, 0};
    uint8_t bytes[ROOM];
    struct convoy_descriptor read;
    size_t length = encode(bytes);
    assert_memory_equal(bytes + 76, zero, sizeof zero);
    memcpy(bytes + 76, minus_two, sizeof minus_two);
    assert_int_equal(convoy_descriptor_decode(bytes, length, &room, &read, NULL), CONVOY_OK);
    assert_int_equal(read.priority, -2);
}

static void test_xfer_descriptor_priority_out_of_range_is_refused_by_its_path(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *named;
    } rows[] = {{"2147483648", "transfer_staged.convoy_priority is 2147483648, allowed are -2147483648 to 2147483647"},
                {"-2147483649", "transfer_staged.convoy_priority is -2147483649, allowed are -2147483648 to 2147483647"},
                {"1.5", "transfer_staged.convoy_priority"},
                {"\"1\"", "transfer_staged.convoy_priority"},
                {"null", "transfer_staged.convoy_priority"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char message[256];
        struct convoy_descriptor read;
        char *storage = NULL;
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)snprintf(message, sizeof message,
                       "{\"msg_type\":\"transfer_staged\",\"request_id\":\"r\",\"convoy_priority\":%s}", rows[i].value);
        assert_int_equal(convoy_descriptor_from_json(message, strlen(message), &read, &storage, &error), CONVOY_MALFORMED);
        if (strstr(error.text, rows[i].named) == NULL) {
            fail_msg("%s: %s", rows[i].value, error.text);
        }
        assert_null(storage);
    }
}

static void test_xfer_descriptor_from_other_messages_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"msg_type\":\"transfer_pushed\",\"request_id\":\"r\"}", "{\"msg_type\":\"nonsense\",\"request_id\":\"r\"}", "[]",
        "{\"msg_type\":\"transfer_staged\",\"request_id\":\"r\",\"manifest\":{\"a\":[{\"offset\":0,\"shape\":[4],"
        "\"dtype\":\"uint8\"}]},\"convoy_exact_bytes\":5}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convoy_descriptor read;
        char *storage = NULL;
        assert_int_not_equal(convoy_descriptor_from_json(texts[i], strlen(texts[i]), &read, &storage, NULL), CONVOY_OK);
        assert_null(storage);
    }
}

/* A message of today's hosts: no field of ours, a session that is none of ours. */
static void test_xfer_descriptor_of_a_host_that_knows_nothing_of_us_is_read(void **state)
{
    (void)state;
    static const char text[] = "{\"msg_type\":\"transfer_staged\",\"request_id\":\"r\",\"data_size\":1048576,\"manifest\":{},"
                               "\"session_id\":\"10.0.0.1:17000\",\"pool_ptr\":1,\"slot_offset\":0,\"scalar_fields\":{}}";
    struct convoy_descriptor read;
    char *storage = NULL;
    assert_int_equal(convoy_descriptor_from_json(text, sizeof text - 1, &read, &storage, NULL), CONVOY_OK);
    assert_int_equal(read.attempt, 1);
    assert_int_equal(read.incarnation, 0);
    convoy_manifest_destroy(read.manifest);
    convoy_memory_free(storage);
}

static void test_xfer_descriptor_digests_are_never_zero(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "%u", i);
        assert_true(convoy_request_digest(id, strlen(id)) != 0);
    }
    assert_true(convoy_request_digest("a", 1) != convoy_request_digest("b", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xfer_descriptor_comes_back_as_it_was),
        cmocka_unit_test(test_xfer_descriptor_cut_or_spoilt_is_refused_or_whole),
        cmocka_unit_test(test_xfer_descriptor_of_another_version_says_both),
        cmocka_unit_test(test_xfer_descriptor_of_a_later_build_is_read),
        cmocka_unit_test(test_xfer_descriptor_as_the_hosts_message_comes_back),
        cmocka_unit_test(test_xfer_descriptor_as_the_hosts_message_keeps_holes),
        cmocka_unit_test(test_xfer_descriptor_with_holes_that_cannot_be_is_refused),
        cmocka_unit_test(test_xfer_descriptor_priority_comes_back_in_both_forms),
        cmocka_unit_test(test_xfer_descriptor_priority_lies_in_bytes_76_to_79),
        cmocka_unit_test(test_xfer_descriptor_priority_out_of_range_is_refused_by_its_path),
        cmocka_unit_test(test_xfer_descriptor_from_other_messages_is_refused),
        cmocka_unit_test(test_xfer_descriptor_of_a_host_that_knows_nothing_of_us_is_read),
        cmocka_unit_test(test_xfer_descriptor_digests_are_never_zero),
    };
    int failed = cmocka_run_group_tests_name("xfer_descriptor", tests, NULL, NULL);
    convoy_manifest_room_free(&room);
    return failed;
}
