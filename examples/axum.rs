//! A web service whose instances share locks: each article is sold by one request at a time.
//!
//! ```text
//! cargo run -p leasehold --example axum
//! curl -X POST http://127.0.0.1:3000/stock/42/sell
//! ```
//!
//! Run as many as you like; `LEASEHOLD_ON=redis://…` and `--features redis` for several machines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use leasehold::{Client, Error, Fence, Token};

/// How long a request waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Shop {
    /// One client for the whole service: it renews all leases together. Clones are the same client.
    client: Client,
    stock: Arc<Stock>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("LEASEHOLD_ON").unwrap_or_else(|_| "file:".into());
    let shop = Shop { client: leasehold::connect(&url).await?.namespace("shop"), stock: Arc::default() };
    let router = axum::Router::new().route("/stock/{article}/sell", post(sell)).with_state(shop.clone());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 3000)).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, router)
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    // After the last request: gives back what is held, and closes the connections.
    Ok(shop.client.close().await?)
}

/// If the caller hangs up, axum drops this future: it leaves the queue, or gives the name back.
async fn sell(State(shop): State<Shop>, Path(article): Path<String>) -> Result<String, Refusal> {
    let article_lock = shop.client.mutex(&article)?;
    let Some(guard) = article_lock.lock_for(PATIENCE).await? else {
        return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, "others are buying it; try again".into()));
    };
    // The outer error: the lease was lost, and the sale was stopped. The inner one is the sale's.
    let left = guard.run(shop.stock.sell_one(&article, guard.token())).await??;
    guard.release().await?;
    Ok(format!("sold; {left} left\n"))
}

/// Stands for the database: it checks the token in the same step in which it writes.
#[derive(Default)]
struct Stock {
    articles: Mutex<HashMap<String, (Fence, u32)>>,
}

impl Stock {
    async fn sell_one(&self, article: &str, token: Token) -> leasehold::Result<u32> {
        tokio::time::sleep(Duration::from_millis(20)).await; // look up, charge, …
        let mut articles = self.articles.lock().unwrap_or_else(PoisonError::into_inner);
        let (fence, amount) = articles.entry(article.to_owned()).or_insert_with(|| (Fence::new(), 100));
        fence.admit(token)?;
        *amount = amount.saturating_sub(1);
        Ok(*amount)
    }
}

struct Refusal(StatusCode, String);

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let status = match error {
            // The name of the lock came from the caller.
            Error::Invalid { .. } => StatusCode::BAD_REQUEST,
            // The engine is away, or the lease was lost: another try may work.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal(status, error.to_string())
    }
}

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        (self.0, self.1 + "\n").into_response()
    }
}
