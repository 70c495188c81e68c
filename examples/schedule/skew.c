// A wall clock that is wrong by LEASEHOLD_SKEW_MS, for the program that loads it (LD_PRELOAD).

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = (int)syscall(SYS_clock_gettime, clock, at);
  if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  const char *skew = getenv("LEASEHOLD_SKEW_MS");
  at->tv_sec += (time_t)(skew ? atol(skew) / 1000 : 0);
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  at->tv_sec = exact.tv_sec;
  at->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return (time_t)-1;
  if (at) *at = exact.tv_sec;
  return exact.tv_sec;
}
