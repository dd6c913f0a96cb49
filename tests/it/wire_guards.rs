//! An outage on real sockets: what reaches a dead server, and how soon one that is back is used.

use std::time::Duration;

use steadfast::{CircuitBreaker, CircuitState, Client, ErrorKind, Policy, ResponseExt, StopReason};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::server::{Reply, Server};
use crate::wire::{Refusing, client, ms};

const OPERATIONS: usize = 1_000;
const CALLERS: usize = 16;

/// What so many operations of some callers at the same time tried, each with the record of its attempts.
struct Outage {
    attempts: usize,
    took: Duration,
}

async fn outage(client: &Client, url: &str) -> Outage {
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, url) = (client.clone(), url.to_owned());
        let share = (caller..OPERATIONS).step_by(CALLERS).count();
        callers.spawn(async move {
            let mut attempts = 0;
            for _ in 0..share {
                attempts += match client.get(&url).send().await {
                    Ok(response) => response.attempts().unwrap().len(),
                    Err(error) => error.attempts().len(),
                };
            }
            attempts
        });
    }
    let attempts = callers.join_all().await.into_iter().sum();
    let took = started.elapsed();
    Outage { attempts, took }
}

impl Outage {
    /// The operations, the burst of the default budget, and its trickle.
    fn bound(&self) -> usize {
        OPERATIONS + 50 + self.took.as_secs() as usize / 10
    }
}

// field 40, R31
#[tokio::test]
async fn a_dead_server_gets_hardly_more_requests_than_there_are_operations() {
    for dead in [Reply::status(503), Reply::new().reset()] {
        let server = Server::repeat(dead).await;
        let outage = outage(&client(Policy::builder()), &server.url("/")).await;
        assert_eq!(server.requests().len(), outage.attempts);
        assert!(
            (OPERATIONS + 50..=outage.bound()).contains(&outage.attempts),
            "{}",
            outage.attempts
        );
    }
}

// field 40
#[tokio::test]
async fn a_port_where_nobody_listens_is_tried_hardly_more_often_than_there_are_operations() {
    let port = Refusing::new();
    let outage = outage(&client(Policy::builder()), &format!("http://{}/", port.addr())).await;
    assert!(
        (OPERATIONS + 50..=outage.bound()).contains(&outage.attempts),
        "{}",
        outage.attempts
    );
}

// R37, R35, field 48
#[tokio::test]
async fn with_a_circuit_a_dead_server_is_left_alone_and_another_one_is_not() {
    for reply in [Reply::status(503), Reply::new().reset()] {
        let (dead, alive) = (Server::repeat(reply).await, Server::repeat(Reply::ok("here")).await);
        let client = client(Policy::builder().circuit_breaker(CircuitBreaker::default()));
        let (dead_url, alive_url) = (dead.url("/"), alive.url("/"));
        tokio::join!(outage(&client, &dead_url), async {
            for _ in 0..100 {
                assert_eq!(client.get(&alive_url).send().await.unwrap().status(), 200);
            }
        });
        assert!(dead.requests().len() <= 100, "{}", dead.requests().len());
        assert_eq!(alive.requests().len(), 100);
    }
}

// R37
#[tokio::test]
async fn a_refusal_opens_no_socket() {
    let dead = Server::repeat(Reply::status(503).close()).await;
    // So long that no probe is due, however slow the test.
    let circuit = CircuitBreaker::default().minimum_throughput(1).open_for(ms(3_600_000));
    let client = client(Policy::builder().max_attempts(1).circuit_breaker(circuit));
    client.get(dead.url("/")).send().await.unwrap();
    for _ in 0..100 {
        let error = client.get(dead.url("/")).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    }
    assert_eq!((dead.connections(), dead.requests().len()), (1, 1));
}

// R39
#[tokio::test]
async fn a_server_that_is_back_is_used_within_one_open_period() {
    let open_for = ms(200);
    let circuit = CircuitBreaker::default().open_for(open_for).max_open_for(open_for);
    let client = client(
        Policy::builder()
            .max_attempts(1)
            .circuit_breaker(circuit.half_open_probes(1)),
    );
    // Twenty open the circuit, three are probes that fail, and then the server is back.
    let failures = 23;
    let replies = vec![Reply::status(500); failures].into_iter();
    let server = Server::start(replies.chain(vec![Reply::ok("back"); 10])).await;
    let mut back_since = None;
    let used = async {
        loop {
            match client.get(server.url("/")).send().await {
                Ok(response) if response.status() == 200 => return Instant::now(),
                Ok(_) if server.requests().len() == failures => back_since = Some(Instant::now()),
                Ok(_) => {}
                Err(error) => {
                    let StopReason::CircuitOpen { retry_in } = error.stop_reason() else {
                        panic!("{error}")
                    };
                    assert!(retry_in <= open_for, "{retry_in:?}");
                    sleep(retry_in).await;
                }
            }
        }
    };
    let back = timeout(Duration::from_secs(30), used)
        .await
        .expect("the server to be used");
    // The first request after the outage was the one that succeeded.
    assert_eq!(server.requests().len(), failures + 1);
    let state = client.circuits().list()[0].state();
    assert_eq!(state, CircuitState::Closed);
    let slack = Duration::from_secs(2);
    assert!(back - back_since.unwrap() <= open_for + slack);
}
