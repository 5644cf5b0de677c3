// Ends a process, or fails its call, at one of its steps on the file system, and tells the
// steps. For LD_PRELOAD, by the tests of the adapters to files and RocksDB. It is told what to do by removals of
// files that are not there:
//   kill-at/<n>   from here on: SIGKILL in place of the step with this number, from 1
//   fail-at/<n>   from here on: the step with this number fails with ENOSPC
// Until then nothing is counted. STEPS names a file that takes a line for each step.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long at, count;
static int fails;

static void tell(const char *what, const char *one, const char *other) {
    const char *path = getenv("STEPS");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    char line[8192];
    int length = snprintf(line, sizeof line, "%s %s%s%s\n", what, one, *other ? " " : "", other);
    if (length > 0) syscall(SYS_write, file, line, (size_t)length);
    close(file);
}

// Whether this step is to fail.
static int step(const char *what, const char *one, const char *other) {
    if (!at) return 0;
    if (++count == at) {
        if (!fails) kill(getpid(), SIGKILL);
        errno = ENOSPC;
        return 1;
    }
    tell(what, one, other);
    return 0;
}

// Files and folders only: no pipe is a step.
static int named(int file, char *name, size_t size) {
    char link[64];
    struct stat stat;
    if (!at || fstat(file, &stat) || !(S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, size - 1);
    name[length < 0 ? 0 : length] = 0;
    return 1;
}

ssize_t write(int file, const void *bytes, size_t size) {
    char name[4096];
    if (named(file, name, sizeof name) && step("write", name, "")) return -1;
    return syscall(SYS_write, file, bytes, size);
}

int fsync(int file) {
    char name[4096];
    if (named(file, name, sizeof name) && step("sync", name, "")) return -1;
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    char name[4096];
    if (named(file, name, sizeof name) && step("sync", name, "")) return -1;
    return (int)syscall(SYS_fdatasync, file);
}

int rename(const char *from, const char *to) {
    if (step("rename", from, to)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdir(const char *path, mode_t mode) {
    if (step("mkdir", path, "")) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlink(const char *path) {
    if (!strncmp(path, "kill-at/", 8) || !strncmp(path, "fail-at/", 8)) {
        at = atol(path + 8);
        fails = *path == 'f';
        count = 0;
    } else if (step("unlink", path, "")) {
        return -1;
    }
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
