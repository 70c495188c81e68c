import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's locks.
 *
 * <p>Arguments: HOST:PORT, the path of the lock, and "mutex", "read" or "write". It says "ready", and
 * answers each line with one line.
 *
 * <ul>
 *   <li>"take": "held", after whatever wait
 *   <li>"try": "held" or "busy"
 *   <li>"release": "released"
 *   <li>"work FILE SECTIONS": "worked": it added one to the number in the file so many times
 *   <li>"cycle MILLISECONDS": "cycled CYCLES": it took and released the lock all the time
 *   <li>"free THREADS MILLISECONDS": the same with so many threads, each with a lock of its own
 * </ul>
 */
public final class Curator {
  private final InterProcessLock lock;
  private final CuratorFramework client;
  private final String path;

  private Curator(CuratorFramework client, String path, String kind) {
    this.client = client;
    this.path = path;
    switch (kind) {
      case "read":
        lock = new InterProcessReadWriteLock(client, path).readLock();
        break;
      case "write":
        lock = new InterProcessReadWriteLock(client, path).writeLock();
        break;
      default:
        lock = new InterProcessMutex(client, path);
    }
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

  private static long cycle(InterProcessLock lock, long millis) throws Exception {
    long end = System.nanoTime() + millis * 1_000_000;
    long cycles = 0;
    while (System.nanoTime() < end) {
      lock.acquire();
      lock.release();
      cycles++;
    }
    return cycles;
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "take":
        lock.acquire();
        return "held";
      case "try":
        return lock.acquire(0, TimeUnit.MILLISECONDS) ? "held" : "busy";
      case "release":
        lock.release();
        return "released";
      case "work":
        for (int section = 0; section < Integer.parseInt(words[2]); section++) {
          lock.acquire();
          Path file = Path.of(words[1]);
          int number = Integer.parseInt(Files.readString(file).trim());
          Thread.sleep(5);
          Files.writeString(file, (number + 1) + "\n");
          lock.release();
        }
        return "worked";
      case "cycle":
        return "cycled " + cycle(lock, Long.parseLong(words[1]));
      case "free":
        AtomicLong sum = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int thread = 0; thread < Integer.parseInt(words[1]); thread++) {
          InterProcessMutex own = new InterProcessMutex(client, path + thread);
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
