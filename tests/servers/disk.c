// Makes the disk of the program that loads it slow or bad (LD_PRELOAD).
//
// The file that LEASEHOLD_DISK names says how: a number of milliseconds that every wait for the disk takes longer, or -1 if such
// waits fail. It is read each time; a wait for the disk is rare and slow anyway.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int hindered(void) {
  const char *path = getenv("LEASEHOLD_DISK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  char text[16] = {0};
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  long millis = length > 0 ? strtol(text, NULL, 10) : 0;
  if (millis < 0) {
    errno = EIO;
    return -1;
  }
  struct timespec pause = {millis / 1000, millis % 1000 * 1000000};
  if (millis > 0) nanosleep(&pause, NULL);
  return 0;
}

int fsync(int file) { return hindered() ? -1 : (int)syscall(SYS_fsync, file); }

int fdatasync(int file) { return hindered() ? -1 : (int)syscall(SYS_fdatasync, file); }
