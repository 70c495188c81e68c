// Makes the disk of the program that loads it slow, bad or full (LD_PRELOAD).
//
// The file that LEASEHOLD_DISK names says how: a number of milliseconds that every wait for the disk takes longer, -1 if such
// waits fail, or -2 if no table of PostgreSQL or MariaDB can grow. It is read each time; a wait for the disk is rare and slow anyway.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long told(void) {
  const char *path = getenv("LEASEHOLD_DISK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  char text[16] = {0};
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  return length > 0 ? strtol(text, NULL, 10) : 0;
}

static int hindered(void) {
  long millis = told();
  if (millis == -2) return 0;
  if (millis < 0) {
    errno = EIO;
    return -1;
  }
  struct timespec pause = {millis / 1000, millis % 1000 * 1000000};
  if (millis > 0) nanosleep(&pause, NULL);
  return 0;
}

// True if a write would make a table of PostgreSQL or MariaDB grow that can not.
static int full(int file, off_t offset, size_t length) {
  struct stat stat;
  if (fstat(file, &stat) || !S_ISREG(stat.st_mode) || offset + (off_t)length <= stat.st_size) return 0;
  char link[32], path[512] = {0};
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) < 0) return 0;
  return (strstr(path, "/base/") || strstr(path, ".ibd")) && told() == -2;
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off_t offset) {
  if (full(file, offset, length)) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, file, bytes, length, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) { return pwrite64(file, bytes, length, offset); }

int posix_fallocate64(int file, off_t offset, off_t length) {
  if (full(file, offset, (size_t)length)) return ENOSPC;
  return syscall(SYS_fallocate, file, 0, offset, length) ? errno : 0;
}

int posix_fallocate(int file, off_t offset, off_t length) { return posix_fallocate64(file, offset, length); }

int fallocate64(int file, int mode, off_t offset, off_t length) {
  if (mode == 0 && full(file, offset, (size_t)length)) {
    errno = ENOSPC;
    return -1;
  }
  return (int)syscall(SYS_fallocate, file, mode, offset, length);
}

int fallocate(int file, int mode, off_t offset, off_t length) { return fallocate64(file, mode, offset, length); }

int fsync(int file) { return hindered() ? -1 : (int)syscall(SYS_fsync, file); }

int fdatasync(int file) { return hindered() ? -1 : (int)syscall(SYS_fdatasync, file); }
