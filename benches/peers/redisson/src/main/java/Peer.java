import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its default settings, one thread for each worker.
 *
 * <p>Arguments: PORT and PERMITS. It says "ready". For each line "KIND WORKERS MILLISECONDS" it
 * lets that many workers run empty sections for that long, and answers with the longest wait in
 * milliseconds and the sections of each worker.
 */
public final class Peer {
  private static final int LEASE_SECONDS = 30;

  /** One section: takes and gives back. Returns the time of the grant. */
  private interface Section {
    long run(boolean writes) throws InterruptedException;
  }

  private final RedissonClient client;

  private Peer(RedissonClient client) {
    this.client = client;
  }

  public static void main(String[] arguments) throws Exception {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://127.0.0.1:" + arguments[0]);
    RedissonClient client = Redisson.create(config);
    int permits = Integer.parseInt(arguments[1]);
    client.getSemaphore("redisson:semaphore").trySetPermits(permits);
    client.getPermitExpirableSemaphore("redisson:expirable").trySetPermits(permits);
    Peer peer = new Peer(client);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      peer.race(words[0], Integer.parseInt(words[1]), Long.parseLong(words[2]));
    }
    client.shutdown();
  }

  private Section section(String kind) {
    switch (kind) {
      case "semaphore":
        RSemaphore semaphore = client.getSemaphore("redisson:semaphore");
        return writes -> {
          semaphore.acquire();
          long granted = System.nanoTime();
          semaphore.release();
          return granted;
        };
      case "expirable":
        RPermitExpirableSemaphore expirable =
            client.getPermitExpirableSemaphore("redisson:expirable");
        return writes -> {
          String permit = expirable.acquire(LEASE_SECONDS, TimeUnit.SECONDS);
          long granted = System.nanoTime();
          expirable.release(permit);
          return granted;
        };
      case "rwlock":
        RReadWriteLock rwlock = client.getReadWriteLock("redisson:rwlock");
        return writes -> {
          RLock lock = writes ? rwlock.writeLock() : rwlock.readLock();
          lock.lock();
          long granted = System.nanoTime();
          lock.unlock();
          return granted;
        };
      case "limiter":
        RRateLimiter limiter = client.getRateLimiter("redisson:limiter");
        limiter.trySetRate(RateType.OVERALL, 1_000_000, Duration.ofSeconds(1));
        return writes -> {
          if (!limiter.tryAcquire()) {
            throw new IllegalStateException("used up");
          }
          return System.nanoTime();
        };
      default:
        throw new IllegalArgumentException(kind);
    }
  }

  /** The same rule as in shared.rs: every tenth section writes, in no regular order. */
  private static boolean writes(long worker, long section) {
    return ((worker * 7919 + section) * 2654435761L >>> 16) % 10 == 0;
  }

  private void race(String kind, int workers, long milliseconds) throws InterruptedException {
    long[] sections = new long[workers];
    AtomicLong longest = new AtomicLong();
    long end = System.nanoTime() + milliseconds * 1_000_000;
    Thread[] threads = new Thread[workers];
    for (int number = 0; number < workers; number++) {
      int worker = number;
      threads[worker] =
          new Thread(
              () -> {
                try {
                  Section section = section(kind);
                  long done = 0;
                  long wait = 0;
                  for (long now = System.nanoTime(); now < end; now = System.nanoTime()) {
                    wait = Math.max(wait, section.run(writes(worker, done)) - now);
                    done++;
                  }
                  sections[worker] = done;
                  longest.accumulateAndGet(wait, Math::max);
                } catch (Exception failed) {
                  failed.printStackTrace();
                  System.exit(1);
                }
              });
      threads[worker].start();
    }
    StringBuilder counts = new StringBuilder();
    for (int worker = 0; worker < workers; worker++) {
      threads[worker].join();
      counts.append(' ').append(sections[worker]);
    }
    System.out.println(longest.get() / 1e6 + counts.toString());
  }
}
