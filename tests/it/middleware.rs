//! A stack of reqwest-middleware as the sender of attempts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use steadfast::{AttemptError, Client, Delivery, Error, ErrorKind, Outcome, RequestBuilder, ResponseExt, StopReason};

use crate::server::{Reply, Server};
use crate::wire::{Refusing, assert_same_bytes, client, http, quick};

/// What a middleware of the tests does, beside counting.
#[derive(Clone, Copy)]
enum Does {
    Pass,
    FailWith(fn() -> anyhow::Error),
}

struct Counting {
    calls: Arc<AtomicU32>,
    does: Does,
}

#[async_trait::async_trait]
impl Middleware for Counting {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.calls.fetch_add(1, Relaxed);
        request.headers_mut().insert("x-middleware", 1.into());
        match self.does {
            Does::Pass => next.run(request, extensions).await,
            Does::FailWith(error) => Err(error().into()),
        }
    }
}

fn stack(does: Does) -> (ClientWithMiddleware, Arc<AtomicU32>) {
    let calls = Arc::default();
    let counting = Counting {
        calls: Arc::clone(&calls),
        does,
    };
    (
        ClientBuilder::new(http().build().unwrap()).with(counting).build(),
        calls,
    )
}

async fn send(request: RequestBuilder, stack: &ClientWithMiddleware) -> Result<Response, Error> {
    request.send_with(|request| stack.execute(request)).await
}

fn plain() -> Client {
    client(quick())
}

fn keyless(client: &Client, url: String) -> RequestBuilder {
    client.post(url).body("x").without_idempotency_key()
}

// middleware
#[tokio::test]
async fn every_attempt_goes_through_the_middleware_with_the_same_bytes() {
    let server = Server::start([Reply::status(503), Reply::new().reset(), Reply::ok("done")]).await;
    let (stack, calls) = stack(Does::Pass);
    let response = send(plain().post(server.url("/")).body("x"), &stack).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "done");
    assert_same_bytes(&server, 3);
    let seen = server.requests().remove(0);
    assert!(seen.header("idempotency-key").is_some());
    assert_eq!((seen.header("x-middleware"), calls.load(Relaxed)), (Some("1"), 3));
}

// middleware: an error of the client beneath is classified as if there were no middleware.
#[tokio::test]
async fn a_refused_connection_is_known_through_the_middleware() {
    let refusing = Refusing::new();
    let (stack, calls) = stack(Does::Pass);
    let url = format!("http://{}/?token=hunter2", refusing.addr());
    let error = send(plain().post(url).body("x"), &stack).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome(), calls.load(Relaxed)),
        (ErrorKind::Connect, Outcome::NotDone, 3)
    );
    let shown = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
    assert!(!shown.contains("hunter2"), "{shown}");
}

// middleware: of what it fails with itself, what is wrapped decides.
#[tokio::test]
async fn an_error_of_a_middleware_is_classified_by_what_it_wraps() {
    #[derive(Debug, thiserror::Error)]
    #[error("signing failed")]
    struct Signing(#[source] io::Error);

    let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
    for (does, kind, made) in [
        (Does::FailWith(|| anyhow::anyhow!("no idea")), ErrorKind::Other, 1),
        (
            Does::FailWith(|| io::Error::from(io::ErrorKind::ConnectionReset).into()),
            ErrorKind::Reset,
            3,
        ),
        (
            Does::FailWith(|| Signing(io::Error::from(io::ErrorKind::ConnectionReset)).into()),
            ErrorKind::Reset,
            3,
        ),
        (
            Does::FailWith(|| AttemptError::not_sent("a full queue").into()),
            ErrorKind::Other,
            3,
        ),
    ] {
        let (stack, calls) = stack(does);
        let error = send(plain().post("http://127.0.0.1:1/").body("x"), &stack)
            .await
            .unwrap_err();
        assert_eq!((error.kind(), calls.load(Relaxed)), (kind, made));
    }
    // And a keyless write is repeated only after what says that nothing was sent.
    for (does, made) in [
        (
            Does::FailWith(|| io::Error::from(io::ErrorKind::ConnectionReset).into()),
            1,
        ),
        (Does::FailWith(|| AttemptError::not_sent("a full queue").into()), 3),
    ] {
        let (stack, calls) = stack(does);
        let error = send(keyless(&plain(), "http://127.0.0.1:1/".into()), &stack)
            .await
            .unwrap_err();
        assert_eq!(calls.load(Relaxed), made, "{error}");
    }
    let wrapped = AttemptError::from(reqwest_middleware::Error::Middleware(Signing(reset()).into()));
    assert_eq!(
        std::error::Error::source(&wrapped).unwrap().to_string(),
        "signing failed"
    );
}

// middleware: also where it is inside another error, and there its URL is not shown either.
#[tokio::test]
async fn an_error_of_the_stack_inside_another_is_recognised_and_shows_no_url() {
    let refusing = Refusing::new();
    let (stack, _) = stack(Does::Pass);
    let url = format!("http://{}/?token=hunter2", refusing.addr());
    let request = plain().post(url).body("x").max_attempts(1);
    let result = request.send_with(|request| {
        let sending = stack.execute(request);
        async { sending.await.map_err(io::Error::other) }
    });
    let error = result.await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotDone));
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        cause = error.source();
    }
}

// middleware: as a box.
#[test]
fn a_boxed_error_of_the_stack_is_opened() {
    let error = reqwest_middleware::Error::Middleware(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(error);
    let error = AttemptError::from(boxed);
    assert!(std::error::Error::source(&error).unwrap().is::<io::Error>());
}

#[tokio::test]
async fn a_keyless_write_that_may_have_acted_stops_at_once_through_the_middleware_too() {
    let server = Server::start([Reply::new().reset()]).await;
    let (stack, _) = stack(Does::Pass);
    let error = send(keyless(&plain(), server.url("/")), &stack).await.unwrap_err();
    assert_eq!(
        (error.stop_reason(), error.outcome()),
        (StopReason::NotReplaySafe, Outcome::Unknown)
    );
    let first = error.attempts().iter().next().unwrap();
    assert_eq!((first.delivery(), server.requests().len()), (Delivery::Unknown, 1));
    let _ = error.into_response().map(|response| response.outcome());
}
