// Freezes the wall clock of the program that loads it (LD_PRELOAD).
//
// The time is in the file that LEASEHOLD_CLOCK names: microseconds since 1970, twice, 8 bytes each. It is written from
// the second copy to the first and read from the first to the second, so a number that is half written is never taken.
//
// Every other clock runs on. It is read by the bare system call: to look up the next clock_gettime would allocate
// memory, and the allocator of the program asks for the time while it starts.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static uint64_t *shared;

// The frozen time, or 0 before it can be read.
static uint64_t frozen(void) {
  uint64_t *copies = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
  if (!copies) {
    // Whoever asks for the time does not expect to find an error.
    int before = errno;
    const char *path = getenv("LEASEHOLD_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
      void *map = mmap(NULL, 2 * sizeof(uint64_t), PROT_READ, MAP_SHARED, file, 0);
      close(file);
      // Two threads may both come here; the mapping of one is then wasted.
      if (map != MAP_FAILED) __atomic_store_n(&shared, copies = map, __ATOMIC_RELEASE);
    }
    errno = before;
    if (!copies) return 0;
  }
  uint64_t first, second;
  do {
    first = __atomic_load_n(&copies[0], __ATOMIC_ACQUIRE);
    second = __atomic_load_n(&copies[1], __ATOMIC_ACQUIRE);
  } while (first != second);
  return first;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  // The coarse one is the same clock, read less exactly.
  uint64_t micros = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? frozen() : 0;
  if (!micros) return (int)syscall(SYS_clock_gettime, clock, at);
  at->tv_sec = (time_t)(micros / 1000000);
  at->tv_nsec = (long)(micros % 1000000 * 1000);
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  int failed = clock_gettime(CLOCK_REALTIME, &exact);
  if (failed) return failed;
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
