/* Calls of libc that fail on demand, loaded into a server by LD_PRELOAD (tests/crash/preload.py).
 *
 * The file named by FAULT_CONTROL is mapped by the server and by the test, which arms it at any moment: the call
 * number `countdown` (0: the next one) of a kind in `kinds` fails with `error`, and with `forever` all that follow.
 * Only files whose path contains FAULT_PATH count. `clock_offset` is added to the time of day.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WRITE, DATASYNC, SYNC, OPEN, RENAME, TRUNCATE, ALLOCATE, UNLINK, MKDIR, KINDS };
enum { FDS = 65536 };

struct control {
    uint32_t armed, kinds, error, forever;
    int64_t countdown, clock_offset;
    uint64_t hits, calls[KINDS];
};

static struct control *control;
static const char *watched;
static unsigned char is_watched[FDS];

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void)
{
    REAL(open);
    const char *path = getenv("FAULT_CONTROL");
    watched = getenv("FAULT_PATH");
    int fd = path ? real(path, O_RDWR) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED && watched) control = map;
}

static int fails(int kind)
{
    if (!control) return 0;
    __atomic_add_fetch(&control->calls[kind], 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&control->armed, __ATOMIC_SEQ_CST) || !(control->kinds & 1u << kind)) return 0;
    int64_t left = __atomic_fetch_sub(&control->countdown, 1, __ATOMIC_SEQ_CST);
    if (left > 0 || (left < 0 && !control->forever)) return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
    errno = (int) control->error;
    return 1;
}

static int in_store(const char *path) { return control && path && strstr(path, watched) != NULL; }
static int fd_in_store(int fd) { return control && fd >= 0 && fd < FDS && is_watched[fd]; }

static int opened(int fd, int inside)
{
    if (fd >= 0 && fd < FDS) is_watched[fd] = (unsigned char) inside;
    return fd;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        int inside = in_store(path); \
        if (inside && fails(OPEN)) return -1; \
        return opened(real(path, flags, mode), inside); \
    }
OPENS(open)
OPENS(open64)

#define WRITES(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t at) \
    { \
        REAL(name); \
        return fd_in_store(fd) && fails(WRITE) ? -1 : real(fd, data, size, at); \
    }
WRITES(pwrite)
WRITES(pwrite64)

#define ON_FD(kind, name) \
    int name(int fd) \
    { \
        REAL(name); \
        return fd_in_store(fd) && fails(kind) ? -1 : real(fd); \
    }
ON_FD(DATASYNC, fdatasync)
ON_FD(SYNC, fsync)

#define CUTS(name) \
    int name(int fd, off_t size) \
    { \
        REAL(name); \
        return fd_in_store(fd) && fails(TRUNCATE) ? -1 : real(fd, size); \
    }
CUTS(ftruncate)
CUTS(ftruncate64)

#define ALLOCATES(name) \
    int name(int fd, off_t at, off_t size) \
    { \
        REAL(name); \
        return fd_in_store(fd) && fails(ALLOCATE) ? (int) control->error : real(fd, at, size); \
    }
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)

int rename(const char *old, const char *new)
{
    REAL(rename);
    return in_store(old) && fails(RENAME) ? -1 : real(old, new);
}

int unlink(const char *path)
{
    REAL(unlink);
    return in_store(path) && fails(UNLINK) ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return in_store(path) && fails(MKDIR) ? -1 : real(path, mode);
}

int close(int fd)
{
    REAL(close);
    opened(fd, 0);
    return real(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    int result = real(clock, now);
    if (control && clock == CLOCK_REALTIME && control->clock_offset) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + control->clock_offset;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return result;
}
