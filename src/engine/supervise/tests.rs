use std::pin::pin;
use std::sync::Mutex;

use super::*;

/// A server of which the test decides what it does.
#[derive(Default)]
struct Server {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The answers to the next attempts; none means that the server connects.
    answers: Vec<Answer>,
    attempts: Vec<Attempt>,
    /// When each attempt was made.
    times: Vec<Instant>,
    silent: bool,
    again: u32,
}

enum Answer {
    Refused(Error),
    /// The connection is lost before it is given to anybody.
    Dies,
    Hangs,
}

#[derive(Clone)]
struct Fake(Arc<Server>);

impl Fake {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic")
    }
}

impl Connector for Fake {
    type Session = u64;

    fn engine(&self) -> &'static str {
        "fake"
    }

    fn server(&self) -> &str {
        "h:1"
    }

    fn secret(&self) -> Option<&str> {
        Some("secret")
    }

    async fn connect(&self, attempt: Attempt) -> Result<u64> {
        let epoch = attempt.epoch;
        let answer = {
            let mut state = self.state();
            state.times.push(Instant::now());
            if state.answers.is_empty() { None } else { Some(state.answers.remove(0)) }
        };
        match answer {
            None => {}
            Some(Answer::Refused(error)) => return Err(error),
            Some(Answer::Dies) => attempt.lost("it died"),
            Some(Answer::Hangs) => std::future::pending().await,
        }
        self.state().attempts.push(attempt);
        Ok(epoch)
    }

    async fn probe(&self, _: &u64) -> Result<(), String> {
        if self.state().silent { std::future::pending().await } else { Ok(()) }
    }

    fn disconnected(&self, _: &str) {}

    fn connected_again(&self, _: String) {
        self.state().again += 1;
    }
}

fn fake(answers: impl IntoIterator<Item = Answer>) -> Fake {
    let state = State { answers: answers.into_iter().collect(), ..State::default() };
    Fake(Arc::new(Server { state: Mutex::new(state) }))
}

fn down(what: &str) -> Answer {
    Answer::Refused(Error::Unavailable { engine: "fake", what: what.into(), source: None })
}

fn unfit(what: &str) -> Answer {
    Answer::Refused(Error::Engine { engine: "fake", what: what.into(), source: None })
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_is_made_anew() {
    let server = fake([]);
    let supervisor = Supervisor::open(server.clone()).await.expect("connected");
    let first = supervisor.connected().await.expect("connected");
    assert_eq!((**first, first.epoch, supervisor.connection()), (1, 1, Connection::Up));
    assert_eq!(supervisor.trouble(), "`h:1` is connected and silent");

    supervisor.lost(1, "broken pipe");
    assert_eq!(supervisor.connection(), Connection::Down(1));
    assert_eq!(supervisor.trouble(), "lost the connection to `h:1`: broken pipe");
    let second = supervisor.connected().await.expect("connected");
    assert_eq!(second.epoch, 2);
    assert_eq!(server.state().again, 1);

    // Late news of the first one.
    supervisor.lost(1, "broken pipe");
    server.state().attempts[0].lost("closed");
    assert_eq!(supervisor.connection(), Connection::Up);
    // The driver reports the second one.
    server.state().attempts[1].lost("closed");
    assert_eq!(supervisor.connection(), Connection::Down(2));
    assert_eq!(supervisor.connected().await.expect("connected").epoch, 3);
}

#[tokio::test(start_paused = true)]
async fn pauses_between_attempts_grow_to_a_limit() {
    let server = fake((0..12).map(|_| down("refused")));
    let supervisor = Supervisor::open_or_retry(server.clone(), CONNECT_LIMIT).await.expect("goes on trying");
    assert_eq!(supervisor.connection(), Connection::Down(0));
    assert_eq!(supervisor.connected().await.expect("connected").epoch, 13);
    let times = server.state().times.clone();
    let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut expected = FIRST_PAUSE;
    // The pause after the first attempt is a pause of its own.
    for pause in &pauses[1..] {
        // Timers have a resolution of a millisecond.
        assert!(*pause >= expected / 2 && *pause <= expected + Duration::from_millis(1), "{pauses:?}");
        expected = (expected * 2).min(LONGEST_PAUSE);
    }
    assert_eq!(expected, LONGEST_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_connections_at_once_is_not_flooded() {
    let server = fake((0..20).map(|_| Answer::Dies));
    let supervisor = Supervisor::open(server.clone()).await.expect("connected");
    let started = Instant::now();
    while server.state().times.len() < 20 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(started.elapsed() >= 19 * FIRST_PAUSE / 2, "{:?}", started.elapsed());
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_before_it_is_up_is_not_kept() {
    let server = fake([Answer::Dies]);
    let supervisor = Supervisor::open(server).await.expect("connected");
    assert_eq!(supervisor.connection(), Connection::Down(1));
    assert_eq!(supervisor.connected().await.expect("connected").epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_silent_is_given_up() {
    let server = fake([]);
    let supervisor = Supervisor::open(server.clone()).await.expect("connected");
    let connected = supervisor.connected().await.expect("connected");
    sleep(PROBE_EVERY * 10).await;
    assert_eq!(supervisor.connected().await.expect("connected").epoch, 1);
    server.state().silent = true;
    let started = Instant::now();
    // Whoever waits for an answer is woken.
    let error = supervisor.answer(&connected, pin!(std::future::pending::<()>())).await.expect_err("lost");
    assert!(started.elapsed() <= PROBE_EVERY + PROBE_LIMIT + FIRST_PAUSE, "{:?}", started.elapsed());
    assert!(error.is_retryable(), "{error}");
    assert_eq!(error.to_string(), "fake: lost the connection to `h:1`");
    // And whoever asks too late does not wait.
    assert!(supervisor.answer(&connected, pin!(std::future::pending::<()>())).await.is_err());
    server.state().silent = false;
    let connected = supervisor.connected().await.expect("connected");
    assert_eq!(supervisor.answer(&connected, pin!(std::future::ready(7))).await.expect("up"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_reported_in_time() {
    let error = Supervisor::open(fake([Answer::Hangs])).await.expect_err("silent");
    assert_eq!(error.to_string(), "fake: can not reach `h:1`: no answer in 5s");
    let limit = Duration::from_secs(1);
    let supervisor = Supervisor::open_or_retry(fake([Answer::Hangs]), limit).await.expect("goes on trying");
    assert_eq!(supervisor.trouble(), "can not reach `h:1`: no answer in 1s");
    supervisor.connected().await.expect("connected");
}

#[tokio::test(start_paused = true)]
async fn what_waiting_can_not_mend_is_reported_at_once_and_tried_again() {
    assert!(Supervisor::open_or_retry(fake([unfit("too old")]), CONNECT_LIMIT).await.is_err());
    let server = fake([]);
    let supervisor = Supervisor::open(server.clone()).await.expect("connected");
    server.state().answers = vec![down("refused"), unfit("wrong password"), unfit("wrong password")];
    supervisor.lost(1, "closed");
    let error = supervisor.connected().await.expect_err("refused");
    assert!(matches!(error, Error::Engine { .. }), "{error:?}");
    assert_eq!(
        (error.to_string(), supervisor.trouble()),
        ("fake: wrong password".into(), "wrong password".into())
    );
    while supervisor.connected_now().is_none() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_is_closed_ends_every_wait() {
    let server = fake([]);
    let supervisor = Arc::new(Supervisor::open(server.clone()).await.expect("connected"));
    let connected = supervisor.connected().await.expect("connected");
    let answer = tokio::spawn({
        let (supervisor, connected) = (Arc::clone(&supervisor), Arc::clone(&connected));
        async move { supervisor.answer(&connected, pin!(std::future::pending::<()>())).await }
    });
    tokio::task::yield_now().await;
    supervisor.close();
    let error = answer.await.expect("no panic").expect_err("closed");
    assert_eq!(error.to_string(), Error::closed().to_string());
    assert_eq!(supervisor.connected().await.expect_err("closed").to_string(), Error::closed().to_string());
    assert_eq!(
        (supervisor.connection(), supervisor.trouble()),
        (Connection::Down(1), Error::closed().what())
    );
    // It stays closed, whatever is reported.
    supervisor.lost(1, "closed");
    sleep(CONNECT_LIMIT).await;
    assert_eq!(server.state().times.len(), 1);

    let server = fake((0..1000).map(|_| down("refused")));
    let supervisor = Supervisor::open_or_retry(server, CONNECT_LIMIT).await.expect("goes on trying");
    let supervisor = Arc::new(supervisor);
    let waiting = tokio::spawn({
        let supervisor = Arc::clone(&supervisor);
        async move { supervisor.connected().await.map(|connected| connected.epoch) }
    });
    sleep(Duration::from_millis(50)).await;
    supervisor.close();
    assert!(waiting.await.expect("no panic").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_the_server_repeats_is_not_shown() {
    let error = Supervisor::open(fake([unfit("unknown command `AUTH secret`")])).await.expect_err("refused");
    assert_eq!(error.to_string(), "fake: unknown command `AUTH …`");
}
