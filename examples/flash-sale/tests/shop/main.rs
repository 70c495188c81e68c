//! The shop as its users see it: the page in a headless Chromium, and the whole shop on Redis and
//! PostgreSQL, of which one goes away.

mod browser;
#[path = "../../src/http.rs"]
mod http;
#[path = "../../../../tests/servers/mod.rs"]
mod servers;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use browser::Browser;
use http::Connection;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use servers::{Postgres, Redis, not_installed};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flash-sale");
/// No case takes longer than this.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let browser = not_installed(&["chromium", "chromedriver"]);
    let servers = Redis::missing().or_else(Postgres::missing);
    let trials = vec![
        trial("the_page_shows_what_the_shop_says", browser.as_deref(), || {
            run(the_page_shows_what_the_shop_says())
        }),
        trial("a_person_buys_and_pays_in_the_page", browser.as_deref(), || {
            run(a_person_buys_and_pays_in_the_page())
        }),
        trial("a_thousand_requests_at_once_sell_the_stock_exactly", None, || {
            run(a_thousand_requests_at_once_sell_the_stock_exactly())
        }),
        trial("clicks_that_are_repeated_take_one_unit", None, || {
            run(clicks_that_are_repeated_take_one_unit())
        }),
        trial("a_shop_that_was_killed_goes_on", None, || run(a_shop_that_was_killed_goes_on())),
        trial("what_is_not_there_is_named", None, || run(what_is_not_there_is_named())),
        trial("a_wrong_password_is_named", Postgres::missing().as_deref(), || {
            run(a_wrong_password_is_named())
        }),
        trial("a_redis_that_forgets_all_costs_no_order", servers.as_deref(), || {
            run(a_redis_that_forgets_all_costs_no_order())
        }),
        trial("a_redis_that_forgets_a_moment_costs_no_order", servers.as_deref(), || {
            run(a_redis_that_forgets_a_moment_costs_no_order())
        }),
    ];
    let mut arguments = Arguments::from_args();
    // Each of them has a crowd, and looks at how long things take.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What is missing is ignored on a laptop, and a failure in CI.
fn trial(
    name: &str,
    missing: Option<&str>,
    case: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    if let Some(missing) = missing {
        eprintln!("shop: {missing} is missing; `./test.sh` installs it");
    }
    let ignored = missing.is_some() && std::env::var_os("CI").is_none();
    Trial::test(name.to_owned(), case).with_ignored_flag(ignored)
}

fn run(case: impl Future<Output = Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async { tokio::time::timeout(LIMIT, case).await });
    Ok(ended.map_err(|_| Failed::from("the case takes too long"))??)
}

/// A shop of one's own. It ends with this value.
struct Shop {
    process: Child,
    address: SocketAddr,
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Shop {
    fn open(options: &[&str]) -> Result<Shop> {
        let mut process = servers::spawn(PROGRAM, |command| {
            command.args(["--listen", "127.0.0.1:0"]).args(options).stdout(Stdio::piped());
        })?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
        let address = address.ok_or_else(|| format!("the shop said `{line}`"))?.parse()?;
        Ok(Shop { process, address })
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    async fn state(&self) -> Result<Value> {
        let response = Connection::open(self.address).await?.send("GET", "/state", "", "").await?;
        Ok(serde_json::from_slice(&response.body)?)
    }

    /// A crowd, which checks what it was sold; what it printed.
    fn crowd(&self, options: &[&str]) -> Result<Crowd> {
        let mut command = Command::new(PROGRAM);
        command.args(["load", "--at", &self.address.to_string()]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Crowd(command.spawn()?))
    }
}

struct Crowd(Child);

impl Crowd {
    /// Waits until all have gone; what was printed.
    async fn gone(self) -> Result<String> {
        let output = tokio::task::spawn_blocking(|| self.0.wait_with_output()).await??;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(text) } else { Err(format!("the crowd says: {text}").into()) }
    }
}

/// A number of the answer to `/state`.
fn number(state: &Value, name: &str) -> u64 {
    state["now"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {state}"))
}

/// Waits until something is so. It happens in a browser or in a shop, which are other processes and
/// tell nobody: they are asked again.
async fn until(what: &str, mut so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(30);
    let mut turns = tokio::time::interval(Duration::from_millis(50));
    loop {
        turns.tick().await;
        if so().await? {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("waited too long until {what}").into());
        }
    }
}

async fn the_page_shows_what_the_shop_says() -> Result<()> {
    let shop = Shop::open(&["--stock", "100", "--pay-within", "3s"])?;
    // The page is opened before anything happens, and not reloaded.
    let page = Browser::open(&shop.url()).await?;
    until("the page is alive", async || Ok(page.text("available").await? == "100")).await?;
    let crowd =
        shop.crowd(&["--buyers", "1200", "--concurrency", "10", "--per-second", "200", "--think", "1s"])?;
    until("it is seen to sell out", async || Ok(page.text("available").await? == "0")).await?;
    let first: u64 = page.number("refused").await?;
    until("refusals are counted as they happen", async || Ok(page.number("refused").await? > first)).await?;
    crowd.gone().await?;

    // At rest the page says what the shop says.
    let state = shop.state().await?;
    assert!(number(&state, "paid") > 0 && number(&state, "returned") > 0, "{state}");
    let refused = number(&state, "sold_out") + number(&state, "over_limit") + number(&state, "rate_limited");
    let mut wanted: Vec<_> =
        ["available", "paid", "returned"].map(|name| (name, number(&state, name))).into();
    wanted.extend([("refused", refused), ("open", 0)]);
    until(&format!("the page shows {wanted:?}"), async || {
        for (name, value) in &wanted {
            if page.number(name).await? != *value {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    assert_eq!(page.text("orders").await?, format!("{} orders so far", number(&state, "orders")));
    assert_eq!(page.text("verdict").await?, "every unit is accounted for");

    // Each chart was drawn from what has happened.
    let points = state["points"].as_array().ok_or("no points")?.len();
    for (chart, series) in [("units", 6), ("rates", 1), ("refusals", 2), ("reservations", 1), ("expiries", 1)]
    {
        let drawn = page
            .run(&format!(
                "return [...document.querySelectorAll('#{chart} path[data-points]')].map(path => [
                   Number(path.dataset.points),
                   new Set(path.getAttribute('d').split(/[ML]/).map(point => point.split(',')[1])).size])"
            ))
            .await?;
        let drawn = drawn.as_array().ok_or("no chart")?;
        assert_eq!(drawn.len(), series, "{chart}");
        let most_points = drawn.iter().filter_map(|path| path[0].as_u64()).max();
        assert!(most_points >= Some(points.min(8) as u64), "{chart} has {most_points:?} of {points} points");
        let heights = drawn.iter().filter_map(|path| path[1].as_u64()).max();
        assert!(heights >= Some(3), "{chart} is flat: {drawn:?}");
    }
    // On a telephone nothing is cut off.
    page.resize(390, 844).await?;
    until("it has been drawn again", async || {
        let fits =
            "return document.documentElement.scrollWidth <= window.innerWidth && window.innerWidth < 520";
        Ok(page.run(fits).await? == Value::Bool(true))
    })
    .await
}

async fn a_person_buys_and_pays_in_the_page() -> Result<()> {
    let shop = Shop::open(&["--stock", "2", "--pay-within", "30s"])?;
    let page = Browser::open(&shop.url()).await?;
    page.click("buy").await?;
    until("it is reserved", async || Ok(page.text("told").await?.starts_with("Reserved for you"))).await?;
    page.click("pay").await?;
    until("it is paid", async || Ok(page.text("told").await? == "Paid. It is yours.")).await?;
    assert_eq!(number(&shop.state().await?, "paid"), 1);
    page.click("buy").await?;
    until("one is enough", async || Ok(page.text("told").await? == "Sorry: you have yours.")).await?;

    // Somebody else changes their mind.
    let other = Browser::open(&shop.url()).await?;
    other.click("buy").await?;
    until("it is reserved", async || Ok(other.text("told").await?.starts_with("Reserved for you"))).await?;
    until("all is taken", async || Ok(page.text("available").await? == "0")).await?;
    other.click("cancel").await?;
    until("it is back", async || Ok(page.text("available").await? == "1")).await?;
    other.click("again").await?;
    until("a new sale begins", async || Ok(page.text("available").await? == "2")).await?;
    assert_eq!(page.text("paid").await?, "0");
    Ok(())
}

async fn a_thousand_requests_at_once_sell_the_stock_exactly() -> Result<()> {
    let shop = Shop::open(&["--stock", "100", "--pay-within", "20s"])?;
    let all_pay = ["--pay", "100", "--think", "500ms", "--bots", "0", "--twice", "0"];
    let options = [&["--buyers", "1000", "--concurrency", "1000"][..], &all_pay].concat();
    let said = shop.crowd(&options)?.gone().await?;
    assert!(said.contains("% answered at once") && said.contains("the books are right"), "{said}");
    let state = shop.state().await?;
    assert_eq!((number(&state, "paid"), number(&state, "available")), (100, 0), "{said}");
    // The shop counts whoever comes twice, after an answer that was lost, twice.
    assert!(said.contains(" 900 sold out,") && number(&state, "sold_out") >= 900, "{said}");
    Ok(())
}

async fn clicks_that_are_repeated_take_one_unit() -> Result<()> {
    let shop = Shop::open(&["--stock", "10", "--limit", "5", "--rate", "4"])?;
    let mut connection = Connection::open(shop.address).await?;
    let fields = "X-Buyer: a\r\nIdempotency-Key: 000102030405060708090a0b0c0d0e0f\r\n";
    let first = connection.send("POST", "/orders", fields, "").await?;
    assert_eq!((first.status, first.replayed), (201, false), "{first:?}");
    let mut limited = 0;
    for _ in 0..20 {
        let again = connection.send("POST", "/orders", fields, "").await?;
        if again.status == 429 {
            limited += 1;
        } else {
            assert_eq!((again.status, again.replayed), (201, true), "{again:?}");
            assert_eq!(again.body, first.body);
        }
    }
    let state = shop.state().await?;
    assert_eq!((number(&state, "reservations"), number(&state, "rate_limited")), (1, limited));
    assert!(limited > 0, "twenty at once are more than four in a second");
    Ok(())
}

async fn a_shop_that_was_killed_goes_on() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().to_str().ok_or("a path")?;
    let options = ["--stock", "50", "--data", data, "--pay-within", "3s"];
    let shop = Shop::open(&options)?;
    shop.crowd(&["--buyers", "30", "--think", "100ms", "--pay", "50"])?.gone().await?;
    let before = shop.state().await?;
    // kill -9.
    drop(shop);
    let shop = Shop::open(&options)?;
    let after = shop.state().await?;
    for name in ["available", "paid", "orders", "reservations", "returned"] {
        assert_eq!(number(&after, name), number(&before, name), "{name}");
    }
    shop.crowd(&["--buyers", "200", "--think", "100ms", "--pay", "100"])?.gone().await?;
    assert_eq!(number(&shop.state().await?, "paid"), 50);
    Ok(())
}

/// A shop that can not be opened: what it says.
fn refused(options: &[&str]) -> Result<String> {
    let output = Command::new(PROGRAM).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!((output.stdout.len(), said.lines().count()), (0, 1), "{said}");
    Ok(said)
}

#[track_caller]
fn names(said: &str, words: &[&str]) {
    assert!(words.iter().all(|word| said.contains(word)) && !said.contains("wrong:password"), "{said}");
}

async fn what_is_not_there_is_named() -> Result<()> {
    let shop = Shop::open(&[])?;
    let taken = shop.address.to_string();
    names(&refused(&["--listen", &taken])?, &[&taken, "in use", "--listen"]);
    // Nobody listens at a port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let any = ["--listen", "127.0.0.1:0"];
    let redis = format!("redis://wrong:password@{free}/");
    names(&refused(&[&any[..], &["--on", &redis]].concat())?, &["--on", &free, "refused"]);
    let postgres = format!("postgres://wrong:password@{free}/x");
    names(&refused(&[&any[..], &["--orders", &postgres]].concat())?, &["--orders", "refused"]);
    let mysql = format!("mysql://wrong:password@{free}/x");
    names(&refused(&[&any[..], &["--orders", &mysql]].concat())?, &["--orders", "postgres://"]);
    names(&refused(&["load", "--at", &free])?, &[&free, "refused", "start one with"]);
    Ok(())
}

async fn a_wrong_password_is_named() -> Result<()> {
    let postgres = Postgres::start();
    let url = postgres.url().replace(":secret@", ":wrong@");
    let said = refused(&["--listen", "127.0.0.1:0", "--orders", &url])?;
    names(&said, &["--orders", "password authentication failed"]);
    Ok(())
}

async fn a_redis_that_forgets_all_costs_no_order() -> Result<()> {
    let (redis, postgres) = (Redis::start(), Postgres::start());
    let (on, orders) = (redis.url(), postgres.url());
    let options = ["--stock", "60", "--pay-within", "3s", "--on", &on, "--orders", &orders];
    let shop = Shop::open(&options)?;
    shop.crowd(&["--buyers", "40", "--think", "100ms", "--pay", "60"])?.gone().await?;
    let before = shop.state().await?;
    assert_eq!((before["engine"].as_str(), before["database"].as_str()), (Some("redis"), Some("postgres")));
    let paid = number(&before, "paid");
    assert!(paid > 0, "{before}");
    let count = |what: &str| postgres.query(&format!("select count(*) from orders where {what}"));
    assert_eq!(count("state = 'paid'"), paid.to_string());

    // This server keeps nothing.
    redis.kill();
    redis.restart();
    until("it is rebuilt", async || {
        let state = shop.state().await;
        Ok(state.is_ok_and(|state| state["selling"] == true && state["agrees"] == true))
    })
    .await?;
    let state = shop.state().await?;
    assert!(state["epoch"].as_u64() > Some(1), "{state}");
    assert_eq!((number(&state, "paid"), number(&state, "available")), (paid, 60 - paid));
    // A second shop sells the rest of the same stock.
    let second = Shop::open(&options)?;
    let all_pay = ["--buyers", "300", "--think", "100ms", "--pay", "100"];
    let (one, two) = (shop.crowd(&all_pay)?, second.crowd(&all_pay)?);
    one.gone().await?;
    two.gone().await?;
    for shop in [&shop, &second] {
        let state = shop.state().await?;
        assert_eq!((number(&state, "paid"), number(&state, "available")), (60, 0));
    }
    assert_eq!(count("state = 'paid'"), "60");
    assert_eq!(postgres.query("select n from sales"), "0");
    Ok(())
}

/// As after a fail-over to a replica that lags.
async fn a_redis_that_forgets_a_moment_costs_no_order() -> Result<()> {
    let (redis, postgres) = (Redis::start(), Postgres::start());
    let (on, orders) = (redis.url(), postgres.url());
    let shop = Shop::open(&["--stock", "60", "--pay-within", "3s", "--on", &on, "--orders", &orders])?;
    let crowd = ["--buyers", "20", "--think", "100ms", "--pay", "100"];
    shop.crowd(&crowd)?.gone().await?;
    redis.command(&["SAVE"]);
    shop.crowd(&crowd)?.gone().await?;
    let before = shop.state().await?;
    assert_eq!((number(&before, "paid"), number(&before, "available")), (40, 20), "{before}");

    // It comes back with what it has saved, in which the last twenty are for sale.
    redis.kill();
    redis.restart();
    until("it is rebuilt", async || {
        let state = shop.state().await;
        Ok(state.is_ok_and(|state| state["epoch"].as_u64() >= Some(2) && state["selling"] == true))
    })
    .await?;
    let after = shop.state().await?;
    assert_eq!((number(&after, "paid"), number(&after, "available")), (40, 20), "{after}");
    assert_eq!(after["agrees"], true, "{after}");
    shop.crowd(&["--buyers", "100", "--think", "100ms", "--pay", "100"])?.gone().await?;
    assert_eq!(number(&shop.state().await?, "paid"), 60);
    assert_eq!(postgres.query("select count(*) from orders where state = 'paid'"), "60");
    assert_eq!(postgres.query("select n from sales"), "0");
    Ok(())
}
