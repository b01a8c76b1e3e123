/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"
#include "core/error.h"

#include <stdbool.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct values {
    bool json;
    uint64_t count;
    double speed;
    const char *file;
    const char *operands[1];
    struct convoy_error error;
    struct convoy_command_line line;
};

static int32_t parse(struct values *values, int argc, const char *const *words)
{
    const struct convoy_option table[] = {
        {"json", CONVOY_OPTION_FLAG, &values->json, 0, 0, "", "as JSON"},
        {"count", CONVOY_OPTION_NUMBER, &values->count, 1, 64, "N", "how many"},
        {"speed", CONVOY_OPTION_REAL, &values->speed, 0, 10, "X", "how fast"},
        {"file", CONVOY_OPTION_TEXT, &values->file, 0, 0, "FILE", "which"},
    };
    char *argv[8] = {(char *)"command"};
    for (int i = 0; i < argc; i++) {
        argv[i + 1] = (char *)words[i];
    }
    values->error = (struct convoy_error)CONVOY_ERROR_INIT;
    values->line = (struct convoy_command_line){
        .options = table, .option_count = 4, .operands = values->operands, .operand_max = 1};
    return convoy_options_parse(&values->line, argc + 1, argv, &values->error);
}

static void test_options_all_kinds_are_read_in_both_forms(void **state)
{
    (void)state;
    struct values values = {0};
    const char *const words[] = {"--count", "64", "--speed=0.5", "--json", "word", "--file=a=b"};
    assert_int_equal(parse(&values, 6, words), CONVOY_OK);
    assert_int_equal(values.count, 64);
    assert_true(values.speed > 0.4 && values.speed < 0.6);
    assert_true(values.json);
    assert_string_equal(values.file, "a=b");
    assert_int_equal(values.line.operand_count, 1);
    assert_string_equal(values.operands[0], "word");
    assert_false(values.line.wants_help);
}

static void test_options_wrong_words_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        int argc;
        const char *words[2];
        const char *text;
    } cases[] = {
        {2, {"--count", "0"}, "--count is \"0\": must be a whole number from 1 to 64"},
        {2, {"--count", "65"}, "--count is \"65\": must be a whole number from 1 to 64"},
        {2, {"--count", "-1"}, "--count is \"-1\": must be a whole number from 1 to 64"},
        {2, {"--count", " 3"}, "--count is \" 3\": must be a whole number from 1 to 64"},
        {2, {"--count", "3x"}, "--count is \"3x\": must be a whole number from 1 to 64"},
        {2,
         {"--count", "99999999999999999999"},
         "--count is \"99999999999999999999\": must be a whole number from 1 to 64"},
        {1, {"--count"}, "--count needs a N"},
        {2, {"--speed", "nan"}, "--speed is \"nan\": must be a number from 0 to 10"},
        {2, {"--speed", "11"}, "--speed is \"11\": must be a number from 0 to 10"},
        {1, {"--json=1"}, "--json takes no value"},
        {1, {"--file="}, "--file is empty: needs a FILE"},
        {1, {"--cou"}, "unknown option --cou"},
        {1, {"-c"}, "unknown option -c"},
        {2, {"one", "two"}, "\"two\" is one word too many"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct values values = {0};
        assert_int_equal(parse(&values, cases[i].argc, cases[i].words), CONVOY_INVALID_ARGUMENT);
        assert_string_equal(values.error.text, cases[i].text);
    }
}

static void test_options_help_stops_the_reading(void **state)
{
    (void)state;
    struct values values = {0};
    const char *const words[] = {"--help", "--nonsense"};
    assert_int_equal(parse(&values, 2, words), CONVOY_OK);
    assert_true(values.line.wants_help);
}

/* One line each, aligned; a flag has no value name. */
static void test_options_help_lines_are_aligned(void **state)
{
    (void)state;
    static const struct convoy_option table[] = {
        {.name = "count", .kind = CONVOY_OPTION_NUMBER, .value_name = "N", .help = "how many"},
        {.name = "json", .kind = CONVOY_OPTION_FLAG, .value_name = "unused", .help = "JSON on stdout"},
    };
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    convoy_options_help(out, table, 2);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "  --count N                how many\n"
                              "  --json                   JSON on stdout\n"
                              "  --help                   print this text\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_all_kinds_are_read_in_both_forms),
        cmocka_unit_test(test_options_wrong_words_are_refused_by_name),
        cmocka_unit_test(test_options_help_stops_the_reading),
        cmocka_unit_test(test_options_help_lines_are_aligned),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
