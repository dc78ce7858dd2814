/* A wall clock that is off by the seconds in the file DRILL_CLOCK: preloaded into a redis-server or a pool. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long off(void) {
  char text[32] = {0};
  const char *path = getenv("DRILL_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  long got = read(file, text, sizeof text - 1);
  close(file);
  return got > 0 ? atol(text) : 0;
}

int gettimeofday(struct timeval *now, void *zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "gettimeofday");
  int result = real(now, zone);
  if (now) now->tv_sec += off();
  return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += off();
  return result;
}

time_t time(time_t *result) {
  struct timeval now;
  gettimeofday(&now, 0);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}
