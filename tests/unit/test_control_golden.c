/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages in tests/data/messages, written by a host's Python (make.py there): read and written again they are the
 * same bytes. And the table of messages is the one in tests/data/messages.md (CONVOY_WRITE_DATA=1 writes it).
 */
#include "core/memory.h"
#include "wire/control.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/data/messages"
#define TABLE_FILE "tests/data/messages.md"
#define ROOM_BYTES 65536u

/* Bytes of a file, at most ROOM_BYTES. */
static size_t read_file(const char *path, char *room)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s cannot be read", path);
        return 0;
    }
    size_t bytes = fread(room, 1, ROOM_BYTES, file);
    (void)fclose(file);
    return bytes;
}

/* What a text becomes when it is read and written. */
static char *again(struct convoy_span text, const char *name, size_t *bytes_out)
{
    struct convoy_error error = {.struct_size = sizeof error};
    const struct convoy_span frames[] = {{CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES}, text, {"more", 4}};
    struct convoy_control message;
    char *out = NULL;
    if (convoy_control_decode(frames, 3, &message, &error) != CONVOY_OK ||
        convoy_control_encode(&message, &out, bytes_out, &error) != CONVOY_OK) {
        fail_msg("%s: %s", name, error.text);
    }
    convoy_control_free(&message);
    return out;
}

static void assert_same(struct convoy_span text, struct convoy_span wanted, const char *name)
{
    size_t bytes = 0;
    char *out = again(text, name, &bytes);
    if (bytes != wanted.bytes || memcmp(out, wanted.text, bytes) != 0) {
        fail_msg("%s: became %.*s", name, (int)bytes, out);
    }
    convoy_memory_free(out);
}

static void test_control_golden_files_keep_every_byte(void **state)
{
    (void)state;
    static char room[ROOM_BYTES];
    unsigned count = 0;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[512];
        if (strstr(entry->d_name, ".json") == NULL) {
            continue;
        }
        (void)snprintf(path, sizeof path, FOLDER "/%s", entry->d_name);
        struct convoy_span text = {room, read_file(path, room)};
        assert_same(text, text, entry->d_name);
        count++;
    }
    (void)closedir(folder);
    assert_int_equal(count, 63);
}

/* A message that says nothing but its type and request is the message of defaults. */
static void test_control_golden_missing_fields_are_the_defaults(void **state)
{
    (void)state;
    static char room[ROOM_BYTES];
    for (int type = CONVOY_CONTROL_NONE + 1; type < CONVOY_CONTROL_TYPES; type++) {
        const char *name = convoy_control_name((enum convoy_control_type)type);
        char path[128];
        char bare[128];
        (void)snprintf(path, sizeof path, FOLDER "/%s.defaults.json", name);
        (void)snprintf(bare, sizeof bare, "{\"request_id\":\"r\",\"msg_type\":\"%s\"}", name);
        struct convoy_span wanted = {room, read_file(path, room)};
        assert_same((struct convoy_span){bare, strlen(bare)}, wanted, name);
    }
}

/* The same fields in another order and with blanks, keys and texts escaped differently. */
static void test_control_golden_is_one_form_of_many(void **state)
{
    (void)state;
    static const char wanted[] = "{\"msg_type\":\"transfer_failed\",\"request_id\":\"caf\\u00e9/\","
                                 "\"status\":-303,\"reason\":\"x\",\"convoy_attempt\":2}";
    static const char given[] = " {\t\"convoy_\\u0061ttempt\" : 2 , \"future\":{\"a\":[1]},\n\"reason\":\"\\u0078\",\r"
                                "\"status\":-303,\"request_id\":\"caf\xc3\xa9\\/\",\"convoy_epoch\":\"0\","
                                "\"convoy_edge\":\"\",\"msg_type\":\"transfer\\u005ffailed\"} ";
    assert_same((struct convoy_span){given, sizeof given - 1}, (struct convoy_span){wanted, sizeof wanted - 1}, "given");
}

static void test_control_golden_table_is_the_checked_in_one(void **state)
{
    (void)state;
    static char room[ROOM_BYTES];
    size_t bytes = convoy_control_table_text(NULL);
    char *text = convoy_memory_zalloc(bytes);
    assert_non_null(text);
    assert_int_equal(convoy_control_table_text(text), bytes);
    if (getenv("CONVOY_WRITE_DATA") != NULL) {
        FILE *file = fopen(TABLE_FILE, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(text, 1, bytes, file), bytes);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(read_file(TABLE_FILE, room), bytes);
    assert_memory_equal(room, text, bytes);
    convoy_memory_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_golden_files_keep_every_byte),
        cmocka_unit_test(test_control_golden_missing_fields_are_the_defaults),
        cmocka_unit_test(test_control_golden_is_one_form_of_many),
        cmocka_unit_test(test_control_golden_table_is_the_checked_in_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
