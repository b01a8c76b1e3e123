/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's side: starting, signalling, waiting for and judging the ranks. */
#include "tests/lib/ranks_state.h"

#include "core/clock.h"
#include "tests/lib/expect.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 2000u /* for the others once a rank has failed: they may be waiting for it */
#define PAGE_BYTES 4096u
#define MEMORY_BYTES ((sizeof(struct ranks_memory) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES)

struct ranks *ranks_create(uint32_t count, size_t shared_bytes)
{
    EXPECT(count >= 1 && count <= RANKS_MAX);
    struct ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        expect_fail(EXPECT_SITE("ranks_create"), "had no memory");
    }
    ranks->count = count;
    ranks->mapped_bytes = MEMORY_BYTES + shared_bytes;
    void *mapped = mmap(NULL, ranks->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(mapped != MAP_FAILED);
    ranks->memory = mapped;
    for (uint32_t i = 0; i < count; i++) {
        ranks->ranks[i] = (struct rank){.ranks = ranks, .index = i, .count = count, .shared = ranks_shared(ranks)};
        ranks->pidfds[i] = -1;
    }
    return ranks;
}

void *ranks_shared(const struct ranks *ranks)
{
    return (char *)ranks->memory + MEMORY_BYTES;
}

static void prepare(struct ranks *ranks, rank_fn run, void *argument, uint32_t timeout_ms)
{
    EXPECT(!ranks->is_started);
    ranks->is_started = true;
    ranks->run = run;
    ranks->argument = argument;
    ranks->timeout_ms = timeout_ms == 0 ? RANKS_TIMEOUT_MS : timeout_ms;
    ranks->deadline_ns = convoy_deadline_after(convoy_now_ns(), ranks->timeout_ms * CONVOY_NS_PER_MS);
}

static _Noreturn void run_process(struct rank *rank, pid_t parent)
{
    static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) {
        (void)signal(crashes[i], SIG_DFL); /* cmocka's handlers would go on with the next test in here */
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        rank_give_up(rank); /* the parent died before the line above took effect */
    }
    (void)setpgid(0, 0); /* so that whatever the rank forks can be found and killed */
    rank_run(rank);
}

void ranks_start(struct ranks *ranks, rank_fn run, void *argument, uint32_t timeout_ms)
{
    prepare(ranks, run, argument, timeout_ms);
    (void)fflush(NULL); /* else every rank would print again what the parent has buffered */
    pid_t parent = getpid();
    for (uint32_t i = 0; i < ranks->count; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            run_process(&ranks->ranks[i], parent);
        }
        EXPECT(pid > 0);
        (void)setpgid(pid, pid); /* on both sides: neither may run ahead of it */
        ranks->pids[i] = pid;
        ranks->pidfds[i] = (int)syscall(SYS_pidfd_open, pid, 0);
        EXPECT(ranks->pidfds[i] >= 0);
    }
}

static void *run_thread(void *rank)
{
    rank_run(rank);
}

void ranks_start_threads(struct ranks *ranks, rank_fn run, void *argument, uint32_t timeout_ms)
{
    prepare(ranks, run, argument, timeout_ms);
    ranks->are_threads = true;
    for (uint32_t i = 0; i < ranks->count; i++) {
        EXPECT_EQUAL(pthread_create(&ranks->threads[i], NULL, run_thread, &ranks->ranks[i]), 0);
    }
}

pid_t ranks_pid(const struct ranks *ranks, uint32_t index)
{
    return ranks->pids[index];
}

void ranks_expect_signal(struct ranks *ranks, uint32_t index, int signal_number)
{
    ranks->expected_signal[index] = signal_number;
}

void ranks_signal(struct ranks *ranks, uint32_t index, int signal_number)
{
    EXPECT(!ranks->are_threads && ranks->pids[index] > 0);
    if (signal_number == SIGKILL) {
        ranks_expect_signal(ranks, index, SIGKILL);
    }
    EXPECT_EQUAL(kill(ranks->pids[index], signal_number), 0);
}

/* Shows what the ranks said before the parent fails for its own reason. */
static void print_failures(const struct ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->count; i++) {
        if (ranks_load(&ranks->memory->slots[i].ending) == RANKS_FAILED) {
            (void)printf("rank %u: %s\n", i, ranks->memory->slots[i].text);
        }
    }
}

void ranks_await_stop(struct ranks *ranks, uint32_t index)
{
    siginfo_t info = {0};
    EXPECT_EQUAL(waitid(P_PID, (id_t)ranks->pids[index], &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    if (info.si_code != CLD_STOPPED) {
        print_failures(ranks);
    }
    EXPECT_EQUAL(info.si_code, CLD_STOPPED);
}

void ranks_stop(struct ranks *ranks, uint32_t index)
{
    ranks_signal(ranks, index, SIGSTOP);
    ranks_await_stop(ranks, index);
}

void ranks_await_mark(struct ranks *ranks, uint32_t index, uint32_t mark)
{
    if (!ranks_mark_reached(ranks, index, mark)) {
        print_failures(ranks);
        expect_fail(EXPECT_SITE("ranks_await_mark"), "rank %u is at mark %u, not at %u", index,
                    ranks_load(&ranks->memory->slots[index].mark), mark);
    }
}

void ranks_mark(struct ranks *ranks, uint32_t mark)
{
    ranks_mark_word(&ranks->memory->parent_mark, mark);
}

/* Waits up to timeout_ms for any of the processes from..to-1 to end. */
static bool await_any_exit(const struct ranks *ranks, uint32_t from, uint32_t to, uint32_t timeout_ms)
{
    struct pollfd fds[RANKS_MAX];
    for (uint32_t i = from; i < to; i++) {
        fds[i - from] = (struct pollfd){.fd = ranks->pidfds[i], .events = POLLIN};
    }
    return poll(fds, to - from, (int)timeout_ms) > 0;
}

void ranks_await_exit(struct ranks *ranks, uint32_t index)
{
    while (!await_any_exit(ranks, index, index + 1, RANKS_SLICE_MS)) {
        if (ranks_left_ms(ranks) == 0) {
            print_failures(ranks);
            expect_fail(EXPECT_SITE("ranks_await_exit"), "rank %u still runs", index);
        }
    }
}

static void reap(struct ranks *ranks, uint32_t index)
{
    (void)kill(-ranks->pids[index], SIGKILL); /* what it forked; the unreaped leader still holds the number */
    (void)waitpid(ranks->pids[index], &ranks->wait_status[index], 0);
    (void)close(ranks->pidfds[index]);
    ranks->pids[index] = 0;
    ranks->pidfds[index] = -1;
}

void ranks_reap(struct ranks *ranks, uint32_t index)
{
    if (ranks->pids[index] != 0) {
        ranks_await_exit(ranks, index);
        reap(ranks, index);
    }
}

/* Reaps what has ended, or all (killing them). Returns how many still run. */
static uint32_t reap_ended(struct ranks *ranks, bool are_overdue)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < ranks->count; i++) {
        if (ranks->pids[i] == 0) {
            continue;
        }
        bool has_ended = await_any_exit(ranks, i, i + 1, 0);
        if (has_ended || are_overdue) {
            ranks->is_overdue[i] = !has_ended;
            reap(ranks, i);
        } else {
            running++;
        }
    }
    return running;
}

static void finish_processes(struct ranks *ranks)
{
    bool is_graced = false;
    while (reap_ended(ranks, ranks_left_ms(ranks) == 0) > 0) {
        if (!is_graced && ranks_load(&ranks->memory->has_failed) != 0 && ranks_left_ms(ranks) > GRACE_MS) {
            is_graced = true;
            ranks->deadline_ns = convoy_deadline_after(convoy_now_ns(), GRACE_MS * CONVOY_NS_PER_MS);
        }
        (void)await_any_exit(ranks, 0, ranks->count, RANKS_SLICE_MS);
    }
}

static void finish_threads(struct ranks *ranks)
{
    struct timespec until; /* of the real-time clock: the join on a clock of choice is unknown to ThreadSanitizer */
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ranks_left_ms(ranks) / 1000 + 1;
    for (uint32_t i = 0; i < ranks->count; i++) {
        if (pthread_timedjoin_np(ranks->threads[i], NULL, &until) != 0) {
            print_failures(ranks);
            (void)printf("rank %u (a thread) still runs after %u ms\n", i, ranks->timeout_ms);
            (void)fflush(NULL);
            abort(); /* a thread cannot be ended from outside */
        }
    }
}

/* What is wrong with how the rank ended, or an empty text. */
static void judge(const struct ranks *ranks, uint32_t index, char *text_out, size_t bytes)
{
    const struct ranks_slot *slot = &ranks->memory->slots[index];
    int status = ranks->wait_status[index];
    int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    bool has_failed = ranks_load(&ranks->memory->has_failed) != 0;
    *text_out = '\0';
    if (slot->ending == RANKS_FAILED) {
        (void)snprintf(text_out, bytes, "%s", slot->text);
    } else if (ranks->is_overdue[index] && !has_failed) {
        (void)snprintf(text_out, bytes, "still ran after %u ms, at mark %u", ranks->timeout_ms, slot->mark);
    } else if (ranks->is_overdue[index] || slot->ending == RANKS_GAVE_UP) {
        return; /* it waited for the rank that failed */
    } else if (signal_number != ranks->expected_signal[index]) {
        (void)snprintf(text_out, bytes, "ended by signal %d, expected %d (mark %u)", signal_number,
                       ranks->expected_signal[index], slot->mark);
    } else if (signal_number == 0 && slot->ending != RANKS_PASSED) {
        (void)snprintf(text_out, bytes, "left with exit status %d before its end", WEXITSTATUS(status));
    }
}

void ranks_finish(struct ranks *ranks)
{
    char first[RANKS_TEXT_BYTES] = "";
    uint32_t first_index = 0;
    if (ranks->is_started) {
        (ranks->are_threads ? finish_threads : finish_processes)(ranks);
        for (uint32_t i = ranks->count; i-- > 0;) {
            char text[RANKS_TEXT_BYTES];
            judge(ranks, i, text, sizeof text);
            if (text[0] != '\0') {
                (void)printf("rank %u: %s\n", i, text);
                (void)memcpy(first, text, sizeof first);
                first_index = i;
            }
        }
    }
    (void)munmap(ranks->memory, ranks->mapped_bytes);
    free(ranks);
    if (first[0] != '\0') {
        expect_fail(EXPECT_SITE("ranks_finish"), "rank %u: %s", first_index, first);
    }
}
