//! Programs and people who ask the aggregator, each over a connection of its own.

use crate::world::World;
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::Value;
use statusbridge_tests::bench::say;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::{Aggregator, FLUX_NAMESPACE};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Time between two of them.
const PAUSE: Duration = Duration::from_secs(10);
/// How long one follows what changes, until the next does.
const FOLLOWED: Duration = Duration::from_secs(20);
/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked.
const QUESTIONS: [&str; 8] = [
    "/ui/",
    "/v1alpha1/fleet",
    "/v1alpha1/gates/default/{gate}",
    "/v1alpha1/packages/default/{package}",
    "/v1alpha1/rollouts?namespace=default",
    "/v1alpha1/clusters/{cluster}",
    "/v1alpha1/verdict?source={source}&namespace={namespace}&package={package}&revision={revision}&clusters={cluster}",
    "/metrics",
];

/// What became of the questions.
#[derive(Debug, Clone, Copy, Default)]
#[allow(dead_code)] // it is read as it is printed
pub(crate) struct Answers {
    read: u64,
    /// Without an answer that counts, as while nobody leads.
    none: u64,
    /// Streams of changes that were followed.
    followed: u64,
}

/// Asks until then.
pub(crate) async fn read(world: &World, random: Rng, until: Instant) -> Answers {
    let (answers, followed) =
        tokio::join!(ask_on(world, random, until), follow_on(&world.hub.aggregator, until));
    Answers { followed, ..answers }
}

async fn ask_on(world: &World, mut random: Rng, until: Instant) -> Answers {
    let mut answers = Answers::default();
    while Instant::now() < until {
        sleep(PAUSE).await;
        let question = QUESTIONS[random.usize(..QUESTIONS.len())];
        match answer(world, &mut random, question).await {
            Ok(_) => answers.read += 1,
            Err(error) => {
                answers.none += 1;
                say(&format!("{question} is not answered: {error:#}"));
            }
        }
    }
    answers
}

/// There is always somebody who looks at the page: what the aggregator keeps for them is there from the start.
async fn follow_on(aggregator: &Aggregator, until: Instant) -> u64 {
    let mut followed = 0;
    while Instant::now() < until {
        let next = Instant::now() + FOLLOWED;
        match follow(aggregator, next).await {
            Ok(()) => followed += 1,
            Err(error) => say(&format!("changes are not told: {error:#}")),
        }
        sleep_until(next).await;
    }
    followed
}

/// The answer to a question about something that is there.
async fn answer(world: &World, random: &mut Rng, question: &str) -> Result<String> {
    let cluster = &world.clusters[random.usize(..world.clusters.len())];
    let mut asked = question.replace("{cluster}", cluster);
    asked = asked.replace("{source}", SOURCE).replace("{namespace}", FLUX_NAMESPACE);
    for (word, list) in [("{gate}", "gates"), ("{package}", "packages")] {
        if question.contains(word) {
            let path = format!("/v1alpha1/{list}?namespace=default");
            let all: Value = serde_json::from_str(&ask(&world.hub.aggregator, &path).await?)?;
            let items = all["items"].as_array().context("no items")?;
            ensure!(!items.is_empty(), "no {list}");
            let one = &items[random.usize(..items.len())];
            asked = asked.replace(word, one["metadata"]["name"].as_str().context("no name")?);
            asked = asked.replace("{revision}", one["wanted"].as_str().unwrap_or("111111111111"));
        }
    }
    ask(&world.hub.aggregator, &asked).await
}

fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?)
}

/// A verdict may be 409, and what is gone meanwhile 404.
async fn ask(aggregator: &Aggregator, path: &str) -> Result<String> {
    let answer = client()?.get(aggregator.url(path)).send().await?;
    let (status, text) = (answer.status().as_u16(), answer.text().await?);
    ensure!([200, 404, 409].contains(&status), "{path}: {status}: {text}");
    Ok(text)
}

/// Reads the whole fleet and then what changes in it, as the page does.
async fn follow(aggregator: &Aggregator, until: Instant) -> Result<()> {
    let all: Value = serde_json::from_str(&ask(aggregator, "/v1alpha1/fleet").await?)?;
    let cursor = all["cursor"].as_str().context("the fleet has no cursor")?;
    let path = format!("/v1alpha1/fleet/changes?cursor={cursor}");
    let mut answer = client()?.get(aggregator.url(&path)).send().await?;
    // It ends by itself where another one leads.
    let _ = timeout_at(until, async { while let Ok(Some(_)) = answer.chunk().await {} }).await;
    Ok(())
}
