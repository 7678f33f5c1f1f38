/* spawn: start a command and take the time from just before exec to the first PONG of a client.
 *
 * The client knocks every 50 us until the port answers, then sends CONNECT and PING. With --port 0 the
 * time ends when the command exits, for comparison with `python -c pass`. The command is killed and
 * reaped before the result is printed; its output goes to /dev/null.
 */
#include "commands.h"
#include "util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t start(char **argv) {
    pid_t pid = vfork();
    if (pid != 0)
        return pid;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    execvp(argv[0], argv);
    _exit(127);
}

static void kill_and_reap(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* True when the process has ended; it stays to be reaped, so its number cannot mean another one. */
static bool gone(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Connect as soon as the port listens; -1 when the process ends or nothing listens in time. */
static int knock(const struct options *o, pid_t pid, int64_t deadline_ns) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    inet_pton(AF_INET, o->host, &address.sin_addr);
    while (now_ns() < deadline_ns && !gone(pid)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return -1;
}

static bool first_pong(int fd) {
    static const char HELLO[] = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n";
    char text[8192];
    size_t len = 0;
    if (send(fd, HELLO, sizeof HELLO - 1, MSG_NOSIGNAL) < 0)
        return false;
    while (len < sizeof text - 1) {
        ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
        if (n <= 0)
            return false;
        len += (size_t)n;
        text[len] = 0;
        if (strstr(text, "PONG\r\n"))
            return true;
    }
    return false;
}

static int report(bool verified, int64_t took_ns, const char *failure) {
    printf("{\"command\":\"spawn\",\"verified\":%s,\"seconds\":%.6f%s%s%s}\n", verified ? "true" : "false",
           (double)took_ns / 1e9, failure ? ",\"failure\":\"" : "", failure ? failure : "", failure ? "\"" : "");
    return verified ? 0 : 1;
}

static int wait_for_exit(pid_t pid, int64_t started_at_ns) {
    int status = 0;
    waitpid(pid, &status, 0);
    int64_t took_ns = now_ns() - started_at_ns;
    return status == 0 ? report(true, took_ns, NULL) : report(false, took_ns, "the command failed");
}

int cmd_spawn(const struct options *o) {
    if (!o->rest || !*o->rest)
        return report(false, 0, "no command behind --");
    int64_t started_at_ns = now_ns();
    pid_t pid = start(o->rest);
    if (pid < 0)
        return report(false, 0, strerror(errno));
    if (!o->port)
        return wait_for_exit(pid, started_at_ns);
    int fd = knock(o, pid, started_at_ns + (int64_t)o->timeout_s * 1000000000);
    if (fd < 0) {
        kill_and_reap(pid);
        return report(false, 0, "the command ended or never listened");
    }
    bool pong = first_pong(fd);
    int64_t took_ns = now_ns() - started_at_ns;
    kill_and_reap(pid);
    close(fd);
    return report(pong, took_ns, pong ? NULL : "no PONG");
}
