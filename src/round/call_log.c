/* SPDX-License-Identifier: Apache-2.0 */
#include "round/call_log.h"

#include "core/hot.h"
#include "core/memory.h"

#include <stdatomic.h>
#include <string.h>

#define ENTRIES_MAX 65536u
#define WORD sizeof(uint64_t)
#define HEADER_WORDS (sizeof(struct convoy_call_header) / WORD)
#define FIXED_WORDS (offsetof(struct convoy_call_header, lists) / WORD)
#define LIST_WORDS (sizeof(struct convoy_call_list) / WORD)
#define FRONT_WORDS 2u /* sequence number, and the form that the entry was put with (0 = put in another way) */
#define LINE_WORDS 8u /* of a cache line */
#define READ_TRIES 16 /* a writer would have to overwrite the same entry as often while one copy is made */

_Static_assert(sizeof(struct convoy_call_header) % WORD == 0, "headers are copied by words");
_Static_assert(offsetof(struct convoy_call_header, lists) % WORD == 0 && sizeof(struct convoy_call_list) % WORD == 0,
               "lists are copied by words");

struct convoy_call_log {
    uint32_t entries; /* a power of two */
    uint32_t entry_bytes;
    size_t entry_words; /* of the whole entry: sequence, header, payload */
    _Atomic uint64_t count;
    uint64_t forms;                 /* made so far */
    _Atomic uint64_t *words;        /* [entries][entry_words]; entries start on cache lines */
    void *memory;
    bool has_open;                  /* an entry was started, and no other put after it */
    struct convoy_call_header open; /* the writer's copy of it */
};

/* -- words --------------------------------------------------------------------------------------------------------- */

/*
 * Stores release and loads acquire, so that a reader that saw any new word also sees the odd sequence number that was
 * stored before it. (Fences would do as well, but ThreadSanitizer does not know them; on x86-64 both are plain moves.)
 */
static inline void put_word(_Atomic uint64_t *to, uint64_t word)
{
    atomic_store_explicit(to, word, memory_order_release);
}

static inline uint64_t load_word(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, WORD);
    return word;
}

static inline void put_words(_Atomic uint64_t *to, const void *from, size_t bytes)
{
    const uint8_t *source = from;
    size_t words = bytes / WORD;
    for (size_t i = 0; i < words; i++) {
        put_word(&to[i], load_word(source + i * WORD));
    }
    if (bytes % WORD != 0) {
        uint64_t word = 0;
        memcpy(&word, source + words * WORD, bytes % WORD);
        put_word(&to[words], word);
    }
}

/*
 * Values: as words where ThreadSanitizer looks, else as a plain copy, which takes a quarter of the time. The sequence
 * number in front of it was stored before a release fence, and the one behind it is a release store, so a reader that
 * saw any byte of the copy sees that the number has changed, whatever the copy is made of.
 */
#if defined(__SANITIZE_THREAD__)
static inline void put_values(_Atomic uint64_t *to, const void *from, size_t bytes)
{
    put_words(to, from, bytes);
}
#else
static inline void put_values(_Atomic uint64_t *to, const void *from, size_t bytes)
{
    uint8_t *target = (uint8_t *)(uintptr_t)to;
    const uint8_t *source = from;
    if (bytes == WORD) {
        memcpy(target, source, WORD);
    } else if (bytes != 0) {
        memcpy(target, source, bytes);
    }
}
#endif

static void get_words(void *to, const _Atomic uint64_t *from, size_t bytes)
{
    uint8_t *target = to;
    for (size_t done = 0; done < bytes; done += WORD) {
        uint64_t word = atomic_load_explicit(&from[done / WORD], memory_order_acquire);
        memcpy(target + done, &word, bytes - done < WORD ? bytes - done : WORD);
    }
}

static size_t words_of(size_t bytes)
{
    return (bytes + WORD - 1) / WORD;
}

static size_t header_bytes(uint32_t list_count)
{
    return (FIXED_WORDS + list_count * LIST_WORDS) * WORD;
}

/* Input and output each start at a word; what does not fit is not kept. */
static uint32_t kept(uint32_t bytes, size_t room)
{
    return bytes < room ? bytes : (uint32_t)room;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t entries)
{
    uint32_t power = 1;
    while (power < entries && power < ENTRIES_MAX) {
        power *= 2;
    }
    return power;
}

int32_t convoy_call_log_create(uint32_t entries, uint32_t entry_bytes, struct convoy_call_log **log_out)
{
    uint32_t count = power_of_two(entries);
    size_t entry_words = (FRONT_WORDS + HEADER_WORDS + words_of(entry_bytes) + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
    struct convoy_call_log *log = convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *log);
    if (log == NULL) {
        return CONVOY_NO_MEMORY;
    }
    log->memory = convoy_memory_zalloc((count * entry_words + LINE_WORDS) * WORD); /* pages that no call fills stay unused */
    if (log->memory == NULL) {
        convoy_call_log_destroy(log);
        return CONVOY_NO_MEMORY;
    }
    log->words = (_Atomic uint64_t *)(((uintptr_t)log->memory + LINE_WORDS * WORD - 1) & ~(uintptr_t)(LINE_WORDS * WORD - 1));
    log->entries = count;
    log->entry_bytes = (uint32_t)(words_of(entry_bytes) * WORD);
    log->entry_words = entry_words;
    *log_out = log;
    return CONVOY_OK;
}

void convoy_call_log_destroy(struct convoy_call_log *log)
{
    if (log != NULL) {
        convoy_memory_free(log->memory);
    }
    convoy_memory_free(log);
}

static size_t entry_at(const struct convoy_call_log *log, uint64_t number)
{
    return ((number - 1) & (log->entries - 1)) * log->entry_words;
}

/* Marks the entry as being written; returns where its header goes. */
static _Atomic uint64_t *entry_lock(struct convoy_call_log *log, uint64_t number)
{
    _Atomic uint64_t *entry = &log->words[entry_at(log, number)];
    atomic_store_explicit(entry, atomic_load_explicit(entry, memory_order_relaxed) + 1, memory_order_relaxed);
#if !defined(__SANITIZE_THREAD__) /* it does not know fences: put_values */
    atomic_thread_fence(memory_order_release);
#endif
    return entry + FRONT_WORDS;
}

static void entry_unlock(_Atomic uint64_t *header_words)
{
    _Atomic uint64_t *sequence = header_words - FRONT_WORDS;
    atomic_store_explicit(sequence, atomic_load_explicit(sequence, memory_order_relaxed) + 1, memory_order_release);
}

void convoy_call_log_start(struct convoy_call_log *log, const struct convoy_call_header *header, const void *input)
{
    struct convoy_call_header *open = &log->open;
    uint32_t lists = header->list_count < CONVOY_CALL_LISTS_MAX ? header->list_count : CONVOY_CALL_LISTS_MAX;
    uint64_t number = atomic_load_explicit(&log->count, memory_order_relaxed) + 1;
    memcpy(open, header, header_bytes(lists));
    log->has_open = true;
    open->number = number;
    open->status = CONVOY_IN_PROGRESS;
    open->list_count = lists;
    open->duration_ns = 0;
    open->output_bytes = 0;
    for (uint32_t i = 0; i < lists; i++) {
        open->lists[i].output_count = 0;
    }
    _Atomic uint64_t *words = entry_lock(log, number);
    put_word(words - 1, 0);
    put_words(words, open, header_bytes(lists));
    put_words(words + HEADER_WORDS, input, kept(header->input_bytes, log->entry_bytes));
    entry_unlock(words);
    atomic_store_explicit(&log->count, number, memory_order_release);
}

void convoy_call_log_end(struct convoy_call_log *log, const struct convoy_call_end *end)
{
    struct convoy_call_header *open = &log->open;
    if (!log->has_open) {
        return; /* nothing was started */
    }
    open->status = end->status;
    open->duration_ns = end->duration_ns;
    open->votes_and = end->votes_and;
    open->votes_or = end->votes_or;
    open->output_bytes = end->output_bytes;
    for (uint32_t i = 0; i < open->list_count; i++) {
        open->lists[i].output_count = end->output_counts[i];
    }
    size_t output_word = words_of(kept(open->input_bytes, log->entry_bytes));
    _Atomic uint64_t *words = entry_lock(log, open->number);
    put_words(words, open, header_bytes(open->list_count));
    put_words(words + HEADER_WORDS + output_word, end->output,
              kept(end->output_bytes, log->entry_bytes - output_word * WORD));
    entry_unlock(words);
}

/* Two neighbouring fields as the word that they are in memory (little-endian, as on every machine that this is for).
 * Reading them back as one word from where they were just written as two would stall the processor. */
static inline uint64_t pair(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pairs of fields are put as words");
_Static_assert(offsetof(struct convoy_call_header, operation) == 5 * WORD, "the words of a form");
_Static_assert(offsetof(struct convoy_call_header, votes_or) == 7 * WORD && FIXED_WORDS == 9, "the words of a form");
_Static_assert(offsetof(struct convoy_call_list, name) == 2 * WORD, "the words of a form");

/* Of a list: without its name, and with the one word that says it is empty. */
enum { LIST_NUMBER_WORDS = 2, LIST_PLAIN_WORDS = 3 };

void convoy_call_form_make(struct convoy_call_form *form_out, struct convoy_call_log *log,
                           const struct convoy_call_header *header, const struct convoy_call_end *end)
{
    form_out->id = ++log->forms;
    form_out->list_count = header->list_count < CONVOY_CALL_LISTS_MAX ? header->list_count : CONVOY_CALL_LISTS_MAX;
    form_out->named = 0;
    form_out->input_bytes = kept(header->input_bytes, log->entry_bytes);
    form_out->output_bytes = kept(end->output_bytes, log->entry_bytes - words_of(form_out->input_bytes) * WORD);
    form_out->words[5] = pair(header->operation, (uint32_t)end->status);
    form_out->words[8] = pair(header->input_bytes, end->output_bytes);
    for (uint32_t i = 0; i < form_out->list_count; i++) {
        const struct convoy_call_list *list = &header->lists[i];
        uint64_t *words = &form_out->words[FIXED_WORDS + i * LIST_WORDS];
        words[0] = pair(list->input_count, end->output_counts[i]);
        words[1] = pair(list->value_bytes, list->width);
        words[2] = 0;
        if (list->name[0] != '\0') {
            form_out->named |= 1u << i;
            memcpy(&words[LIST_NUMBER_WORDS], list->name, sizeof list->name);
        }
    }
}

/* What follows the first word of the names. */
__attribute__((noinline)) static void put_names(_Atomic uint64_t *to, const struct convoy_call_form *form)
{
    for (uint32_t i = 0; i < form->list_count; i++) {
        size_t at = FIXED_WORDS + i * LIST_WORDS + LIST_PLAIN_WORDS;
        if ((form->named >> i & 1u) != 0) {
            put_words(&to[at], &form->words[at], (LIST_WORDS - LIST_PLAIN_WORDS) * WORD);
        }
    }
}

/* What all entries of a form have in common. */
__attribute__((noinline)) static void put_constant(_Atomic uint64_t *to, const struct convoy_call_form *form)
{
    put_word(to - 1, form->id);
    put_word(&to[5], form->words[5]);
    put_word(&to[8], form->words[8]);
    for (uint32_t i = 0; i < form->list_count; i++) {
        size_t at = FIXED_WORDS + i * LIST_WORDS;
        put_word(&to[at], form->words[at]);
        put_word(&to[at + 1], form->words[at + 1]);
        put_word(&to[at + 2], form->words[at + 2]);
    }
    if (form->named != 0) {
        put_names(to, form);
    }
}

CONVOY_HOT
void convoy_call_log_put_form(struct convoy_call_log *log, const struct convoy_call_form *form,
                              const struct convoy_call_values *values, uint64_t duration_ns)
{
    uint64_t number = atomic_load_explicit(&log->count, memory_order_relaxed) + 1;
    _Atomic uint64_t *to = entry_lock(log, number);
    put_word(&to[0], number);
    put_word(&to[1], values->round);
    put_word(&to[2], values->epoch);
    put_word(&to[3], values->tag);
    put_word(&to[4], duration_ns);
    put_word(&to[6], pair(values->votes, values->votes_and));
    put_word(&to[7], pair(values->votes_or, form->list_count));
    if (__builtin_expect(atomic_load_explicit(to - 1, memory_order_relaxed) != form->id, 0)) {
        put_constant(to, form);
    }
    put_values(to + HEADER_WORDS, values->input, form->input_bytes);
    put_values(to + HEADER_WORDS + words_of(form->input_bytes), values->output, form->output_bytes);
    entry_unlock(to);
    log->has_open = false; /* an end without a start of its own changes nothing */
    atomic_store_explicit(&log->count, number, memory_order_release);
}

void convoy_call_log_put(struct convoy_call_log *log, const struct convoy_call_header *header, const void *input,
                         const struct convoy_call_end *end)
{
    struct convoy_call_form form;
    const struct convoy_call_values values = {
        .round = header->round,
        .epoch = header->epoch,
        .tag = header->tag,
        .votes = header->votes,
        .votes_and = end->votes_and,
        .votes_or = end->votes_or,
        .input = input,
        .output = end->output,
    };
    convoy_call_form_make(&form, log, header, end);
    convoy_call_log_put_form(log, &form, &values, end->duration_ns);
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

void convoy_call_log_skip(struct convoy_call_log *log, uint64_t number)
{
    atomic_store_explicit(&log->count, number - 1, memory_order_release);
}

uint64_t convoy_call_log_count(const struct convoy_call_log *log)
{
    return atomic_load_explicit(&log->count, memory_order_acquire);
}

uint32_t convoy_call_log_entry_bytes(const struct convoy_call_log *log)
{
    return log->entry_bytes;
}

uint32_t convoy_call_log_entries(const struct convoy_call_log *log)
{
    return log->entries;
}

size_t convoy_call_log_output_at(const struct convoy_call_log *log, const struct convoy_call_header *header)
{
    return words_of(kept(header->input_bytes, log->entry_bytes)) * WORD;
}

bool convoy_call_log_read(const struct convoy_call_log *log, uint64_t number, struct convoy_call_header *header_out,
                          uint8_t *bytes_out)
{
    if (number == 0 || number > convoy_call_log_count(log)) {
        return false;
    }
    const _Atomic uint64_t *entry = &log->words[entry_at(log, number)];
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t before = atomic_load_explicit(entry, memory_order_acquire);
        get_words(header_out, entry + FRONT_WORDS, sizeof *header_out);
        get_words(bytes_out, entry + FRONT_WORDS + HEADER_WORDS, log->entry_bytes);
        uint64_t after = atomic_load_explicit(entry, memory_order_acquire);
        if (before == after && before % 2 == 0) {
            return header_out->number == number;
        }
    }
    return false;
}
