//! Who is answered, as components of a cluster decide it: the API server says whose a bearer token is, and whether they
//! may get what they ask for.
//!
//! Anybody may show any number of tokens. So one peer has few questions under way about tokens that were not allowed
//! lately, and is told to try again beyond that; tokens that were allowed lately have turns of their own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use kube::api::PostParams;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{debug, warn};

use crate::answer::refusal::Refusal;
use crate::listen::peer::Peer;
use crate::listen::places::{Place, Places};
use crate::metrics::ServerMetrics;

/// How long an answer of the API server holds: what is granted or taken away takes effect within this.
const HOLDS: Duration = Duration::from_secs(10);
/// How many answers are kept.
const KEPT: usize = 1024;
/// How long the API server may take for both questions together; less than the 10 s that a scrape
/// commonly has, so that the scraper hears why it gets nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many requests may be asked about at once with tokens that were not allowed lately, so that nobody floods the API
/// server through this, and as many again with others.
const AT_ONCE: usize = 4;
/// How many of the former one peer may have, whether they are asked about or wait for a turn.
const OF_PEER: usize = 4;
/// How long a token that was allowed does not wait behind others: longer than between two scrapes.
const LATELY: Duration = Duration::from_secs(60 * 60);
/// A longer token is none: those of service accounts have about a thousand bytes.
const LONGEST_TOKEN: usize = 16 * 1024;
/// How often the log says that the API server cannot be asked.
const TELL: Duration = Duration::from_secs(60);

/// What somebody wants to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A path of this server: to the API server a non-resource URL.
    Path(&'a str),
    /// An object of the API server.
    Object {
        /// Its API group.
        group: &'a str,
        /// Plural of its kind.
        resource: &'a str,
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// All objects of a kind.
    List {
        /// Its API group.
        group: &'a str,
        /// Plural of the kind.
        resource: &'a str,
        /// Their namespace; all namespaces where there is none.
        namespace: Option<&'a str>,
    },
}

impl Wanted<'_> {
    /// The question whether this user may.
    fn by(self, UserInfo { extra, groups, uid, username }: UserInfo) -> SubjectAccessReviewSpec {
        let spec = SubjectAccessReviewSpec { extra, groups, uid, user: username, ..Default::default() };
        let (text, verb) = (|text: &str| Some(text.to_owned()), Some(self.verb().to_owned()));
        match self {
            Self::Path(path) => {
                let url = NonResourceAttributes { path: text(path), verb };
                SubjectAccessReviewSpec { non_resource_attributes: Some(url), ..spec }
            }
            Self::Object { group, resource, namespace, name } => {
                let object = ResourceAttributes {
                    group: text(group),
                    resource: text(resource),
                    namespace: text(namespace),
                    name: text(name),
                    verb,
                    ..ResourceAttributes::default()
                };
                SubjectAccessReviewSpec { resource_attributes: Some(object), ..spec }
            }
            Self::List { group, resource, namespace } => {
                let objects = ResourceAttributes {
                    group: text(group),
                    resource: text(resource),
                    namespace: namespace.map(str::to_owned),
                    verb,
                    ..ResourceAttributes::default()
                };
                SubjectAccessReviewSpec { resource_attributes: Some(objects), ..spec }
            }
        }
    }

    fn verb(self) -> &'static str {
        if matches!(self, Self::List { .. }) { "list" } else { "get" }
    }
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "the non-resource URL {path}"),
            Self::Object { group, resource, namespace, name } => {
                write!(f, "{resource}.{group} {namespace}/{name}")
            }
            Self::List { group, resource, namespace: Some(namespace) } => {
                write!(f, "{resource}.{group} in namespace {namespace}")
            }
            Self::List { group, resource, namespace: None } => {
                write!(f, "{resource}.{group} in all namespaces")
            }
        }
    }
}

/// Lets in whom the API server lets in, and nobody when it cannot be asked.
pub struct Guard {
    client: Client,
    metrics: ServerMetrics,
    answers: Mutex<Answers>,
    /// For tokens that were allowed lately.
    familiar: Semaphore,
    unfamiliar: Unfamiliar,
    told: Mutex<Option<Instant>>,
}

impl Guard {
    /// A guard that asks through `client`.
    pub fn new(client: Client, metrics: ServerMetrics) -> Self {
        let (answers, unfamiliar, told) = Default::default();
        metrics.begin();
        Self { client, metrics, answers, familiar: Semaphore::new(AT_ONCE), unfamiliar, told }
    }

    /// Whether this request may get this.
    ///
    /// # Errors
    /// When it may not, or that cannot be found out.
    pub async fn admit<B>(&self, request: &Request<B>, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let peer = Peer::of(request);
        let answer = match bearer_token(request.headers()) {
            Some(token) => self.review(token, peer, wanted).await,
            None => Err(Refusal::Unauthenticated),
        };
        answer.inspect_err(|refusal| self.metrics.refused(refusal))
    }

    async fn review(&self, token: &str, peer: Peer, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let key = Key::of(token, wanted);
        let lock = || self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // From before the question, so that an answer is never held for longer than it may.
        let asked = Instant::now();
        let is_familiar = {
            let answers = lock();
            if let Some(answer) = answers.get(&key, asked) {
                return answer;
            }
            answers.is_familiar(&key, asked)
        };
        let ask = async {
            if is_familiar {
                let _turn = self.familiar.acquire().await;
                self.ask(token, wanted).await
            } else {
                let _turn = self.unfamiliar.turn(peer).await?;
                self.ask(token, wanted).await
            }
        };
        let answer = tokio::time::timeout(PATIENCE, ask)
            .await
            .unwrap_or_else(|_| Err(Refusal::Unavailable(format!("no answer within {PATIENCE:?}"))));
        if !matches!(answer, Err(Refusal::Unavailable(_))) {
            lock().put(key, answer.clone(), asked);
        }
        answer
    }

    async fn ask(&self, token: &str, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let user = authenticated(self.create(&review).await?.status).ok_or(Refusal::Unauthenticated)?;
        let name = user.username.clone().unwrap_or_default();
        let spec = wanted.by(user);
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = self.create(&review).await?.status;
        if allowed(status.as_ref()) {
            Ok(())
        } else {
            Err(Refusal::Forbidden(format!("{name} may not {} {wanted}", wanted.verb())))
        }
    }

    /// Not through `Api`, which logs an answer that it cannot read: a TokenReview's repeats the token.
    async fn create<T>(&self, review: &T) -> Result<T, Refusal>
    where
        T: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let answer = async {
            let body = serde_json::to_vec(review).map_err(kube::Error::SerdeError)?;
            let request = kube::core::Request::new(T::url_path(&(), None))
                .create(&PostParams::default(), body)
                .map_err(kube::Error::BuildRequest)?;
            let text = self.client.request_text(request).await?;
            serde_json::from_str(&text).map_err(kube::Error::SerdeError)
        };
        answer.await.map_err(|error| self.failed(&T::kind(&()), &error))
    }

    /// Whoever asked has shown nothing yet, so they are told no more than where it failed; the log has
    /// the whole reason.
    fn failed(&self, what: &str, error: &kube::Error) -> Refusal {
        let why = match error {
            kube::Error::Api(status) => format!("it answered {} to a {what}", status.code),
            kube::Error::SerdeError(_) => format!("its answer to a {what} cannot be read"),
            _ => format!("a {what} got no answer"),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() > TELL) {
            *told = Some(Instant::now());
            warn!(%error, "{why}: nobody is let in");
        } else {
            debug!(%error, "{why}");
        }
        Refusal::Unavailable(why)
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    let usable = !token.is_empty() && token.len() <= LONGEST_TOKEN && !token.contains(' ');
    (scheme.eq_ignore_ascii_case("bearer") && usable).then_some(token)
}

/// Whose the token is, if the API server says without reservation that it is somebody's.
fn authenticated(status: Option<TokenReviewStatus>) -> Option<UserInfo> {
    let status = status?;
    let certain = status.authenticated == Some(true) && status.error.is_none_or(|e| e.is_empty());
    status.user.filter(|user| certain && user.username.as_ref().is_some_and(|name| !name.is_empty()))
}

fn allowed(status: Option<&SubjectAccessReviewStatus>) -> bool {
    status.is_some_and(|s| s.allowed && s.denied != Some(true))
}

/// Stands for a token, which itself is not kept, and for what it was shown for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key([u8; 32]);

impl Key {
    fn of(token: &str, wanted: Wanted<'_>) -> Self {
        // A token has no blank, and nothing else that is wanted reads the same.
        Self(Sha256::digest(format!("{token} {wanted:?}")).into())
    }
}

/// Turns for tokens that were not allowed lately.
struct Unfamiliar {
    turns: Semaphore,
    /// For requests that have a turn or wait for one.
    places: Places,
}

impl Default for Unfamiliar {
    fn default() -> Self {
        Self { turns: Semaphore::new(AT_ONCE), places: Places::new(OF_PEER) }
    }
}

impl Unfamiliar {
    /// Waits for a turn, unless the peer waits for too many already.
    async fn turn(&self, peer: Peer) -> Result<Turn<'_>, Refusal> {
        let place = self.places.take_for(peer).ok_or_else(|| {
            Refusal::Unavailable(format!("{OF_PEER} other unknown tokens of this client are being looked at"))
        })?;
        Ok(Turn { _permit: self.turns.acquire().await.ok(), _place: place })
    }
}

struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    _place: Place,
}

/// What the API server answered lately.
#[derive(Default)]
struct Answers {
    allowed: AnswerCache<()>,
    /// Kept apart, so that tokens that are not allowed push none out that is.
    refused: AnswerCache<Refusal>,
}

impl Answers {
    fn get(&self, key: &Key, now: Instant) -> Option<Result<(), Refusal>> {
        let allowed = self.allowed.get(key, now, HOLDS).map(|()| Ok(()));
        allowed.or_else(|| self.refused.get(key, now, HOLDS).cloned().map(Err))
    }

    fn is_familiar(&self, key: &Key, now: Instant) -> bool {
        self.allowed.get(key, now, LATELY).is_some()
    }

    fn put(&mut self, key: Key, answer: Result<(), Refusal>, now: Instant) {
        match answer {
            Ok(()) => {
                self.refused.0.remove(&key);
                self.allowed.put(key, (), now, LATELY);
            }
            Err(refusal) => {
                self.allowed.0.remove(&key);
                self.refused.put(key, refusal, now, HOLDS);
            }
        }
    }
}

/// Up to [`KEPT`] answers, and when they were asked for.
struct AnswerCache<T>(HashMap<Key, (T, Instant)>);

impl<T> Default for AnswerCache<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> AnswerCache<T> {
    fn get(&self, key: &Key, now: Instant, age: Duration) -> Option<&T> {
        self.0.get(key).filter(|(_, at)| now.saturating_duration_since(*at) < age).map(|(answer, _)| answer)
    }

    fn put(&mut self, key: Key, answer: T, now: Instant, age: Duration) {
        if self.0.len() >= KEPT {
            self.0.retain(|_, (_, at)| now.saturating_duration_since(*at) < age);
        }
        if self.0.len() >= KEPT
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        self.0.insert(key, (answer, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: Wanted<'_> = Wanted::Path("/metrics");

    fn gate<'a>(namespace: &'a str, name: &'a str) -> Wanted<'a> {
        Wanted::Object { group: "example.org", resource: "gates", namespace, name }
    }

    #[test]
    fn a_token_comes_in_one_form_only() {
        let token = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer_token(&headers).map(str::to_owned)
        };
        for good in ["Bearer abc", "bearer abc", "BEARER   abc "] {
            assert_eq!(token(good).as_deref(), Some("abc"), "{good}");
        }
        for bad in ["", "abc", "Bearer", "Bearer ", "Bearer a b", "Basic abc", "Bearerabc", "\u{e4} abc"] {
            assert_eq!(token(bad), None, "{bad}");
        }
        assert_eq!(token(&format!("Bearer {}", "a".repeat(LONGEST_TOKEN + 1))), None);
        assert!(token(&format!("Bearer {}", "a".repeat(LONGEST_TOKEN))).is_some());
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }

    fn named(name: Option<&str>) -> Option<UserInfo> {
        Some(UserInfo { username: name.map(str::to_owned), ..UserInfo::default() })
    }

    #[test]
    fn nobody_is_somebody_without_the_api_servers_clear_word() {
        let said = |authenticated, user, error: Option<&str>| {
            let error = error.map(str::to_owned);
            authenticated_name(Some(TokenReviewStatus { authenticated, user, error, audiences: None }))
        };
        fn authenticated_name(status: Option<TokenReviewStatus>) -> Option<String> {
            authenticated(status).and_then(|user| user.username)
        }
        assert_eq!(said(Some(true), named(Some("me")), None).as_deref(), Some("me"));
        assert_eq!(said(Some(true), named(Some("me")), Some("")).as_deref(), Some("me"));
        assert_eq!(said(Some(true), named(Some("me")), Some("not sure")), None);
        assert_eq!(said(Some(true), named(Some("")), None), None);
        assert_eq!(said(Some(true), named(None), None), None);
        assert_eq!(said(Some(true), None, None), None);
        assert_eq!(said(Some(false), named(Some("me")), None), None);
        assert_eq!(said(None, named(Some("me")), None), None);
        assert_eq!(authenticated_name(None), None);
    }

    #[test]
    fn what_is_denied_is_not_allowed() {
        let said = |allowed_, denied| {
            let status = SubjectAccessReviewStatus { allowed: allowed_, denied, ..Default::default() };
            allowed(Some(&status))
        };
        assert!(said(true, None) && said(true, Some(false)));
        assert!(!said(true, Some(true)) && !said(false, None) && !said(false, Some(false)));
        assert!(!allowed(None));
    }

    #[test]
    fn all_that_is_known_of_a_user_goes_into_the_second_question() {
        let user = UserInfo {
            extra: Some([("key".to_owned(), vec!["value".to_owned()])].into()),
            groups: Some(vec!["group".to_owned()]),
            uid: Some("uid".to_owned()),
            username: Some("name".to_owned()),
        };
        let question = |wanted: Wanted<'_>| serde_json::to_value(wanted.by(user.clone())).unwrap();
        assert_eq!(
            question(METRICS),
            serde_json::json!({"user": "name", "uid": "uid", "groups": ["group"], "extra": {"key": ["value"]},
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
        );
        assert_eq!(
            question(gate("a", "b")),
            serde_json::json!({"user": "name", "uid": "uid", "groups": ["group"], "extra": {"key": ["value"]},
                "resourceAttributes": {"group": "example.org", "resource": "gates", "namespace": "a", "name": "b",
                    "verb": "get"}})
        );
    }

    #[test]
    fn an_answer_holds_for_a_while_and_for_its_token_and_what_was_wanted_alone() {
        let (start, mut answers) = (Instant::now(), Answers::default());
        let (yes, no) = (Key::of("yes", METRICS), Key::of("no", METRICS));
        answers.put(yes.clone(), Ok(()), start);
        answers.put(no.clone(), Err(Refusal::Unauthenticated), start);
        let last = start + HOLDS - Duration::from_millis(1);
        assert_eq!(answers.get(&yes, last), Some(Ok(())));
        assert_eq!(answers.get(&no, last), Some(Err(Refusal::Unauthenticated)));
        for other in [gate("a", "b"), gate("a, b", ""), Wanted::Path("/metrics ")] {
            assert_eq!(answers.get(&Key::of("yes", other), last), None, "{other}");
        }
        assert_ne!(Key::of("yes", gate("a", "b")).0, Key::of("yes", gate("a\", name: \"b", "")).0);
        assert_eq!(answers.get(&yes, start + HOLDS), None);
        assert_eq!(answers.get(&no, start + HOLDS), None);
        answers.put(yes.clone(), Err(Refusal::Forbidden("me".into())), last);
        assert_eq!(answers.get(&yes, last), Some(Err(Refusal::Forbidden("me".into()))));
    }

    #[test]
    fn many_tokens_take_no_more_room_than_is_kept_and_push_none_out_that_is_allowed() {
        let (start, mut answers) = (Instant::now(), Answers::default());
        let at = |n: usize| start + Duration::from_micros(n as u64);
        let refused = |n: usize| Key::of(&n.to_string(), METRICS);
        let good = Key::of("good", METRICS);
        answers.put(good.clone(), Ok(()), start);
        for n in 0..3 * KEPT {
            answers.put(refused(n), Err(Refusal::Unauthenticated), at(n));
            assert!(answers.refused.0.len() <= KEPT);
        }
        // The oldest made room, and those that no longer hold do so at once.
        assert_eq!(answers.get(&refused(0), at(3 * KEPT)), None);
        assert!(answers.get(&refused(3 * KEPT - 1), at(3 * KEPT)).is_some());
        assert_eq!(answers.get(&good, at(3 * KEPT)), Some(Ok(())));
        answers.put(Key::of("later", METRICS), Err(Refusal::Unauthenticated), start + 2 * HOLDS);
        assert_eq!(answers.refused.0.len(), 1);
    }

    #[test]
    fn who_was_allowed_is_known_for_longer_than_the_answer_holds_and_until_it_is_refused() {
        let (start, mut answers, key) = (Instant::now(), Answers::default(), Key::of("a", METRICS));
        assert!(!answers.is_familiar(&key, start));
        answers.put(key.clone(), Ok(()), start);
        let later = start + LATELY - Duration::from_millis(1);
        assert_eq!((answers.get(&key, later), answers.is_familiar(&key, later)), (None, true));
        assert!(!answers.is_familiar(&key, start + LATELY));
        answers.put(key.clone(), Err(Refusal::Unauthenticated), later);
        assert!(!answers.is_familiar(&key, later));
    }

    #[tokio::test]
    async fn a_peer_with_many_unknown_tokens_is_refused_at_once_and_keeps_none_out() {
        let peer = |last: u8| Peer::from(std::net::IpAddr::from([10, 0, 0, last]));
        let unfamiliar = Unfamiliar::default();
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(unfamiliar.turn(peer(1)).await.unwrap_or_else(|refusal| panic!("{refusal}")));
        }
        let refused = unfamiliar.turn(peer(1)).await;
        assert!(matches!(refused, Err(Refusal::Unavailable(_))));
        let other = unfamiliar.turn(peer(2));
        tokio::pin!(other);
        assert!(futures::poll!(&mut other).is_pending());
        turns.pop();
        assert!(other.await.is_ok());
    }
}
