//! One connection to the server, for requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::{Client, Config, Connection, Row, Socket};

use super::errors::Names;
use super::one_by_one::OneByOne;
use super::prepared::{Parameter, Prepared};
use super::promises::ENGINE;
use super::schema::{Checked, check};
use super::statements::{MARK, Statements};
use super::url::Place;
use crate::claim::Micros;
use crate::engine::supervise::{Attempt, Connector};
use crate::engine::url::Secret;
use crate::engine::{Hint, Hints};
use crate::error::Result;
use crate::random;

/// Whatever the role's default is: a stricter isolation fails where ours waits. Statements that
/// were prepared are planned once, and the plan must not depend on how small a table was then.
const SETTINGS: &str = "-c default_transaction_isolation=read\\ committed \
     -c plan_cache_mode=force_generic_plan -c enable_seqscan=off";

/// How the server is reached, the same for all connections of a client.
pub(super) struct Server {
    config: Config,
    #[cfg(feature = "postgres-tls")]
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
    pub(super) names: Names,
    pub(super) schema: Option<String>,
    pub(super) statements: Statements,
    password: Option<Secret>,
    /// A pooler before the server does not take options of ours.
    plain: AtomicBool,
    /// Where hints go.
    pub(super) hints: OnceLock<Hints>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(mut place: Place) -> Result<Server> {
        let names = Names::of(&place);
        let config = &mut place.config;
        config.keepalives_idle(Duration::from_secs(15));
        config.keepalives_interval(Duration::from_secs(5));
        config.tcp_user_timeout(Duration::from_secs(10));
        config.ssl_mode(match &place.tls {
            Some(_) => tokio_postgres::config::SslMode::Require,
            None => tokio_postgres::config::SslMode::Disable,
        });
        Ok(Server {
            #[cfg(feature = "postgres-tls")]
            tls: place.tls.as_ref().map(super::tls::connector).transpose()?,
            config: place.config,
            statements: Statements::new(&place.tables),
            names,
            schema: place.schema,
            password: place.password,
            plain: AtomicBool::new(false),
            hints: OnceLock::new(),
        })
    }

    /// True if something before the server has refused options that a server takes.
    pub(super) fn is_behind_pooler(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    pub(super) fn secret(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::reveal)
    }

    /// Connects, and gives the part of the driver that has to be polled, and the mark that the
    /// session has at the server ([`MARK`]) if it was started with our options.
    ///
    /// A pooler may refuse options, or take them and ignore them. Only the server's own session can
    /// have the mark, and only if it was started for this connection.
    pub(super) async fn connect(&self) -> Result<(Client, Driver, String)> {
        let mark = format!("{:016x}", random::number()?);
        if !self.plain.load(Ordering::Relaxed) {
            let mut config = self.config.clone();
            config.options(format!("{SETTINGS} -c {MARK}={mark}"));
            match self.connect_as(&config).await {
                // PgBouncer knows few of them.
                Err(error) if is_about_options(&error) => self.plain.store(true, Ordering::Relaxed),
                Err(error) => return Err(self.names.not_connected(error)),
                Ok((client, driver)) => return Ok((client, driver, mark)),
            }
        }
        let connected = self.connect_as(&self.config).await;
        let (client, driver) = connected.map_err(|error| self.names.not_connected(error))?;
        Ok((client, driver, mark))
    }

    async fn connect_as(
        &self,
        config: &Config,
    ) -> std::result::Result<(Client, Driver), tokio_postgres::Error> {
        #[cfg(feature = "postgres-tls")]
        if let Some(tls) = &self.tls {
            let (client, connection) = config.connect(tls.clone()).await?;
            return Ok((client, Driver::Encrypted(Box::new(connection))));
        }
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        Ok((client, Driver::Plain(Box::new(connection))))
    }

    pub(super) fn hint(&self, hint: Hint) {
        if let Some(hints) = self.hints.get() {
            hints.give(hint);
        }
    }
}

fn is_about_options(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| said.message().contains("startup parameter"))
}

/// The part of the driver that has to be polled.
pub(super) enum Driver {
    Plain(Box<Connection<Socket, tokio_postgres::tls::NoTlsStream>>),
    #[cfg(feature = "postgres-tls")]
    Encrypted(Box<Connection<Socket, super::tls::Stream>>),
}

impl Driver {
    /// The next message of the server that nobody asked for; `None` when the connection has ended.
    pub(super) fn poll(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::result::Result<tokio_postgres::AsyncMessage, tokio_postgres::Error>>>
    {
        match self {
            Driver::Plain(connection) => connection.poll_message(context),
            #[cfg(feature = "postgres-tls")]
            Driver::Encrypted(connection) => connection.poll_message(context),
        }
    }

    /// Drives the connection until it ends, and says why it has.
    pub(super) async fn run(mut self, mut hear: impl FnMut(tokio_postgres::Notification)) -> String {
        loop {
            match std::future::poll_fn(|context| self.poll(context)).await {
                Some(Ok(tokio_postgres::AsyncMessage::Notification(heard))) => hear(heard),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    return error
                        .as_db_error()
                        .map_or_else(|| error.to_string(), |said| said.message().to_owned());
                }
                None => return "the connection has ended".to_owned(),
            }
        }
    }
}

/// A connection for requests.
pub(super) struct RequestConnector {
    pub(super) server: Arc<Server>,
    /// It is the first one of its client.
    pub(super) first: bool,
}

/// How requests are sent over a connection.
enum Sending {
    /// As they come.
    Text,
    /// As they come, by statements that the session has prepared.
    Prepared(Prepared),
    /// One by one: a pooler may give the next statement to another session.
    OneByOne(OneByOne),
}

/// What it is while it lasts. Dropped, the connection is closed.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    /// What time it was at the server.
    pub(super) now: Micros,
    sending: Sending,
    task: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    pub(super) fn new(client: Client, now: Micros, task: AbortHandle) -> Session {
        Session { client: Arc::new(client), now, sending: Sending::Text, task }
    }

    /// The rows that a statement gives.
    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        match &self.sending {
            Sending::Text => self.client.query_typed(statement, parameters).await,
            Sending::Prepared(prepared) => prepared.query(&self.client, statement, parameters).await,
            Sending::OneByOne(requests) => requests.query(statement, parameters).await,
        }
    }

    /// How many rows a statement changes.
    pub(super) async fn execute(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<u64, tokio_postgres::Error> {
        match &self.sending {
            Sending::Text => self.client.execute_typed(statement, parameters).await,
            Sending::Prepared(prepared) => prepared.execute(&self.client, statement, parameters).await,
            Sending::OneByOne(requests) => requests.execute(statement, parameters).await,
        }
    }
}

/// Ends the driver's task if the connection is not fit.
pub(super) struct Abort(pub(super) Option<AbortHandle>);

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

impl Connector for RequestConnector {
    type Session = Session;

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn server(&self) -> &str {
        &self.server.names.server
    }

    fn secret(&self) -> Option<&str> {
        self.server.secret()
    }

    async fn connect(&self, attempt: Attempt) -> Result<Session> {
        let (client, driver, mark) = self.server.connect().await?;
        let task = tokio::spawn(async move {
            let why = driver.run(|_| {}).await;
            attempt.lost(&why);
        });
        let mut abort = Abort(Some(task.abort_handle()));
        let Server { names, schema, statements, .. } = &*self.server;
        let Checked { now, mark: found } = check(&client, names, schema.as_deref(), statements).await?;
        abort.0 = None;
        let client = Arc::new(client);
        let sending = if found == Some(mark) {
            Sending::Prepared(Prepared::default())
        } else {
            Sending::OneByOne(OneByOne::over(Arc::clone(&client)))
        };
        Ok(Session { client, now, sending, task: task.abort_handle() })
    }

    async fn probe(&self, session: &Session) -> std::result::Result<(), String> {
        match session.query("select pg_is_in_recovery()", &[]).await {
            Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => {
                Err("the server has become a standby".to_owned())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn disconnected(&self, why: &str) {
        // The others go the same way: people are told once.
        if self.first {
            let server = self.server.names.server.clone();
            self.server.hint(Hint::Disconnected { server, why: why.to_owned() });
        }
    }

    fn connected_again(&self, server: String) {
        if self.first {
            self.server.hint(Hint::Reconnected { server });
        }
        // Messages may have been lost and, if the server is another one now, claims.
        self.server.hint(Hint::WakeAll);
        self.server.hint(Hint::Verify);
    }
}
