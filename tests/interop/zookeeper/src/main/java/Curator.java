import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's locks, semaphores and elections.
 *
 * <p>Arguments: HOST:PORT, the path, and "mutex", "read", "write", "latch" (LeaderLatch), or the
 * number of permits of an InterProcessSemaphoreV2. It says "ready", and answers each line with one
 * line.
 *
 * <ul>
 *   <li>"take": "held", after whatever wait
 *   <li>"try": "held" or "busy"
 *   <li>"release": "released"
 *   <li>"leader": the id of whoever leads, of an election
 *   <li>"work FILE SECTIONS": "worked": it added one to the number in the file so many times
 *   <li>"cycle MILLISECONDS": "cycled CYCLES": it took and released the lock all the time
 *   <li>"free THREADS MILLISECONDS": the same with so many threads, each with a lock of its own
 * </ul>
 */
public final class Curator {
  /** What a client of Curator can hold. */
  private interface Held {
    void take() throws Exception;

    boolean attempt() throws Exception;

    void release() throws Exception;
  }

  /** How long "try" waits where no time at all would be too short to ask. */
  private static final long A_MOMENT = 700;

  private final Held held;
  private final CuratorFramework client;
  private final String path;

  private Curator(CuratorFramework client, String path, String kind) {
    this.client = client;
    this.path = path;
    switch (kind) {
      case "read":
        held = lock(new InterProcessReadWriteLock(client, path).readLock());
        break;
      case "write":
        held = lock(new InterProcessReadWriteLock(client, path).writeLock());
        break;
      case "mutex":
        held = lock(new InterProcessMutex(client, path));
        break;
      case "latch":
        held = latch(client, path);
        break;
      default:
        held = semaphore(new InterProcessSemaphoreV2(client, path, Integer.parseInt(kind)));
    }
  }

  private static Held lock(InterProcessLock lock) {
    return new Held() {
      @Override
      public void take() throws Exception {
        lock.acquire();
      }

      @Override
      public boolean attempt() throws Exception {
        return lock.acquire(0, TimeUnit.MILLISECONDS);
      }

      @Override
      public void release() throws Exception {
        lock.release();
      }
    };
  }

  private static Held semaphore(InterProcessSemaphoreV2 semaphore) {
    Deque<Lease> leases = new ArrayDeque<>();
    return new Held() {
      @Override
      public void take() throws Exception {
        leases.push(semaphore.acquire());
      }

      @Override
      public boolean attempt() throws Exception {
        Lease lease = semaphore.acquire(A_MOMENT, TimeUnit.MILLISECONDS);
        if (lease != null) {
          leases.push(lease);
        }
        return lease != null;
      }

      @Override
      public void release() {
        semaphore.returnLease(leases.pop());
      }
    };
  }

  private static Held latch(CuratorFramework client, String path) {
    return new Held() {
      private LeaderLatch latch;

      private void stand() throws Exception {
        latch = new LeaderLatch(client, path, "curator");
        latch.start();
      }

      @Override
      public void take() throws Exception {
        stand();
        latch.await();
      }

      @Override
      public boolean attempt() throws Exception {
        stand();
        boolean leads = latch.await(A_MOMENT, TimeUnit.MILLISECONDS);
        if (!leads) {
          latch.close();
        }
        return leads;
      }

      @Override
      public void release() throws Exception {
        latch.close();
      }
    };
  }

  public static void main(String[] arguments) throws Exception {
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(arguments[0], 4000, 3000, new ExponentialBackoffRetry(50, 5));
    client.start();
    client.blockUntilConnected();
    Curator curator = new Curator(client, arguments[1], arguments[2]);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      System.out.println(curator.answer(line.split(" ")));
    }
    client.close();
  }

  private static long cycle(Held held, long millis) throws Exception {
    long end = System.nanoTime() + millis * 1_000_000;
    long cycles = 0;
    while (System.nanoTime() < end) {
      held.take();
      held.release();
      cycles++;
    }
    return cycles;
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "take":
        held.take();
        return "held";
      case "try":
        return held.attempt() ? "held" : "busy";
      case "release":
        held.release();
        return "released";
      case "leader":
        return new LeaderLatch(client, path).getLeader().getId();
      case "work":
        for (int section = 0; section < Integer.parseInt(words[2]); section++) {
          held.take();
          Path file = Path.of(words[1]);
          int number = Integer.parseInt(Files.readString(file).trim());
          Thread.sleep(5);
          Files.writeString(file, (number + 1) + "\n");
          held.release();
        }
        return "worked";
      case "cycle":
        return "cycled " + cycle(held, Long.parseLong(words[1]));
      case "free":
        AtomicLong sum = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int thread = 0; thread < Integer.parseInt(words[1]); thread++) {
          Held own = lock(new InterProcessMutex(client, path + thread));
          Thread running =
              new Thread(
                  () -> {
                    try {
                      sum.addAndGet(cycle(own, Long.parseLong(words[2])));
                    } catch (Exception error) {
                      throw new IllegalStateException(error);
                    }
                  });
          running.start();
          threads.add(running);
        }
        for (Thread thread : threads) {
          thread.join();
        }
        return "cycled " + sum;
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }
}
