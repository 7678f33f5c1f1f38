/* What one run costs: wall time, CPU, peak RSS, latencies; and the JSON line that reports it. */
#include "meter.h"

#include "util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct {
    const char *command;
    int server_pid;
    clockid_t server_clock;
    int64_t started_at_ns, took_ns;
    int64_t server_cpu_ns, driver_cpu_ns;  /* a reading at the start, the difference at the end */
    long server_rss_kib;
    int64_t server_disk_bytes;             /* a reading at the start, the difference at the end; -1 unknown */
    uint64_t errors;
    char error[200];
    uint32_t *latencies_ns;                /* capped at 4.2 s */
    uint64_t latency_count, latency_max;
} meter;

static int64_t clock_ns(clockid_t clock) {
    struct timespec ts;
    if (clock_gettime(clock, &ts) != 0)
        return 0;
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void rss_peak_reset(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/clear_refs", pid);
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return; /* then the peak since the start of the process is reported */
    if (write(fd, "5", 1) != 1)
        fprintf(stderr, "natsload: VmHWM of %d was not reset\n", pid);
    close(fd);
}

/* Read the number behind `format` in a file of /proc/<pid>, or -1. */
static long long proc_number(int pid, const char *name, const char *format) {
    char path[64], line[256];
    long long value = -1;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    while (value < 0 && fgets(line, sizeof line, file))
        sscanf(line, format, &value);
    fclose(file);
    return value;
}

void meter_init(const struct options *options) {
    meter.command = options->command;
    meter.server_pid = options->server_pid;
    if (meter.server_pid && clock_getcpuclockid(meter.server_pid, &meter.server_clock) != 0)
        fail("--server-pid %d: no such process", meter.server_pid);
}

void meter_start(void) {
    if (meter.server_pid) {
        rss_peak_reset(meter.server_pid);
        meter.server_disk_bytes = proc_number(meter.server_pid, "io", "write_bytes: %lld");
        meter.server_cpu_ns = clock_ns(meter.server_clock);
    }
    meter.driver_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    meter.started_at_ns = now_ns();
}

void meter_stop(void) {
    meter.took_ns = now_ns() - meter.started_at_ns;
    meter.driver_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - meter.driver_cpu_ns;
    if (meter.server_pid) {
        meter.server_cpu_ns = clock_ns(meter.server_clock) - meter.server_cpu_ns;
        meter.server_rss_kib = (long)proc_number(meter.server_pid, "status", "VmHWM: %lld");
        long long written = proc_number(meter.server_pid, "io", "write_bytes: %lld");
        meter.server_disk_bytes = written < 0 ? -1 : written - meter.server_disk_bytes;
    }
}

void meter_latencies(uint64_t count) {
    meter.latencies_ns = must_alloc(count * sizeof(uint32_t));
    meter.latency_max = count;
}

void meter_latency(int64_t ns) {
    if (meter.latency_count < meter.latency_max)
        meter.latencies_ns[meter.latency_count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

void meter_error(const char *text, uint32_t len) {
    if (meter.errors++ == 0)
        snprintf(meter.error, sizeof meter.error, "%.*s", (int)len, text);
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_latencies(void) {
    if (!meter.latency_count)
        return;
    qsort(meter.latencies_ns, meter.latency_count, sizeof(uint32_t), by_value);
    const uint32_t *sorted = meter.latencies_ns;
    uint64_t last = meter.latency_count - 1;
    printf(",\"latency_us\":{\"p50\":%.2f,\"p99\":%.2f,\"p999\":%.2f,\"max\":%.2f}", sorted[last / 2] / 1e3,
           sorted[last * 99 / 100] / 1e3, sorted[last * 999 / 1000] / 1e3, sorted[last] / 1e3);
}

/* The text as a JSON string: quotes, backslashes and control characters become escapes or '?'. */
static void print_text(const char *key, const char *text) {
    printf(",\"%s\":\"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < 32 || (unsigned char)*text > 126 ? '?' : *text);
    }
    putchar('"');
}

int meter_report(uint64_t msgs, uint64_t bytes) {
    double seconds = (double)meter.took_ns / 1e9;
    bool verified = meter.errors == 0;
    printf("{\"command\":\"%s\",\"verified\":%s,\"errors\":%llu,\"msgs\":%llu,\"bytes\":%llu,\"seconds\":%.6f,"
           "\"rate\":%.1f,\"driver_cpu_s\":%.6f",
           meter.command, verified ? "true" : "false", (unsigned long long)meter.errors, (unsigned long long)msgs,
           (unsigned long long)bytes, seconds, (double)msgs / seconds, (double)meter.driver_cpu_ns / 1e9);
    if (meter.server_pid)
        printf(",\"server_cpu_s\":%.6f,\"server_rss_peak_kib\":%ld,\"server_disk_bytes\":%lld",
               (double)meter.server_cpu_ns / 1e9, meter.server_rss_kib, (long long)meter.server_disk_bytes);
    print_latencies();
    if (!verified)
        print_text("failure", meter.error);
    printf("}\n");
    return verified ? 0 : 1;
}

void meter_fail(const char *text) {
    printf("{\"command\":\"%s\",\"verified\":false,\"errors\":%llu", meter.command ? meter.command : "",
           (unsigned long long)meter.errors);
    if (meter.errors)
        print_text("first_error", meter.error);
    print_text("failure", text);
    printf("}\n");
    fflush(stdout);
}
