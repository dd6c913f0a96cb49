//! A hundred callers at the end of the open period, on threads that really run at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use reqwest::{Request, Response};
use steadfast::{CircuitBreaker, CircuitState, Client, ErrorKind, Policy};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

const CALLERS: usize = 100;
const PROBES: usize = 3;
const URL: &str = "https://api.example.com/charges";

/// A service that counts its requests and answers none before it is told to. It turns away those that should not have come,
/// so that nobody waits for them.
struct Service {
    seen: AtomicUsize,
    answers: Semaphore,
}

impl Service {
    async fn serve(self: Arc<Self>, _: Request) -> Result<Response, std::io::Error> {
        if self.seen.fetch_add(1, SeqCst) >= PROBES {
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        let answer = self.answers.acquire().await.expect("a service that runs");
        answer.forget();
        Ok(http::Response::new("").into())
    }
}

fn client(http: &reqwest::Client) -> Client {
    let circuit = CircuitBreaker::default()
        .minimum_throughput(1)
        .half_open_probes(PROBES as u32);
    let circuit = circuit
        .open_for(Duration::from_millis(1))
        .max_open_for(Duration::from_millis(1));
    let policy = Policy::builder()
        .max_attempts(1)
        .circuit_breaker(circuit)
        .build()
        .unwrap();
    Client::builder(http.clone()).policy(policy).build()
}

/// The time has come for a probe, and nobody has asked yet.
async fn end_of_the_open_period(client: &Client) {
    while client.circuits().list()[0].retry_in() != Some(Duration::ZERO) {
        tokio::task::yield_now().await;
    }
}

// field 43
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_as_many_requests_as_probes_reach_the_service() {
    let http = reqwest::Client::new();
    for round in 0..1_000 {
        let client = client(&http);
        let failing =
            |_: Request| async { Err::<Response, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset)) };
        client.get(URL).send_with(failing).await.unwrap_err();
        end_of_the_open_period(&client).await;

        let service = Arc::new(Service {
            seen: AtomicUsize::new(0),
            answers: Semaphore::new(0),
        });
        let start = Arc::new(Barrier::new(CALLERS));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (client, service, start) = (client.clone(), Arc::clone(&service), Arc::clone(&start));
            callers.spawn(async move {
                start.wait().await;
                client
                    .get(URL)
                    .send_with(|request| Arc::clone(&service).serve(request))
                    .await
            });
        }
        // All others are refused while the probes are under way.
        for _ in 0..CALLERS - PROBES {
            let error = callers.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CircuitOpen, "round {round}");
        }
        // One after the other they are answered, and none of them leaves its place to somebody else.
        for _ in 0..PROBES {
            let late = client.get(URL).send_with(|request| Arc::clone(&service).serve(request));
            assert_eq!(late.await.unwrap_err().kind(), ErrorKind::CircuitOpen, "round {round}");
            service.answers.add_permits(1);
            let probe = callers.join_next().await.expect("a probe");
            assert_eq!(probe.unwrap().unwrap().status(), 200, "round {round}");
        }
        assert_eq!(service.seen.load(SeqCst), PROBES, "round {round}");
        assert_eq!(
            client.circuits().list()[0].state(),
            CircuitState::Closed,
            "round {round}"
        );
    }
}
