//! The trace context of each attempt, with the crates of OpenTelemetry.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Injector, TextMapPropagator};
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use steadfast::Client;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use crate::transport::{Seen, Step, Transport, URL, answer, no_backoff};

struct Headers<'a>(&'a mut HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (key.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            self.0.insert(name, value);
        }
    }
}

fn client() -> Client {
    Client::builder(reqwest::Client::new())
        .policy(no_backoff().build().unwrap())
        .before_attempt(|mut request, _| async move {
            let context = Span::current().context();
            TraceContextPropagator::new().inject_context(&context, &mut Headers(request.headers_mut()));
            Ok(request)
        })
        .build()
}

/// What was sent, and the spans that were exported.
async fn traced(steps: Vec<Step>) -> (Vec<Seen>, Vec<SpanData>) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("steadfast"));
    let _listening = tracing::subscriber::set_default(Registry::default().with(layer));
    // A callsite that another thread, without a subscriber, meets first may count as of interest to nobody.
    loop {
        tracing::callsite::rebuild_interest_cache();
        let transport = Transport::new([answer(200)]);
        client().get(URL).send_with(transport.send()).await.unwrap();
        if exporter.get_finished_spans().unwrap().len() >= 2 {
            break;
        }
    }
    exporter.reset();
    let transport = Transport::new(steps);
    client().post(URL).send_with(transport.send()).await.unwrap();
    (transport.seen(), exporter.get_finished_spans().unwrap())
}

// before_attempt: a service sees each attempt as a child of its own, in one trace.
#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_context_of_its_own_span() {
    let (seen, spans) = traced(vec![answer(503), answer(503), answer(201)]).await;
    let (operations, attempts): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.name == "operation");
    let [operation] = operations[..] else {
        panic!("{} operations", operations.len());
    };
    let trace = operation.span_context.trace_id();
    let sent: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("traceparent")[0].to_owned())
        .collect();
    let exported: Vec<_> = attempts
        .iter()
        .map(|span| format!("00-{trace}-{}-01", span.span_context.span_id()))
        .collect();
    assert_eq!(sent, exported);
    assert_eq!(exported.iter().collect::<std::collections::HashSet<_>>().len(), 3);
    for (number, span) in attempts.iter().enumerate() {
        assert_eq!(span.parent_span_id, operation.span_context.span_id());
        assert_eq!(span.span_kind, SpanKind::Client);
        let fields: HashMap<_, _> = span
            .attributes
            .iter()
            .map(|field| (field.key.as_str(), &field.value))
            .collect();
        let resends = fields.get("http.request.resend_count").map(|value| value.to_string());
        assert_eq!(resends, (number > 0).then(|| number.to_string()));
        assert_eq!(fields["http.request.method"].as_str(), "POST");
    }
    // What differs from attempt to attempt is the context alone.
    assert!(seen.iter().all(|other| other.key() == seen[0].key()));
}
