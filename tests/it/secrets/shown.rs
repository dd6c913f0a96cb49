//! What is shown while something is played, and the search for the mark in it.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::mem::take;
use std::sync::{Arc, Mutex};

use steadfast::{AttemptFacts, Classifier, RequestFacts, Verdict};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// The beginning of every secret; what follows says where it was. Nothing else in here has it.
pub(crate) const MARK: &str = "hunter2";

/// The mark as it is, as the beginning of a Base64 text, and as the Debug of bytes.
const SPELLINGS: [&str; 3] = [MARK, "aHVudGVyM", "104, 117, 110, 116, 101, 114, 50"];

/// All that is shown while a case is played, with the name of what showed it.
#[derive(Clone, Default)]
pub(crate) struct Shown(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Shown {
    pub(crate) fn text(&self, of: &'static str, text: String) {
        self.0.lock().unwrap().push((of, text));
    }

    pub(crate) fn debug(&self, of: &'static str, value: &dyn Debug) {
        self.text(of, format!("{value:?} {value:#?}"));
    }

    pub(crate) fn error(&self, of: &'static str, error: &(dyn StdError + 'static)) {
        let mut next = Some(error);
        while let Some(cause) = next {
            self.text(of, format!("{cause} {cause:?} {cause:#?}"));
            next = cause.source();
        }
    }

    pub(crate) fn take(&self) -> Vec<(&'static str, String)> {
        take(&mut *self.0.lock().unwrap())
    }
}

/// What this crate tells: others may tell what they like.
impl<S: Subscriber> Layer<S> for Shown {
    fn enabled(&self, told: &Metadata<'_>, _: Context<'_, S>) -> bool {
        told.target().starts_with("steadfast")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.text(attributes.metadata().name(), format!("{attributes:?}"));
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.text("record", format!("{values:?}"));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.text("event", format!("{event:?}"));
    }
}

/// A classifier sees what failed, as `Client::classifier` shows it.
impl Classifier for Shown {
    fn classify(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        self.debug("RequestFacts", request);
        self.debug("AttemptFacts", attempt);
        if let Some(error) = attempt.error() {
            self.error("error of AttemptFacts", error);
        }
        Verdict::Default
    }

    fn needs_body(&self) -> bool {
        true
    }
}

/// With the numbers that are recorded meanwhile.
pub(crate) fn listened<T>(shown: &Shown, play: impl FnOnce() -> T) -> T {
    let _listening = tracing::subscriber::set_default(Registry::default().with(shown.clone()));
    // A callsite that another thread, without a subscriber, meets first may count as of interest to nobody.
    tracing::callsite::rebuild_interest_cache();
    #[cfg(feature = "metrics")]
    {
        let listener = crate::metrics::Listener::default();
        let played = ::metrics::with_local_recorder(&listener, play);
        for told in listener.told() {
            shown.text("metrics", format!("{told:?}"));
        }
        played
    }
    #[cfg(not(feature = "metrics"))]
    play()
}

/// What showed a mark, and what stood around it.
pub(crate) fn leaks(case: &str, shown: Vec<(&'static str, String)>) -> Vec<String> {
    let marked = |(of, text): (&'static str, String)| {
        let (before, mark, behind) = SPELLINGS.iter().find_map(|mark| {
            let (before, behind) = text.split_once(mark)?;
            Some((before, mark, behind))
        })?;
        let before: String = before.chars().skip(before.chars().count().saturating_sub(60)).collect();
        let behind: String = behind.chars().take(60).collect();
        Some(format!("{case}: {of} shows …{before}{mark}{behind}…"))
    };
    shown.into_iter().filter_map(marked).collect()
}

#[test]
fn the_search_finds_the_mark_in_each_of_its_spellings() {
    let secret = "hunter2-body";
    for text in [
        secret.to_owned(),
        format!("{:?}", secret.as_bytes()),
        "Basic aHVudGVyMi11c2VyOg==".to_owned(),
    ] {
        assert_eq!(leaks("here", vec![("text", text)]).len(), 1);
    }
    assert_eq!(leaks("here", vec![("text", "hunted 2".to_owned())]).len(), 0);
}
