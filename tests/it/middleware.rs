//! A `reqwest_middleware` client that sends the attempts of an operation.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::iter;
use std::pin::Pin;

use anyhow::Context;
use http::Extensions;
use reqwest::header::HeaderValue;
use reqwest::{Method, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use steadfast::{AttemptError, Delivery, Error, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::server::{Reply, Server};
use crate::transport::URL;
use crate::wire::{Call, Lookups, Refusing, assert_healed, client, http, quick};

type Handled<'a> = Pin<Box<dyn Future<Output = reqwest_middleware::Result<Response>> + Send + 'a>>;

fn with(http: reqwest::ClientBuilder, middleware: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(http.build().unwrap()).with(middleware).build()
}

/// Adds a header.
fn mark<'a>(mut request: Request, extensions: &'a mut Extensions, next: Next<'a>) -> Handled<'a> {
    let value = HeaderValue::from_static("here");
    request.headers_mut().insert("x-middleware", value);
    next.run(request, extensions)
}

/// Fails before anything is sent, or after the answer: this crate cannot know.
struct Failing<F> {
    answered: bool,
    error: F,
}

impl<F> Failing<F> {
    fn before(error: F) -> Self {
        let answered = false;
        Self { answered, error }
    }

    fn after(error: F) -> Self {
        let answered = true;
        Self { answered, error }
    }
}

impl<F: Fn() -> anyhow::Error + Send + Sync + 'static> Middleware for Failing<F> {
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        request: Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> Handled<'async_trait>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async {
            if self.answered {
                next.run(request, extensions).await?;
            }
            Err(reqwest_middleware::Error::Middleware((self.error)()))
        })
    }
}

/// An error that nobody knows.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("no token")]
struct NoToken;

fn reset() -> anyhow::Error {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn refused() -> anyhow::Error {
    io::Error::from(io::ErrorKind::ConnectionRefused).into()
}

fn sources(error: &Error) -> Vec<&(dyn StdError + 'static)> {
    iter::successors(error.source(), |&error| error.source()).collect()
}

async fn send(stack: &ClientWithMiddleware, call: Call, url: String) -> Result<Response, Error> {
    let request = call.to(&client(quick()), url);
    request.send_with(|request| stack.execute(request)).await
}

// middleware
#[tokio::test]
async fn each_attempt_goes_through_the_middleware_with_the_one_key() {
    let server = Server::start([Reply::status(503), Reply::ok("paid")]).await;
    let stack = with(http(), mark);
    let request = Request::new(Method::POST, server.url("/pay").parse().unwrap());
    let sent = client(quick()).execute_with(request, |request| stack.execute(request));
    assert_eq!(sent.await.unwrap().attempts().unwrap().len(), 2);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let key = requests[0].header("idempotency-key");
    assert!(key.is_some() && requests[1].header("idempotency-key") == key);
    assert!(
        requests
            .iter()
            .all(|request| request.headers_named("x-middleware") == ["here"])
    );
}

// middleware
#[tokio::test]
async fn a_refused_connection_behind_middleware_was_not_sent_and_is_repeated_for_every_method() {
    let refusing = Refusing::new();
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let lookups = Lookups::of([Some(refusing.addr()), Some(server.addr())]);
        let stack = with(http().dns_resolver(lookups), mark);
        let response = send(&stack, call, Lookups::URL.into()).await.unwrap();
        assert_healed(&response, ErrorKind::Connect, Delivery::NotSent);
        assert_eq!(server.requests().len(), 1, "{call:?}");
    }
}

// middleware: no catch-all that retries.
#[tokio::test]
async fn an_unknown_error_of_a_middleware_is_unknown_and_final_and_kept() {
    let fails: [fn() -> anyhow::Error; 2] = [
        || NoToken.into(),
        || Err::<(), _>(NoToken).context("signing").unwrap_err(),
    ];
    for fail in fails {
        let stack = with(http(), Failing::before(fail));
        let error = send(&stack, Call::Keyed, URL.into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(error.attempts().len(), 1);
        let sources = sources(&error);
        assert_eq!(sources.last().unwrap().downcast_ref(), Some(&NoToken), "{sources:?}");
        assert_eq!(sources[0].to_string(), fail().to_string());
    }
}

// middleware
#[tokio::test]
async fn a_lost_connection_is_found_in_the_error_of_a_middleware() {
    let fails: [fn() -> anyhow::Error; 4] = [
        reset,
        || reset().context("while the token was fetched"),
        || io::Error::other(io::Error::from(io::ErrorKind::ConnectionReset)).into(),
        || reqwest_middleware::Error::Middleware(reset()).into(),
    ];
    for fail in fails {
        let stack = with(http(), Failing::before(fail));
        let error = send(&stack, Call::Keyed, URL.into()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts().len()), (ErrorKind::Reset, 3));
        let error = send(&stack, Call::Keyless, URL.into()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts().len()), (ErrorKind::Reset, 1));
        assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
        assert_eq!(error.outcome(), Outcome::Unknown);
    }
}

// middleware
#[tokio::test]
async fn an_error_of_a_middleware_client_is_found_in_whatever_wraps_it_and_shows_no_query() {
    type Wrap = fn(reqwest_middleware::Error) -> AttemptError;
    let wraps: [Wrap; 5] = [
        AttemptError::from,
        |error| io::Error::other(error).into(),
        |error| reqwest_middleware::Error::middleware(error).into(),
        |error| reqwest_middleware::Error::middleware(io::Error::other(error)).into(),
        |error| reqwest_middleware::Error::Middleware(anyhow::Error::new(error).context("signing")).into(),
    ];
    let refusing = Refusing::new();
    let url = format!("http://{}/pay?token=hunter2", refusing.addr());
    let stack = with(http(), mark);
    for wrap in wraps {
        let request = Call::Keyless.to(&client(quick()), url.clone());
        let sent = request.send_with(|request| async { stack.execute(request).await.map_err(wrap) });
        let error = sent.await.unwrap_err();
        assert_eq!((error.kind(), error.attempts().len()), (ErrorKind::Connect, 3));
        assert_eq!(error.outcome(), Outcome::NotDone);
        let texts: Vec<_> = sources(&error)
            .iter()
            .map(|error| format!("{error} {error:?}"))
            .collect();
        assert!(!texts.concat().contains("hunter2"), "{texts:?}");
        assert!(texts.concat().contains("ConnectionRefused"), "{texts:?}");
    }
}

// middleware, R10: a middleware has connections of its own.
#[tokio::test]
async fn a_refusal_that_a_middleware_met_does_not_unmake_what_was_done() {
    for (call, count) in [(Call::Keyed, 3), (Call::Keyless, 1)] {
        let server = Server::repeat(Reply::ok("paid")).await;
        let stack = with(http(), Failing::after(refused));
        let error = send(&stack, call, server.url("/pay")).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::Unknown));
        assert_eq!(server.requests().len(), count, "{call:?}");
    }
}

// field 54: an error that speaks in the words of reqwest's, and hides it.
#[tokio::test]
async fn a_transparent_error_shows_no_query() {
    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(reqwest::Error);

    let refusing = Refusing::new();
    let url = format!("http://{}/pay?token=hunter2", refusing.addr());
    let http = http().build().unwrap();
    let sending = |request| async {
        let sent = http.execute(request).await.map_err(Transparent);
        sent.map_err(Box::<dyn StdError + Send + Sync>::from)
    };
    let request = Call::Keyed.to(&client(quick()), url);
    let error = request.send_with(sending).await.unwrap_err();
    let texts = sources(&error)
        .iter()
        .map(|error| format!("{error} {error:?}"))
        .collect::<String>();
    assert!(!format!("{error} {error:?} {texts}").contains("hunter2"), "{texts}");
    assert!(texts.contains("ConnectionRefused"), "{texts}");
}

#[cfg(feature = "tower")]
mod with_tower {
    use super::*;

    // middleware, tower
    #[tokio::test]
    async fn a_middleware_client_is_the_service_inside_a_tower_stack() {
        let refusing = Refusing::new();
        let server = Server::start([Reply::ok("done")]).await;
        let lookups = Lookups::of([Some(refusing.addr()), Some(server.addr())]);
        let stack = ::tower::ServiceBuilder::new()
            .timeout(std::time::Duration::from_secs(5))
            .service(with(http().dns_resolver(lookups), mark));
        let request = Call::Keyless.to(&client(quick()), Lookups::URL.into());
        let response = request.send_with(steadfast::tower::sender(stack)).await.unwrap();
        assert_healed(&response, ErrorKind::Connect, Delivery::NotSent);
        assert_eq!(server.requests()[0].headers_named("x-middleware"), ["here"]);
    }
}
