/* The handler of SIGBUS in maps of files: it replaces the unreadable page with zeros, and counts it.
 *
 * Threads that hold the GIL change the table of maps; the signal handler may read it in any thread at any moment.
 * A slot is in use while its `size` is not 0: `size` is written last and cleared first. Blocks of slots are never
 * freed. The handler calls only mmap and sigaction.
 */
#ifndef PYJS_BAD_PAGES_H
#define PYJS_BAD_PAGES_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

enum { PYJS_BLOCK = 1024, PYJS_BLOCKS = 4096 };

struct pyjs_map {
    uintptr_t start;
    size_t size; /* 0: free */
};

static struct pyjs_map *pyjs_blocks[PYJS_BLOCKS];
static size_t pyjs_n_maps;       /* number of slots that were ever used */
static uint64_t pyjs_n_bad;      /* number of replaced pages */
static uintptr_t pyjs_page_size;
static struct sigaction pyjs_before; /* the previous handler */
static int pyjs_passed_on;

static struct pyjs_map *pyjs_slot(size_t i) { return &pyjs_blocks[i / PYJS_BLOCK][i % PYJS_BLOCK]; }

static int pyjs_guarded(uintptr_t at) {
    size_t i, n = __atomic_load_n(&pyjs_n_maps, __ATOMIC_ACQUIRE), size;
    for (i = 0; i < n; i++) {
        struct pyjs_map *m = pyjs_slot(i);
        size = __atomic_load_n(&m->size, __ATOMIC_ACQUIRE);
        if (size && at - m->start < size)
            return 1;
    }
    return 0;
}

/* Install the previous handler and let the instruction run again; if that fails too, install the default action. */
static void pyjs_pass_on(int sig) {
    struct sigaction next;
    if (__atomic_exchange_n(&pyjs_passed_on, 1, __ATOMIC_ACQ_REL) || (pyjs_before.sa_handler == SIG_IGN)) {
        memset(&next, 0, sizeof next);
        next.sa_handler = SIG_DFL;
        sigaction(sig, &next, NULL);
    } else {
        sigaction(sig, &pyjs_before, NULL);
    }
}

static void pyjs_on_sigbus(int sig, siginfo_t *info, void *context) {
    int saved = errno;
    uintptr_t page = (uintptr_t)info->si_addr & ~(pyjs_page_size - 1);
    (void)context;
    if (info->si_code <= 0 || !pyjs_guarded((uintptr_t)info->si_addr)
        || mmap((void *)page, pyjs_page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        pyjs_pass_on(sig);
        if (info->si_code <= 0) /* sent by a process: running the instruction again would not raise it */
            raise(sig);
    } else {
        __atomic_add_fetch(&pyjs_n_bad, 1, __ATOMIC_RELEASE);
    }
    errno = saved;
}

/* Install our handler again if another one (such as faulthandler) replaced it; that one is called after ours. */
static void pyjs_take_signal(void) {
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO && now.sa_sigaction == pyjs_on_sigbus))
        return;
    pyjs_before = now;
    pyjs_page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = pyjs_on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, NULL);
}

/* Use slot `i`, which is free or the next new one. Returns 0, or -1: no memory, or too many slots. */
static int pyjs_guard(size_t i, uintptr_t start, size_t size) {
    struct pyjs_map *m;
    if (i / PYJS_BLOCK >= PYJS_BLOCKS)
        return -1;
    if (!pyjs_blocks[i / PYJS_BLOCK]) {
        pyjs_blocks[i / PYJS_BLOCK] = calloc(PYJS_BLOCK, sizeof(struct pyjs_map));
        if (!pyjs_blocks[i / PYJS_BLOCK])
            return -1;
    }
    m = pyjs_slot(i);
    m->start = start;
    __atomic_store_n(&m->size, size, __ATOMIC_RELEASE);
    if (i == pyjs_n_maps)
        __atomic_store_n(&pyjs_n_maps, i + 1, __ATOMIC_RELEASE);
    pyjs_take_signal();
    return 0;
}

static void pyjs_release(size_t i) { __atomic_store_n(&pyjs_slot(i)->size, 0, __ATOMIC_RELEASE); }

static size_t pyjs_maps_used(void) { return pyjs_n_maps; }

static uint64_t pyjs_bad(void) { return __atomic_load_n(&pyjs_n_bad, __ATOMIC_ACQUIRE); }

/* Read a byte of every page of p .. p + n - 1. */
static void pyjs_touch(const char *p, size_t n) {
    const volatile char *at = p, *last = p + n - 1;
    for (; at < last; at += 4096)
        (void)*at;
    (void)*last;
}

#endif
