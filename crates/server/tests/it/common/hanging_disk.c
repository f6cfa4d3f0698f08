/* A disk that does not answer, loaded into a server by LD_PRELOAD: while the file that HANGS names is there, reads and writes of files
 * without a name wait, and so do syncs of the append-only file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(int fd, const char *part) {
    char link[64], target[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, target, sizeof target - 1);
    const char *flag = getenv("HANGS");
    if (len < 0 || flag == NULL) return;
    target[len] = 0;
    if (strstr(target, part) == NULL) return;
    struct timespec moment = {0, 5 * 1000 * 1000};
    while (access(flag, F_OK) == 0) nanosleep(&moment, NULL);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (real == NULL) real = dlsym(RTLD_NEXT, "pwrite64");
    wait_for_disk(fd, ".repl (deleted)");
    return real(fd, bytes, count, at);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (real == NULL) real = dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk(fd, ".incr.aof");
    return real(fd);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL) real = dlsym(RTLD_NEXT, "pread64");
    wait_for_disk(fd, ".repl (deleted)");
    return real(fd, bytes, count, at);
}
