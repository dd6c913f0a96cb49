//! What is added to a transport that answers at once: no socket, no system call.

use std::future::ready;
use std::hint::black_box;
use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request, Response, ResponseBuilderExt, Url};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use stats_alloc::Region;
use tokio::runtime::Runtime;

use crate::ALLOCATOR;
use crate::rounds::{interleaved, ratios, timed};
use crate::stacks::{self, Settings};

pub struct Row {
    pub name: &'static str,
    /// Nanoseconds and allocations that are added to those of the transport.
    pub nanos: f64,
    pub allocations: f64,
}

fn request() -> Request {
    let mut request = Request::new(
        Method::GET,
        Url::parse("https://api.example.com/orders").expect("a URL"),
    );
    request
        .headers_mut()
        .insert("accept", http::HeaderValue::from_static("application/json"));
    request
}

fn answer(url: &Url) -> Response {
    http::Response::builder()
        .url(url.clone())
        .body("ok")
        .expect("a response")
        .into()
}

/// The end of a middleware stack.
struct Leaf;

#[async_trait::async_trait]
impl Middleware for Leaf {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        Ok(answer(request.url()))
    }
}

type Play = Box<dyn Fn(&Runtime, u32)>;

fn plays() -> Vec<(&'static str, Play)> {
    let leaf = |request: Request| ready(Ok::<_, reqwest::Error>(answer(request.url())));
    let settings = Settings {
        timeout: Duration::from_secs(10),
        budgets: false,
    };
    let tower = stacks::tower_over(tower::service_fn(leaf), settings);
    let backon = stacks::backon_over(leaf, settings);
    let resilience = stacks::resilience_over(leaf, settings);
    let middleware = ClientBuilder::new(reqwest::Client::new())
        .with(stacks::retry_middleware())
        .with(Leaf)
        .build();
    let steadfast = stacks::wrapped(settings);
    let inner = steadfast.clone();
    vec![
        ("the transport alone", play(leaf)),
        (
            "`Request::try_clone`",
            play(move |request| {
                black_box(request.try_clone());
                leaf(request)
            }),
        ),
        ("tower: retry, timeout, budget", play(tower)),
        ("backon and timeout", play(backon)),
        (
            "reqwest-middleware, reqwest-retry",
            play(move |request| {
                let middleware = middleware.clone();
                async move { middleware.execute(request).await }
            }),
        ),
        ("tower-resilience, all of it", play(resilience)),
        (
            "Steadfast, streamed",
            play(move |request| {
                let request = steadfast::RequestBuilder::from_parts(inner.clone(), request);
                request.streamed().send_with(leaf)
            }),
        ),
        ("Steadfast", play(move |request| steadfast.execute_with(request, leaf))),
    ]
}

fn play<F: Future>(call: impl Fn(Request) -> F + 'static) -> Play {
    Box::new(move |runtime: &Runtime, calls: u32| {
        runtime.block_on(async {
            for _ in 0..calls {
                black_box(call(request()).await);
            }
        });
    })
}

pub fn measure(runtime: &Runtime) -> Vec<Row> {
    const CALLS: u32 = 2_000;
    let plays = plays();
    let times = interleaved(60, plays.len(), |number| {
        timed(CALLS, || plays[number].1(runtime, CALLS))
    });
    let spent: Vec<_> = plays
        .iter()
        .map(|(_, play)| {
            let region = Region::new(ALLOCATOR);
            play(runtime, CALLS);
            region.change().allocations as f64 / f64::from(CALLS)
        })
        .collect();
    let base = ratios(&times, 0).2;
    let row = |(number, (name, _)): (usize, &(&'static str, Play))| Row {
        name,
        nanos: (ratios(&times, number).2 - base) * 1e3,
        allocations: spent[number] - spent[0],
    };
    plays.iter().enumerate().map(row).collect()
}
