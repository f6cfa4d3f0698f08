/* A disk with a fixed price, loaded into a server by LD_PRELOAD: a sync after which the file has another size than at the
 * last one takes APPEND_US (a journal commit), any other OVERWRITE_US. Nothing is synced. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef APPEND_US
#define APPEND_US 4000
#define OVERWRITE_US 1100
#endif
#define FILES 1024

static struct { dev_t device; ino_t number; off_t size; } known[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int modelled_sync(int fd) {
    struct stat now;
    if (fstat(fd, &now) != 0) return -1;
    long us = APPEND_US;
    pthread_mutex_lock(&lock);
    unsigned at = (unsigned)now.st_ino % FILES;
    if (known[at].device == now.st_dev && known[at].number == now.st_ino && known[at].size == now.st_size)
        us = OVERWRITE_US;
    known[at].device = now.st_dev;
    known[at].number = now.st_ino;
    known[at].size = now.st_size;
    pthread_mutex_unlock(&lock);
    struct timespec left = {0, us * 1000};
    while (nanosleep(&left, &left) != 0) {}
    return 0;
}

#ifdef RENAME_US
/* A file that is replaced takes its time, whether or not it was synced. */
#include <sys/syscall.h>
int rename(const char *from, const char *to) {
    struct timespec left = {0, RENAME_US * 1000L};
    while (nanosleep(&left, &left) != 0) {}
    return syscall(SYS_renameat, -100, from, -100, to);
}
#endif

int fsync(int fd) { return modelled_sync(fd); }
int fdatasync(int fd) { return modelled_sync(fd); }
