//! The shop: an axum service with a rate limit, submissions that count once, a sale, and a worker
//! that places the orders.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use leasehold::kit::once::IfRunning;
use leasehold::kit::rate::{Limit, WhenAway};
use leasehold::kit::sale::{Answer, Begun, Figures, Payment, Rebuild, ReservationId, Sale, Standing, Terms};
use leasehold::kit::web::{AfterResponse, Counted, IdempotencyLayer, REPLAYED, RateLimitLayer};
use leasehold::{Client, Mutex};
use serde_json::json;

use crate::history::{EVERY, History, View, count};
use crate::orders::{Books, Database};
use crate::{Result, with_causes};

const PAGE: &str = include_str!("page.html");
const SALE: &str = "flash-sale";
/// How long a request waits: for a store under load, for the answer to its twin, and a payment for
/// the worker that places its order.
const PATIENCE: Duration = Duration::from_secs(3);
/// A sale that differs from the database for so long has lost a part: it is rebuilt.
const DOUBTFUL: Duration = Duration::from_secs(3);
/// What the worker has given up is tried again this often, while the database answers.
const RETRY_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Where the shop listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// What sells: redis://HOST/, postgres://… or file:DIR [default: a directory]
    #[arg(long, value_name = "URL")]
    on: Option<String>,
    /// What decides: postgres://USER:PASSWORD@HOST/DATABASE [default: a file]
    #[arg(long, value_name = "URL")]
    orders: Option<String>,
    /// Keeps that directory and that file here, so that they outlive the shop.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Units for sale.
    #[arg(long, default_value_t = 1000)]
    stock: u32,
    /// Units that one buyer may have.
    #[arg(long, default_value_t = 1)]
    limit: u32,
    /// What is not paid by then is sold to others.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pay_within: Duration,
    /// Requests of one buyer in a second.
    #[arg(long, default_value_t = 5)]
    rate: u32,
}

#[derive(Clone)]
struct Shop {
    client: Client,
    sale: Sale,
    database: Database,
    history: Arc<History>,
    stock: u32,
    limit: u32,
    pay_within: Duration,
}

pub(crate) async fn run(settings: &Settings) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(settings.listen).await.map_err(|error| {
        format!("can not listen at {}: {error}; choose another address with `--listen`", settings.listen)
    })?;
    // Removed with the program, unless a directory is given.
    let temporary = tempfile::tempdir()?;
    let data = settings.data.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&data)?;
    let embedded = format!("file:{}", data.join("store").display());
    let client = leasehold::connect(settings.on.as_deref().unwrap_or(&embedded))
        .await
        .map_err(|error| format!("the store of `--on`: {}", with_causes(&error)))?;
    let database = match &settings.orders {
        Some(url) if !url.starts_with("postgres") => {
            return Err("`--orders` takes `postgres://USER:PASSWORD@HOST/DATABASE` alone".into());
        }
        Some(url) => Database::in_postgres(url, SALE, settings.stock)
            .await
            .map_err(|error| format!("the database of `--orders`: {}", with_causes(&*error)))?,
        None => Database::in_file(&data.join("orders"), settings.stock)?,
    };
    let shop = Shop {
        sale: client.sale(SALE)?,
        client,
        database,
        history: Arc::new(History::new()),
        stock: settings.stock,
        limit: settings.limit,
        pay_within: settings.pay_within,
    };
    shop.open().await?;
    let background = [tokio::spawn(place_orders(shop.clone())), tokio::spawn(keep_history(shop.clone()))];
    println!("http://{}/", listener.local_addr()?);
    axum::serve(listener, router(&shop, settings)?)
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    background.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(shop.client.close().await?)
}

fn router(shop: &Shop, settings: &Settings) -> Result<Router> {
    let limit = Limit::per_second(settings.rate);
    let limiter = shop.client.limiter("buyers", limit, WhenAway::Shed)?.deadline(PATIENCE);
    let limit = RateLimitLayer::new(limiter, |parts: &Parts| Counted::As(buyer(&parts.headers)));
    // A second click waits for the answer to the first.
    let once = shop.client.once("orders")?.if_running(IfRunning::Wait(PATIENCE));
    let once = IdempotencyLayer::new(once, |parts: &Parts| buyer(&parts.headers)).after_response(|status| {
        match status {
            StatusCode::CREATED => AfterResponse::Keep,
            // It has taken nothing: whoever asks again may be luckier.
            _ => AfterResponse::Forget,
        }
    });
    // The layer that is added last comes first.
    let buying = Router::new()
        .route("/orders", post(reserve))
        .layer(once)
        .layer(limit)
        .layer(middleware::from_fn_with_state(Arc::clone(&shop.history), measure));
    Ok(buying
        .route("/", get(async || Html(PAGE)))
        .route("/state", get(state))
        .route("/orders/{id}/pay", post(pay))
        .route("/orders/{id}/cancel", post(cancel))
        .route("/start-again", post(start_again))
        .with_state(shop.clone()))
}

/// Who sends a request. A real shop has a session here.
fn buyer(headers: &HeaderMap) -> String {
    let name = headers.get("x-buyer").and_then(|name| name.to_str().ok());
    name.unwrap_or("nobody").to_owned()
}

/// Counts the answers that were given before the sale was asked, and how long all of them took.
async fn measure(State(history): State<Arc<History>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = next.run(request).await;
    history.answered_in(started.elapsed());
    let counters = &history.counters;
    count(&counters.requests);
    if response.headers().contains_key(REPLAYED) {
        count(&counters.replayed);
    } else if response.status() == StatusCode::TOO_MANY_REQUESTS {
        count(&counters.rate_limited);
    } else if response.status().is_server_error() {
        count(&counters.failed);
    }
    response
}

/// Reserves a unit. The key of the request is the number of the reservation.
async fn reserve(State(shop): State<Shop>, headers: HeaderMap) -> Result<Response, Failure> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let id: ReservationId = key.trim_matches('"').parse()?;
    let no = |status, why: &str| Ok((status, Json(json!({ "refused": why }))).into_response());
    let counters = &shop.history.counters;
    match shop.sale.reserve(buyer(&headers), 1, id).await? {
        Answer::Reserved(reservation) => {
            let pay_within = u64::try_from(reservation.pay_within.as_millis()).unwrap_or(u64::MAX);
            let told = json!({ "reservation": id.to_string(), "pay_within_ms": pay_within });
            Ok((StatusCode::CREATED, Json(told)).into_response())
        }
        Answer::SoldOut { .. } => {
            count(&counters.sold_out);
            no(StatusCode::CONFLICT, "sold out")
        }
        Answer::LimitReached { .. } => {
            count(&counters.over_limit);
            no(StatusCode::CONFLICT, "you have yours")
        }
        Answer::Ended(_) => no(StatusCode::GONE, "it was yours, and has ended"),
        Answer::NotOpen { .. } | Answer::Over => no(StatusCode::CONFLICT, "closed"),
        // The store has lost the sale: it is rebuilt in a moment.
        _ => no(StatusCode::SERVICE_UNAVAILABLE, "try again in a moment"),
    }
}

/// Pays for a reservation. The database decides, and the sale is told.
async fn pay(State(shop): State<Shop>, Path(id): Path<String>) -> Result<Response, Failure> {
    let id: ReservationId = id.parse()?;
    let started = Instant::now();
    loop {
        if shop.database.pay(id).await? {
            // If that fails, the worker finds out from the database when the time to pay is over.
            if let Ok(Payment::TooEarly) = shop.sale.pay(id).await {
                tokio::spawn(tell_again(shop.sale.clone(), id));
            }
            return Ok(Json(json!({ "paid": true })).into_response());
        }
        match shop.sale.find(id).await?.map(|found| found.standing) {
            Some(Standing::Reserved | Standing::Ordered) if started.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => return Ok((StatusCode::GONE, Json(json!({ "refused": "too late" }))).into_response()),
        }
    }
}

/// Tells the sale of a payment when the worker, which has placed the order, has said so there.
async fn tell_again(sale: Sale, id: ReservationId) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if !matches!(sale.pay(id).await, Ok(Payment::TooEarly)) {
            return;
        }
    }
}

async fn cancel(State(shop): State<Shop>, Path(id): Path<String>) -> Result<Response, Failure> {
    let standing = shop.sale.cancel(id.parse()?).await?;
    Ok(Json(json!({ "standing": format!("{standing:?}") })).into_response())
}

/// Forgets what was sold.
async fn start_again(State(shop): State<Shop>) -> Result<Response, Failure> {
    // Nobody else finds the new epoch in the database and rebuilds the sale, too.
    let Some(guard) = shop.rebuilding()?.lock_for(PATIENCE).await? else {
        return Err(Failure(StatusCode::SERVICE_UNAVAILABLE, "the sale is being rebuilt: try again".into()));
    };
    let epoch = shop.database.start_again(shop.stock).await?;
    shop.sale.rebuild(&Rebuild::new(shop.terms(shop.stock).epoch(epoch))).await?;
    guard.release().await?;
    shop.history.clear();
    Ok(Json(json!({ "epoch": epoch })).into_response())
}

async fn state(State(shop): State<Shop>) -> Result<Json<View>, Failure> {
    Ok(Json(shop.view().await?))
}

impl Shop {
    fn terms(&self, stock: u32) -> Terms {
        Terms::new(stock).limit(self.limit).pay_within(self.pay_within)
    }

    /// Opens the sale. If the database knows of orders and the store does not, it was lost.
    async fn open(&self) -> Result<()> {
        let books = self.database.books().await?;
        if self.sale.figures().await?.is_some() {
            return Ok(());
        }
        if books.epoch == 1 && books.placed == 0 {
            self.sale.open(&self.terms(self.stock)).await?;
            return Ok(());
        }
        self.rebuild().await
    }

    fn rebuilding(&self) -> Result<Mutex> {
        Ok(self.client.mutex(format!("rebuild {SALE}"))?)
    }

    /// Rebuilds a sale that had this epoch, unless another shop does that now or has done it.
    async fn rebuild_alone(&self, epoch: u32) -> Result<()> {
        let Some(guard) = self.rebuilding()?.try_lock().await? else { return Ok(()) };
        let rebuilt = async {
            let books = self.database.books().await?;
            let now = self.sale.figures().await?.unwrap_or_default();
            if now.epoch > epoch && now.epoch >= books.epoch && !now.rebuilding {
                return Ok(());
            }
            self.rebuild().await
        };
        let rebuilt = rebuilt.await;
        guard.release().await?;
        rebuilt
    }

    /// Gives to the worker again what it has given up while the database was away.
    async fn retry(&self) -> Result<()> {
        let letters = self.sale.dead_letters().await?;
        for letter in &letters {
            self.sale.retry(letter.id).await?;
        }
        eprintln!("{} reservations that were given up are tried again", letters.len());
        Ok(())
    }

    /// Goes on from what the database says.
    async fn rebuild(&self) -> Result<()> {
        let from = self.database.rebuild(|left| self.terms(left), self.pay_within).await?;
        match self.sale.rebuild(&from).await? {
            Begun::Now => eprintln!("the sale was rebuilt from the database"),
            Begun::Before { epoch } => eprintln!("another shop has begun epoch {epoch}"),
        }
        Ok(())
    }

    async fn view(&self) -> Result<View> {
        // The database first: what changes in between is on its way then.
        let books = self.database.books().await?;
        let found = self.sale.figures().await?.unwrap_or_default();
        let (p50, p99) = self.history.times();
        Ok(View {
            engine: self.client.guarantees().engine.to_owned(),
            database: self.database.name().to_owned(),
            epoch: found.epoch,
            stock: books.stock.into(),
            pay_within_ms: u64::try_from(self.pay_within.as_millis()).unwrap_or(u64::MAX),
            selling: found.epoch > 0 && !found.rebuilding,
            agrees: found.compare(&books.ledger).is_explained(),
            p50,
            p99,
            now: self.history.point(&found, &books),
            points: self.history.points(),
        })
    }
}

/// Turns reservations into orders, for as long as the shop is open.
async fn place_orders(shop: Shop) {
    loop {
        let worker = shop.sale.worker().poll(Duration::from_millis(50));
        if let Err(error) = worker.run(&shop.database).await {
            eprintln!("the worker has stopped: {error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Adds points to the charts, rebuilds a sale that the store has lost, or has lost a part of, and
/// tries again what was given up.
async fn keep_history(shop: Shop) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut doubt = Doubt::default();
    let mut retried = Instant::now();
    loop {
        ticks.tick().await;
        let kept = async {
            // The database answers if we come past this.
            let books = shop.database.books().await?;
            let Some(figures) = shop.sale.figures().await? else { return shop.rebuild_alone(0).await };
            if doubt.lasts(&figures, &books, shop.pay_within, Instant::now()) {
                return shop.rebuild_alone(figures.epoch).await;
            }
            shop.history.keep(shop.history.point(&figures, &books));
            if figures.dead > 0 && retried.elapsed() >= RETRY_EVERY {
                retried = Instant::now();
                shop.retry().await?;
            }
            Result::<()>::Ok(())
        };
        if let Err(error) = kept.await {
            eprintln!("{}", with_causes(&*error));
        }
    }
}

/// Looks whether the sale and the database stay apart. What is on its way is explained at one of
/// the next looks; what a store has forgotten stays forgotten.
#[derive(Debug, Default)]
struct Doubt {
    /// Since when the sale has had more to sell than the database explains, at every look.
    forgot: Option<Instant>,
    /// What they have differed in, and since when.
    apart: Option<((i64, i64, i64), Instant)>,
}

impl Doubt {
    /// True if the database has a later epoch, the sale has forgotten something, they have been
    /// apart by the same units for too long, or nobody has ended what somebody has begun to
    /// rebuild.
    fn lasts(&mut self, figures: &Figures, books: &Books, pay_within: Duration, now: Instant) -> bool {
        let by = figures.compare(&books.ledger);
        let in_flight = i64::try_from(by.in_flight).unwrap_or(i64::MAX);
        // A sale does not have more to sell than the database, nor fewer orders, unless it has
        // forgotten some. An order that is paid in this moment is one of them.
        let forgot = by.left > in_flight || by.unpaid + by.paid.max(0) < -in_flight || figures.rebuilding;
        self.forgot = forgot.then(|| self.forgot.unwrap_or(now));
        let has_forgotten = self.forgot.is_some_and(|since| now - since >= DOUBTFUL);
        // The sale may hear of a payment only when its time is over.
        let units = (by.left, by.unpaid, by.paid);
        let apart = self.apart.filter(|(before, _)| *before == units).unwrap_or((units, now));
        self.apart = (!by.is_explained()).then_some(apart);
        let stays = self.apart.is_some_and(|(_, since)| now - since >= DOUBTFUL + pay_within);
        // Whoever was to rebuild it has died after the first step. The database refuses each order.
        let is_old = books.epoch > figures.epoch;
        let lasts = has_forgotten || stays || is_old;
        if lasts {
            *self = Doubt::default();
        }
        lasts
    }
}

/// Why a request has failed.
struct Failure(StatusCode, String);

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Failure {
        let status = match error {
            leasehold::Error::Invalid { .. } => StatusCode::BAD_REQUEST,
            // The outcome is unknown: whoever sends it again with the same key is told.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failure(status, error.to_string())
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Failure {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Failure {
        Failure(StatusCode::SERVICE_UNAVAILABLE, with_causes(&*error))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "refused": self.1 }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use leasehold::kit::sale::Ledger;

    use super::*;

    const PAY_WITHIN: Duration = Duration::from_secs(10);
    /// Between two looks.
    const LOOK: Duration = Duration::from_millis(500);

    fn figures(available: u64, ordered: u64, paid: u64) -> Figures {
        let mut figures = Figures::default();
        (figures.epoch, figures.available, figures.ordered, figures.paid) = (1, available, ordered, paid);
        figures
    }

    fn books(left: u64, unpaid: u64, paid: u64) -> Books {
        Books { epoch: 1, stock: 100, ledger: Ledger { left, unpaid, paid }, placed: unpaid + paid }
    }

    /// How many looks it takes, of up to so many, until the sale is to be rebuilt.
    fn looks(most: u32, mut look: impl FnMut(u32) -> (Figures, Books)) -> Option<u32> {
        let (mut doubt, started) = (Doubt::default(), Instant::now());
        (0..most).find(|number| {
            let (figures, books) = look(*number);
            doubt.lasts(&figures, &books, PAY_WITHIN, started + LOOK * *number)
        })
    }

    #[test]
    fn a_sale_that_forgot_is_rebuilt_although_it_sells() {
        // It has forgotten ten orders, and sells one at each look: now and then one between the
        // look at the database and that at the sale.
        let sells = |number: u32| {
            let (sold, before) = (u64::from(number), u64::from(number - number % 2));
            (figures(60 - sold, 40 + sold, 0), books(50 - before, 50 + before, 0))
        };
        assert_eq!(looks(20, sells), Some(6));
        // Nor do those help that it hears of late.
        assert_eq!(looks(20, |_| (figures(60, 30, 0), books(50, 40, 10))), Some(6));
    }

    #[test]
    fn what_is_on_its_way_is_no_reason() {
        // Orders that end, and payments, between the look at the database and that at the sale.
        let ends = |number: u32| {
            let more = u64::from(!number.is_multiple_of(3));
            (figures(50 + more, 50 - more, 0), books(50, 50, 0))
        };
        assert_eq!(looks(100, ends), None);
        let pays = |number: u32| {
            let paid = u64::from(number);
            (figures(0, 99 - paid, paid + 1), books(0, 100 - paid, paid))
        };
        assert_eq!(looks(20, pays), None);
        let mut reserved = figures(40, 0, 0);
        reserved.reserved = 10;
        assert_eq!(looks(100, |_| (reserved, books(40, 10, 0))), None);
    }

    #[test]
    fn a_payment_is_waited_for() {
        let unheard = |_| (figures(50, 50, 0), books(50, 40, 10));
        assert_eq!(looks(100, unheard), Some(26));
        // Others come and go.
        assert_eq!(looks(100, |number| (figures(50, 50, u64::from(number % 2)), books(50, 40, 10))), None);
    }

    #[test]
    fn a_later_epoch_of_the_database_is_seen_at_once() {
        let mut later = books(50, 50, 0);
        later.epoch = 2;
        assert_eq!(looks(1, |_| (figures(50, 50, 0), later)), Some(0));
        let mut rebuilding = figures(50, 0, 0);
        rebuilding.rebuilding = true;
        assert_eq!(looks(20, |_| (rebuilding, books(50, 50, 0))), Some(6));
    }
}
