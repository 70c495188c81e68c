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
use leasehold::Client;
use leasehold::kit::once::IfRunning;
use leasehold::kit::rate::{Limit, WhenAway};
use leasehold::kit::sale::{Answer, Begun, Figures, Rebuild, ReservationId, Sale, Standing, Terms};
use leasehold::kit::web::{AfterResponse, Counted, IdempotencyLayer, REPLAYED, RateLimitLayer};
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

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Where the shop listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// What sells: redis://HOST/, or any other engine [default: a directory]
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
            // If that fails, the worker finds out from the database.
            shop.sale.pay(id).await.ok();
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

async fn cancel(State(shop): State<Shop>, Path(id): Path<String>) -> Result<Response, Failure> {
    let standing = shop.sale.cancel(id.parse()?).await?;
    Ok(Json(json!({ "standing": format!("{standing:?}") })).into_response())
}

/// Forgets what was sold.
async fn start_again(State(shop): State<Shop>) -> Result<Response, Failure> {
    let epoch = shop.database.start_again(shop.stock).await?;
    shop.sale.rebuild(&Rebuild::new(shop.terms(shop.stock).epoch(epoch))).await?;
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

    /// Rebuilds the sale, unless another shop does that now.
    async fn rebuild_alone(&self) -> Result<()> {
        let Some(guard) = self.client.mutex(format!("rebuild {SALE}"))?.try_lock().await? else {
            return Ok(());
        };
        let rebuilt = self.rebuild().await;
        guard.release().await?;
        rebuilt
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

/// Adds points to the charts, and rebuilds a sale that the store has lost, or has lost a part of.
async fn keep_history(shop: Shop) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut doubt = Doubt::default();
    loop {
        ticks.tick().await;
        let kept = async {
            let books = shop.database.books().await?;
            match shop.sale.figures().await? {
                Some(figures) if !doubt.lasts(&figures, &books, shop.pay_within) => {
                    shop.history.keep(shop.history.point(&figures, &books));
                }
                _ => shop.rebuild_alone().await?,
            }
            Result::<()>::Ok(())
        };
        if let Err(error) = kept.await {
            eprintln!("{}", with_causes(&*error));
        }
    }
}

/// Looks whether the sale and the database stay apart. What is on its way differs from look to
/// look, and is explained at rest; what a store has forgotten stays forgotten.
#[derive(Debug, Default)]
struct Doubt {
    apart: Option<(i64, i64, i64)>,
    since: Option<Instant>,
}

impl Doubt {
    /// True if they have been apart by the same units for too long, or nobody has ended what
    /// somebody has begun to rebuild.
    fn lasts(&mut self, figures: &Figures, books: &Books, pay_within: Duration) -> bool {
        let by = figures.compare(&books.ledger);
        let in_flight = i64::try_from(by.in_flight).unwrap_or(i64::MAX);
        // The sale may hear of a payment only when its time is over. But it does not have more to
        // sell than the database, nor fewer orders to end, unless it has forgotten some.
        let forgot = by.left > in_flight || by.unpaid < -in_flight || figures.rebuilding;
        let limit = if forgot { DOUBTFUL } else { DOUBTFUL + pay_within };
        let apart = (!by.is_explained() || figures.rebuilding).then_some((by.left, by.unpaid, by.paid));
        if apart.is_none() || apart != self.apart {
            (self.apart, self.since) = (apart, apart.map(|_| Instant::now()));
        }
        let lasts = self.since.is_some_and(|since| since.elapsed() >= limit);
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
