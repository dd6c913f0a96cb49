//! What is noticed of an attempt besides its result.

use reqwest::{Request, Url};

use crate::attempts::Attempts;
use crate::body::touch::Touch;
use crate::classify::attempt_error::Facts;
use crate::held::Held;
use crate::operation::Operation;
use crate::pipeline::Sender;
use crate::redacted::target;
use crate::redirect::{Redirect, Trail};

/// What is noticed of an attempt besides its result.
pub(crate) struct Watch<'a> {
    operation: &'a Operation,
    sender: Sender,
    /// Where it was sent, if that is not where the operation says.
    sent_to: Option<Box<Url>>,
    /// Only where nothing makes a repeat harmless.
    touch: Option<Touch>,
    /// Only of an unsafe request, through a client that tells.
    trail: Option<Trail>,
}

impl<'a> Watch<'a> {
    pub(crate) fn over(request: &mut Request, operation: &'a Operation, sender: Sender) -> Self {
        let method = operation.method();
        let told = sender == Sender::Inner && operation.client().is_built_here() && !operation.is_safe();
        Self {
            operation,
            sender,
            sent_to: (request.url() != operation.url()).then(|| Box::new(request.url().clone())),
            touch: operation.is_unprotected().then(|| Touch::watch(request)),
            trail: told.then(|| Trail::of(method)),
        }
    }

    pub(crate) fn redirect(&self, answered: Option<&Url>) -> Redirect {
        let Self { operation, trail, .. } = self;
        match (trail, answered) {
            (Some(trail), _) => match trail.redirect() {
                Redirect::None if trail.was_followed() && operation.may_lose_key() => Redirect::Unkeyed,
                redirect => redirect,
            },
            (None, Some(answered)) if !operation.is_safe() => Redirect::seen(self.url(), answered),
            (None, _) => Redirect::None,
        }
    }

    fn url(&self) -> &Url {
        self.sent_to.as_deref().unwrap_or(self.operation.url())
    }

    pub(crate) fn trail(&self) -> Option<Trail> {
        self.trail.clone()
    }

    /// A sender may make other requests beside this one, and fail over them: they say nothing of it.
    fn disown(&self, facts: &mut Facts) {
        if facts.about.is_some() && facts.are_of_another(&target(self.operation.method(), self.url())) {
            facts.forget_the_other();
        } else if self.redirect(facts.answered.as_deref()) == Redirect::Astray {
            facts.nested = None;
        }
    }

    pub(crate) fn qualify(&self, mut held: Held) -> Held {
        if let Held::Failure { error, .. } = &mut held {
            if self.sender == Sender::Caller && !error.facts.stated {
                self.disown(&mut error.facts);
            }
            let Facts {
                failure,
                answered,
                nested,
                hearsay,
                stated,
                ..
            } = &mut error.facts;
            // Who was told what became of the request need not look for signs of it.
            let told = *stated || nested.as_deref().is_some_and(Attempts::watched);
            let touched = self.touch.as_ref().filter(|_| !told).map(Touch::touched);
            match touched {
                Some(touched) => *failure = failure.watched(touched, self.sender == Sender::Inner),
                None if *hearsay => *failure = failure.after_another(),
                None => {}
            }
            let followed = self.trail.as_ref().map(Trail::was_followed);
            match (followed, touched) {
                (Some(true), _) => *failure = failure.after_another(),
                (Some(false), Some(touched)) => *failure = failure.unredirected(touched),
                _ if self.redirect(answered.as_deref()) != Redirect::None => *failure = failure.after_another(),
                _ => {}
            }
        }
        held
    }
}
