//! Redirects: followed as reqwest does, and never taken for the answer to a write that they turned into something else.

use reqwest::Method;
use steadfast::{Client, Delivery, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::server::{Reply, Server};
use crate::wire::{Call, Refusing, assert_healed, assert_same_bytes, client, http, quick};

const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// A client that finds its redirects out from the URL of the answer.
fn plain() -> Client {
    client(quick())
}

/// A client that is told of its redirects.
fn told() -> Client {
    let policy = quick().build().unwrap();
    Client::from_builder(http()).unwrap().policy(policy).build()
}

fn to(location: &str, status: u16) -> Reply {
    Reply::status(status).header("Location", location)
}

/// Redirects the first request, and answers the next so.
async fn redirecting(status: u16, answer: Reply) -> Server {
    Server::start([to("/there", status), answer]).await
}

/// Redirects the first request to where nobody is.
async fn misleading(status: u16) -> (Server, Refusing) {
    let nobody = Refusing::new();
    let location = format!("http://{}/", nobody.addr());
    (redirecting_to(&location, status).await, nobody)
}

async fn redirecting_to(location: &str, status: u16) -> Server {
    Server::start([to(location, status), Reply::ok("done")]).await
}

fn methods(server: &Server) -> Vec<String> {
    server.requests().iter().map(|r| r.method().to_owned()).collect()
}

/// What of the requests a redirect can change.
fn seen(server: &Server) -> Vec<(String, String, Vec<u8>)> {
    let requests = server.requests();
    let seen = requests
        .iter()
        .map(|r| (r.method().into(), r.path().into(), r.body().into()));
    seen.collect()
}

#[tokio::test]
async fn redirects_are_followed_as_reqwest_follows_them() {
    for status in REDIRECTS {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let bare = redirecting(status, Reply::ok("done")).await;
            let request = http().build().unwrap().request(method.clone(), bare.url("/here"));
            let response = request.body("amount=1").send().await.unwrap();
            assert_eq!(response.url().path(), "/there");
            for client in [plain(), told()] {
                let server = redirecting(status, Reply::ok("done")).await;
                let request = client.request(method.clone(), server.url("/here"));
                let response = request.body("amount=1").send().await.unwrap();
                assert_eq!(response.url().as_str(), server.url("/there"));
                assert_eq!(response.text().await.unwrap(), "done");
                assert_eq!(seen(&server), seen(&bare), "{method} {status}");
            }
        }
    }
}

#[tokio::test]
async fn the_key_goes_where_a_redirect_leads() {
    for client in [plain(), told()] {
        let server = redirecting(308, Reply::ok("done")).await;
        let request = Call::Keyed.to(&client, server.url("/here"));
        let response = request.send().await.unwrap();
        let key = response.attempts().unwrap().idempotency_key().unwrap();
        for request in server.requests() {
            assert_eq!(request.headers_named("idempotency-key"), [key.as_str()]);
        }
        assert_eq!(methods(&server), ["POST", "POST"]);
    }
}

#[tokio::test]
async fn the_answer_after_any_redirect_leaves_a_write_of_a_plain_client_unknown() {
    for status in REDIRECTS {
        let server = redirecting(status, Reply::ok("done")).await;
        let request = Call::Keyed.to(&plain(), server.url("/here"));
        let response = request.send().await.unwrap();
        assert_eq!(response.outcome(), Some(Outcome::Unknown), "{status}");
        assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::Done);
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_redirect_leaves_a_read_completed() {
    for status in REDIRECTS {
        for client in [plain(), told()] {
            let server = redirecting(status, Reply::ok("done")).await;
            let response = client.get(server.url("/here")).send().await.unwrap();
            assert_eq!(response.outcome(), Some(Outcome::Completed), "{status}");
        }
    }
}

#[tokio::test]
async fn a_client_that_is_told_knows_what_each_redirect_made_of_a_write() {
    for (status, outcome) in [
        (301, Outcome::Unknown),
        (302, Outcome::Unknown),
        (303, Outcome::Completed),
        (307, Outcome::Completed),
        (308, Outcome::Completed),
    ] {
        let server = redirecting(status, Reply::ok("done")).await;
        let request = Call::Keyed.to(&told(), server.url("/here"));
        let response = request.send().await.unwrap();
        assert_eq!(response.outcome(), Some(outcome), "{status}");
        assert_eq!(response.attempts().unwrap().len(), 1);
        let second = if status < 307 { "GET" } else { "POST" };
        assert_eq!(methods(&server), ["POST", second]);
    }
}

#[tokio::test]
async fn a_write_sent_on_by_307_or_308_is_what_its_answer_says() {
    for status in [307, 308] {
        for (answer, outcome) in [
            (201, Outcome::Completed),
            (404, Outcome::NotDone),
            (501, Outcome::Unknown),
        ] {
            let server = redirecting(status, Reply::status(answer)).await;
            let request = Call::Keyed.to(&told(), server.url("/here"));
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), answer);
            assert_eq!(response.outcome(), Some(outcome), "{status} {answer}");
        }
    }
}

// A refusal where a redirect led is none of the request that was redirected.
#[tokio::test]
async fn a_refusal_behind_a_302_is_not_one_of_the_write() {
    for client in [plain(), told()] {
        let server = redirecting(302, Reply::status(404)).await;
        let request = Call::Keyless.to(&client, server.url("/here"));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 404);
        assert_eq!(response.outcome(), Some(Outcome::Unknown));
        assert_eq!(methods(&server), ["POST", "GET"]);
    }
}

// The body of a write that nothing protects is watched, and reqwest cannot send it on.
#[tokio::test]
async fn a_307_or_308_of_a_keyless_post_is_given_back_unfollowed() {
    for status in [307, 308] {
        for client in [plain(), told()] {
            let server = redirecting(status, Reply::ok("done")).await;
            let request = Call::Keyless.to(&client, server.url("/here"));
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()["location"], "/there");
            assert_eq!(response.outcome(), Some(Outcome::NotDone));
            assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::Done);
            assert_eq!(server.requests().len(), 1);
        }
    }
}

// field 22: what the service did before it said 303 is done.
#[tokio::test]
async fn a_refused_connection_behind_a_redirect_never_repeats_a_keyless_post() {
    for (status, confirmed) in [(301, false), (302, false), (303, true)] {
        for (client, is_told) in [(plain(), false), (told(), true)] {
            for body in ["amount=1", ""] {
                let (server, _nobody) = misleading(status).await;
                let request = Call::Keyless.to(&client, server.url("/here")).body(body);
                let error = request.send().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Connect, "{status}");
                assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
                let completed = confirmed && is_told;
                let outcome = if completed {
                    Outcome::Completed
                } else {
                    Outcome::Unknown
                };
                assert_eq!(error.outcome(), outcome, "{status}");
                assert_eq!(methods(&server), ["POST"]);
            }
        }
    }
}

// field 22: of an empty body there is nothing to watch where it is sent on.
#[tokio::test]
async fn a_refused_connection_behind_a_307_never_repeats_an_empty_keyless_post() {
    for status in [307, 308] {
        for client in [plain(), told()] {
            let (server, _nobody) = misleading(status).await;
            let request = Call::Keyless.to(&client, server.url("/here")).body("");
            let error = request.send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Connect, "{status}");
            assert_eq!(error.outcome(), Outcome::Unknown);
            assert_eq!(methods(&server), ["POST"]);
        }
    }
}

// field 23
#[tokio::test]
async fn a_failure_to_connect_after_a_redirect_never_passes_for_unsent_where_redirects_are_told() {
    for status in REDIRECTS {
        let (server, _nobody) = misleading(status).await;
        let request = Call::Keyed.to(&told(), server.url("/here"));
        let response = request.send().await.unwrap();
        assert_healed(&response, ErrorKind::Connect, Delivery::Unknown);
        assert!(!response.attempts().unwrap().exactly_once());
        assert_same_bytes(&server, 2);
    }
}

// field 23: the assumption that the documentation of `from_builder` names.
#[tokio::test]
async fn a_failure_to_connect_of_a_plain_client_counts_as_unsent_where_a_key_protects() {
    for status in REDIRECTS {
        let (server, _nobody) = misleading(status).await;
        let request = Call::Keyed.to(&plain(), server.url("/here"));
        let response = request.send().await.unwrap();
        assert_healed(&response, ErrorKind::Connect, Delivery::NotSent);
        assert_same_bytes(&server, 2);
    }
}

/// Ten redirects are followed, the next one is not.
#[tokio::test]
async fn a_redirect_loop_ends_with_the_tenth_redirect() {
    for status in REDIRECTS {
        for client in [plain(), told()] {
            for call in [Call::Get, Call::Keyed] {
                let server = Server::repeat(to("/here", status)).await;
                let error = call.to(&client, server.url("/here")).send().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Other, "{status} {call:?}");
                assert_eq!(error.stop_reason(), StopReason::NotRetryable);
                assert_eq!(error.attempts().len(), 1);
                assert_eq!(server.requests().len(), 11);
            }
        }
    }
}

#[tokio::test]
async fn a_redirect_loop_leaves_a_write_unknown_unless_a_303_confirmed_it() {
    for (status, outcome) in [
        (302, Outcome::Unknown),
        (303, Outcome::Completed),
        (307, Outcome::Unknown),
    ] {
        let server = Server::repeat(to("/here", status)).await;
        let request = Call::Keyed.to(&told(), server.url("/here"));
        let error = request.send().await.unwrap_err();
        assert_eq!(error.outcome(), outcome, "{status}");
    }
}

// A redirect to what is not HTTP is followed nowhere, and what was redirected may have been acted on.
#[tokio::test]
async fn a_redirect_out_of_http_leaves_a_write_unknown() {
    for client in [plain(), told()] {
        let server = redirecting_to("ftp://127.0.0.1/file", 302).await;
        let request = Call::Keyed.to(&client, server.url("/here"));
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(server.requests().len(), 1);
    }
}
