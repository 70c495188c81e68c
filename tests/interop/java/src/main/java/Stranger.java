import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.TimeZone;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * ShedLock with its JDBC table.
 *
 * <p>Arguments: a JDBC URL, a table, and whose clock it uses: "database" or "own". It says "ready",
 * and answers each line with one line. All times are in milliseconds.
 *
 * <ul>
 *   <li>"try NAME AT-MOST AT-LEAST": "held" or "busy"
 *   <li>"extend AT-MOST": "extended" or "gone"
 *   <li>"release": "released"
 *   <li>"run NAME AT-MOST AT-LEAST": "ran" or "skipped", as a scheduled task would
 *   <li>"work NAME SECTIONS": "worked": it added one to the table "counter" so many times
 * </ul>
 */
public final class Stranger {
  private final JdbcTemplate database;
  private final JdbcTemplateLockProvider provider;
  private SimpleLock held;

  private Stranger(String url, String table, String clock) {
    database = new JdbcTemplate(new DriverManagerDataSource(url));
    JdbcTemplateLockProvider.Configuration.Builder builder =
        JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(database).withTableName(table);
    if (clock.equals("database")) {
      builder.usingDbTime();
    } else {
      builder.withTimeZone(TimeZone.getTimeZone("UTC"));
    }
    provider = new JdbcTemplateLockProvider(builder.build());
  }

  public static void main(String[] arguments) throws Throwable {
    Stranger stranger = new Stranger(arguments[0], arguments[1], arguments[2]);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    // Connected, and all classes loaded.
    stranger.database.queryForObject("select 1", Integer.class);
    System.out.println("ready");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      System.out.println(stranger.answer(line.split(" ")));
    }
  }

  private String answer(String[] words) throws Throwable {
    switch (words[0]) {
      case "try":
        held = take(words[1], millis(words[2]), millis(words[3])).orElse(null);
        return held == null ? "busy" : "held";
      case "extend":
        Optional<SimpleLock> extended = held.extend(millis(words[1]), Duration.ZERO);
        extended.ifPresent(lock -> held = lock);
        return extended.isPresent() ? "extended" : "gone";
      case "release":
        held.unlock();
        return "released";
      case "run":
        LockConfiguration wanted = wanted(words[1], millis(words[2]), millis(words[3]));
        LockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
        return executor.executeWithLock(() -> "", wanted).wasExecuted() ? "ran" : "skipped";
      case "work":
        work(words[1], Integer.parseInt(words[2]));
        return "worked";
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private static Duration millis(String text) {
    return Duration.ofMillis(Long.parseLong(text));
  }

  private static LockConfiguration wanted(String name, Duration atMost, Duration atLeast) {
    return new LockConfiguration(Instant.now(), name, atMost, atLeast);
  }

  private Optional<SimpleLock> take(String name, Duration atMost, Duration atLeast) {
    return provider.lock(wanted(name, atMost, atLeast));
  }

  /** Adds one to a counter that nothing but the lock protects, again and again. */
  private void work(String name, int wanted) throws InterruptedException {
    int sections = 0;
    while (sections < wanted) {
      Optional<SimpleLock> lock = take(name, Duration.ofSeconds(30), Duration.ZERO);
      if (lock.isEmpty()) {
        Thread.sleep(5);
        continue;
      }
      long count = database.queryForObject("select value from counter", Long.class);
      Thread.sleep(2);
      database.update("update counter set value = ?", count + 1);
      lock.get().unlock();
      sections++;
      Thread.sleep(5);
    }
  }
}
