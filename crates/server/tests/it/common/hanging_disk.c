/* A disk that does not answer, loaded into a server by LD_PRELOAD: while the file that HANGS names is there, calls wait. An empty file
 * means reads and writes of files without a name, and syncs of the append-only file; else it has one call (open, write, sync, rename) and
 * a part of the file's path, with $ behind it the end of that. "fail" instead of "sync": it does not wait but fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* 1 if such a call of this file hangs now. */
static int hangs(const char *call, const char *part, const char *path) {
    const char *flag = getenv("HANGS");
    if (flag == NULL) return 0;
    int fd = syscall(SYS_openat, AT_FDCWD, flag, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[256] = {0}, asked_call[32] = {0}, asked_part[200] = {0};
    ssize_t len = syscall(SYS_read, fd, text, sizeof text - 1);
    close(fd);
    if (len <= 0) return part != NULL && strstr(path, part) != NULL;
    if (sscanf(text, "%31s %199s", asked_call, asked_part) != 2) return 0;
    if (strcmp(asked_call, call) != 0) return 0;
    size_t part_len = strlen(asked_part), path_len = strlen(path);
    if (asked_part[part_len - 1] != '$') return strstr(path, asked_part) != NULL;
    return path_len >= part_len - 1 && memcmp(path + path_len - (part_len - 1), asked_part, part_len - 1) == 0;
}

static void wait_for_path(const char *call, const char *part, const char *path) {
    struct timespec moment = {0, 5 * 1000 * 1000};
    while (hangs(call, part, path)) nanosleep(&moment, NULL);
}

/* 1 if there is a flag and the file has a path. */
static int find_path(int fd, char *path, size_t size) {
    const char *flag = getenv("HANGS");
    if (flag == NULL || access(flag, F_OK) != 0) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, size - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return 1;
}

static void wait_for_file(const char *call, const char *part, int fd) {
    char path[512];
    if (find_path(fd, path, sizeof path)) wait_for_path(call, part, path);
}

static int sync_fails(int fd) {
    char path[512];
    if (!find_path(fd, path, sizeof path) || !hangs("fail", NULL, path)) return 0;
    errno = EIO;
    return 1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    REAL(pwrite64);
    wait_for_file("write", ".repl (deleted)", fd);
    return real(fd, bytes, count, at);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(write);
    wait_for_file("write", NULL, fd);
    return real(fd, bytes, count);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
    REAL(pread64);
    wait_for_file("read", ".repl (deleted)", fd);
    return real(fd, bytes, count, at);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    wait_for_file("sync", ".incr.aof", fd);
    return sync_fails(fd) ? -1 : real(fd);
}

int fsync(int fd) {
    REAL(fsync);
    wait_for_file("sync", NULL, fd);
    return sync_fails(fd) ? -1 : real(fd);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    wait_for_path("rename", NULL, to);
    return real(from, to);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    wait_for_path("open", NULL, path);
    return real(path, flags, mode);
}
