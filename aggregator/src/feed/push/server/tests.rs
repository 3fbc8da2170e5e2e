//! The server as exporters see it, over real connections.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, RequestBuilder};
use sha2::{Digest, Sha256};
use statusbridge_core::fleet::{Fleet, FleetSettings, Standing};
use statusbridge_core::testing::{Exposition, healthy, package, text};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::clock;
use crate::feed::{Feeds, Message, push};

const MAX: usize = 64 << 10;
const PACE: Duration = Duration::from_millis(50);

fn entry(cluster: &str, token: &str) -> String {
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("- {{cluster: {cluster}, sha256: {hash}}}\n")
}

fn exposition(revision: &str) -> String {
    rendered(revision, 0.0)
}

/// An exposition that was rendered so many seconds ago.
fn rendered(revision: &str, ago: f64) -> String {
    let now = clock::now();
    text(&Exposition::new(7).with("p", healthy(revision, now as u64 - 100)), now - ago)
}

/// A process with a reception and, as long as it leads, a fleet.
struct World {
    reception: Arc<PushServer>,
    tokens: NamedTempFile,
    fleet: Arc<Mutex<Fleet>>,
    good_polls: Arc<AtomicUsize>,
    leading: Option<tokio::task::JoinHandle<()>>,
    http: Client,
}

impl World {
    fn standby(tokens: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), tokens).unwrap();
        let world = Self {
            reception: PushServer::with_arrival(Arc::new(Metrics::aggregator()), Duration::from_secs(3)),
            tokens: file,
            fleet: Arc::new(Mutex::new(Fleet::new(FleetSettings::default()))),
            good_polls: Arc::default(),
            leading: None,
            http: Client::builder().no_proxy().build().unwrap(),
        };
        drop(world.feeds());
        world
    }

    async fn leader(tokens: &str) -> Self {
        let mut world = Self::standby(tokens);
        world.lead();
        world.until("somebody is seated", || world.reception.front.seated().is_some()).await;
        world
    }

    fn feeds(&self) -> Feeds {
        let settings = push::Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            insecure: true,
            tokens_file: self.tokens.path().to_owned(),
            max_bytes: MAX,
            ..push::Settings::default()
        };
        Feeds::new(vec![push(settings, PACE, self.reception.clone()).unwrap()])
    }

    fn lead(&mut self) {
        let address = self.reception.address();
        let mut feeds = self.feeds();
        let (fleet, good) = (self.fleet.clone(), self.good_polls.clone());
        assert_eq!(self.reception.address(), address, "a new leadership opens no new door");
        feeds.begin();
        self.leading = Some(tokio::spawn(async move {
            while let Some(message) = feeds.next().await {
                match message {
                    Message::Work(work) => work(&mut fleet.lock().unwrap()),
                    Message::Polled { polled, .. } if polled.report.ok => {
                        good.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => {}
                }
            }
        }));
    }

    fn url(&self) -> String {
        format!("http://{}{PATH}", self.reception.address().unwrap())
    }

    fn push(&self, token: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.http.post(self.url()).bearer_auth(token).body(body)
    }

    fn standing(&self, cluster: &str) -> Standing {
        let fleet = self.fleet.lock().unwrap();
        fleet.observe(cluster, &package("p"), clock::now(), 60.0).standing
    }

    fn clusters(&self) -> Vec<String> {
        let fleet = self.fleet.lock().unwrap();
        fleet.streams().map(|stream| stream.cluster.to_owned()).collect()
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let look = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), look).await.expect(what);
    }
}

async fn answers(request: RequestBuilder) -> (u16, String) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_adds_up_is_taken_packed_or_not() {
    let world = World::leader(&entry("a", "one")).await;
    assert_eq!(answers(world.push("one", rendered("r1", 5.0))).await, (204, String::new()));
    assert_eq!(world.standing("a"), Standing::Stale);
    assert_eq!(answers(world.push("one", exposition("r1"))).await, (204, String::new()));
    assert_eq!(world.standing("a"), Standing::Fresh);
    let gzip = world.push("one", packed(exposition("r2").as_bytes())).header("content-encoding", "gzip");
    assert_eq!(answers(gzip).await.0, 204);
    let body = exposition("r2");
    assert_eq!(answers(world.push("one", body).header(INSTANCE, "exporter-1")).await.0, 204);
    assert_eq!(world.clusters(), ["a", "a"]);
}

#[tokio::test]
async fn nobody_reports_for_another_whatever_is_said() {
    let world = World::leader(&(entry("a", "one") + &entry("a", "another") + &entry("b", "two"))).await;
    // In headers, in the path, in labels: none of it counts.
    let url = world.url() + "?cluster=b";
    let request = world.http.post(url).bearer_auth("one").header("cluster", "b").body(exposition("r1"));
    assert_eq!(answers(request).await.0, 204);
    assert_eq!(world.clusters(), ["a"]);
    let labelled = exposition("r1").replace("{package=", "{cluster=\"b\",package=");
    let (status, said) = answers(world.push("another", labelled)).await;
    assert!(status == 400 && said.contains("a label `cluster`"), "{status} {said}");
    let (status, _) = answers(world.push("one", exposition("r1")).header(INSTANCE, "x\"} cluster=\"b")).await;
    assert_eq!((status, world.clusters()), (204, vec!["a".to_owned(), "a".to_owned()]));

    for token in ["three", "", "one two", "ONE"] {
        let (status, said) = answers(world.push(token, exposition("r1"))).await;
        assert_eq!(status, 401, "{token}: {said}");
    }
    let nobody = world.http.post(world.url()).body(exposition("r1")).send().await.unwrap();
    assert_eq!(
        (nobody.status().as_u16(), &nobody.headers()["www-authenticate"]),
        (401, &"Bearer".parse().unwrap())
    );
    let basic = world.http.post(world.url()).basic_auth("one", Some("one")).body(exposition("r1"));
    assert_eq!(answers(basic).await.0, 401);
    assert_eq!(world.standing("b"), Standing::Missing);
}

#[tokio::test]
async fn tokens_are_exchanged_and_taken_away_while_it_runs() {
    let world = World::leader(&entry("a", "one")).await;
    let becomes = async |token: &str, expected: u16| {
        let change = async {
            while answers(world.push(token, exposition("r1"))).await.0 != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), change).await.expect("the tokens are read again");
    };
    becomes("one", 204).await;
    std::fs::write(world.tokens.path(), entry("a", "one") + &entry("a", "two")).unwrap();
    becomes("two", 204).await;
    becomes("one", 204).await;
    std::fs::write(world.tokens.path(), entry("a", "two")).unwrap();
    becomes("one", 401).await;
    std::fs::write(world.tokens.path(), "nonsense").unwrap();
    becomes("two", 204).await;
}

#[tokio::test]
async fn what_does_not_add_up_is_told_why_and_noted() {
    let world = World::leader(&entry("a", "one")).await;
    let torn: String = rendered("r1", 10.0)
        .lines()
        .filter(|line| !line.contains("package_healthy_revision"))
        .flat_map(|l| [l, "\n"])
        .collect();
    let (status, said) = answers(world.push("one", torn)).await;
    assert!(
        status == 422 && said.contains("add up to") && said.contains("package_healthy_revision"),
        "{said}"
    );
    assert_eq!(world.standing("a"), Standing::Unverified);
    assert_eq!(answers(world.push("one", rendered("r1", 5.0))).await.0, 204);
    assert_eq!(answers(world.push("one", exposition("r1"))).await.0, 204);
    assert_eq!(world.standing("a"), Standing::Fresh);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused() {
    let cut = exposition("r1");
    let gzip = |request: RequestBuilder, body: Vec<u8>| request.header("content-encoding", "gzip").body(body);
    type Make<'a> = &'a dyn Fn(&World, &str) -> RequestBuilder;
    let refused: [(Make<'_>, u16, &str); 9] = [
        (&|world, token| world.push(token, "<html>\n"), 400, "it is no exposition: line 1"),
        (&|world, token| world.push(token, ""), 400, "it has no statusbridge_digest"),
        (&|world, token| world.push(token, cut[..cut.len() - 5].to_owned()), 400, "breaks off"),
        (
            &|world, token| gzip(world.push(token, ""), exposition("r1").into()),
            400,
            "it is not packed as gzip",
        ),
        (
            &|world, token| gzip(world.push(token, ""), packed(cut.as_bytes())[..50].to_vec()),
            400,
            "it is not packed as gzip",
        ),
        (&|world, token| world.push(token, cut.clone()).header("content-encoding", "br"), 415, "only gzip"),
        (
            &|world, token| world.push(token, cut.clone()).header(INSTANCE, "i".repeat(129)),
            400,
            "statusbridge-instance",
        ),
        (&|world, _| world.http.get(world.url()), 405, "only POST"),
        (&|world, _| world.http.post(world.url() + "/else"), 404, PATH),
    ];
    // Each with a token of its own: one that was refused has to wait.
    let token = |n: usize| format!("token {n}");
    let world = World::leader(&(0..refused.len()).map(|n| entry("a", &token(n))).collect::<String>()).await;
    for (n, (request, expected, words)) in refused.into_iter().enumerate() {
        let (status, said) = answers(request(&world, &token(n))).await;
        assert!(status == expected && said.contains(words), "{status} and not {expected} {words}: {said}");
    }
    assert!(world.clusters().is_empty());
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_and_after_it_was_unpacked() {
    let tokens: String = ["one", "two", "three", "four"].map(|token| entry("a", token)).concat();
    let world = World::leader(&tokens).await;
    let large = vec![b'#'; MAX + 1];
    assert_eq!(answers(world.push("one", large.clone())).await.0, 413);
    // Without a length beforehand.
    let pieces: Vec<_> = (0..=16).map(|_| Ok::<_, std::io::Error>(vec![b'#'; MAX / 16])).collect();
    let stream = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    assert_eq!(answers(world.push("two", stream)).await.0, 413);
    // A thousandth of what it becomes.
    let bomb = packed(&vec![b'#'; 1000 * MAX]);
    let (status, said) = answers(world.push("three", bomb).header("content-encoding", "gzip")).await;
    assert!(status == 413 && said.contains("maxBytes"), "{status} {said}");
    assert_eq!(answers(world.push("four", exposition("r1"))).await.0, 204);
}

#[tokio::test]
async fn a_token_that_was_refused_waits_and_no_other() {
    let world = World::leader(&(entry("a", "bad") + &entry("a", "good") + &entry("b", "two"))).await;
    let sources: Vec<String> =
        (0..300).map(|n| format!("statusbridge_source_up{{package_source=\"s{n}\"}} 1\n")).collect();
    let (status, said) = answers(world.push("bad", sources.concat() + &exposition("r1"))).await;
    assert!(status == 413 && said.contains("more than 256 sources"), "{status} {said}");
    assert_eq!(world.standing("a"), Standing::Unverified);
    // It is told to wait although no byte of the body has come.
    let address = world.reception.address().unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer bad\r\ncontent-length: 1000\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut said = String::new();
    connection.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 429") && said.contains("retry-after: 1\r\n"), "{said}");
    assert!(said.ends_with("pushes with this token were refused: try again in 1 s\n"), "{said}");
    // Nobody else has to, be it of the same cluster.
    assert_eq!(answers(world.push("good", exposition("r1"))).await.0, 204);
    assert_eq!(answers(world.push("two", exposition("r1"))).await.0, 204);
    let taken = async {
        while answers(world.push("bad", exposition("r1"))).await.0 != 204 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken).await.expect("what is good ends it");
}

#[tokio::test]
async fn a_token_whose_pushes_do_not_add_up_or_arrive_waits_after_the_first() {
    let world = World::leader(&(entry("a", "torn") + &entry("b", "slow") + &entry("c", "good"))).await;
    let torn = exposition("r1").replace("statusbridge_package_healthy_revision", "# ");
    assert_eq!(answers(world.push("torn", torn.clone())).await.0, 422);
    assert_eq!(answers(world.push("torn", torn.clone())).await.0, 422, "the first is forgiven");
    let (status, said) = answers(world.push("torn", torn)).await;
    assert!(status == 429 && said.contains("were refused: try again in"), "{status} {said}");
    for _ in 0..2 {
        let said = Dripping::begin(&world, "slow", 1).await.said().await;
        assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    }
    let (status, said) = answers(world.push("slow", exposition("r1"))).await;
    assert!(status == 429 && said.contains("were refused: try again in"), "{status} {said}");
    assert_eq!(answers(world.push("good", exposition("r1"))).await.0, 204);
}

#[tokio::test]
async fn those_whose_bodies_do_not_end_have_half_of_the_room_together() {
    let world = World::leader(&["a", "b", "c"].map(|cluster| entry(cluster, cluster)).concat()).await;
    let session = world.reception.front.seated().clone().unwrap();
    // Once each, and be it that they go away themselves.
    for token in ["a", "b"] {
        let id = session.find(token).unwrap().0;
        let dripping = Dripping::begin(&world, token, MAX / 2).await;
        world.until("it is let in", || session.under_way(token) > 0).await;
        drop(dripping);
        world.until("it is remembered", || session.refusals.remembers(&id, std::time::Instant::now())).await;
    }
    let one = Dripping::begin(&world, "a", MAX - 10).await;
    let other = Dripping::begin(&world, "b", MAX - 10).await;
    let turned_away = tokio::select! { said = one.said() => said, said = other.said() => said };
    assert!(turned_away.starts_with("HTTP/1.1 503"), "{turned_away}");
    let large = exposition("r1") + "#" + &" ".repeat(MAX / 2) + "\n";
    assert_eq!(answers(world.push("c", large)).await.0, 204);
}

/// A push whose body does not end.
struct Dripping(TcpStream);

impl Dripping {
    async fn begin(world: &World, token: &str, bytes: usize) -> Self {
        let mut connection = TcpStream::connect(world.reception.address().unwrap()).await.unwrap();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {MAX}\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(&vec![b'#'; bytes]).await.unwrap();
        Self(connection)
    }

    async fn said(mut self) -> String {
        let mut said = Vec::new();
        // A connection that is closed with something unread on it may break.
        let _ = self.0.read_to_end(&mut said).await;
        String::from_utf8(said).unwrap()
    }
}

#[tokio::test]
async fn one_that_sends_slowly_is_cut_off_and_holds_up_nobody() {
    let world = World::leader(&(entry("a", "one") + &entry("b", "two"))).await;
    let address = world.reception.address().unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer one\r\ncontent-length: 1000\r\n\r\n"
    );
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(b"# and ").await.unwrap();
        slow.push(connection);
    }
    // Once all four are under way, its cluster has no more turns; others do.
    let full = async {
        while answers(world.push("one", exposition("r1"))).await.0 != 429 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), full).await.expect("there are no more turns");
    assert_eq!(answers(world.push("two", exposition("r1"))).await.0, 204);
    let mut said = String::new();
    slow.pop().unwrap().read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    drop(slow);
    let room = async {
        while answers(world.push("one", exposition("r1"))).await.0 != 204 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), room).await.expect("there is room again");
}

#[tokio::test]
async fn a_replica_that_does_not_lead_asks_to_come_again() {
    let mut world = World::standby(&entry("a", "one"));
    let answer = world.push("one", exposition("r1")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(&answer.headers()["connection"], "close");
    world.lead();
    let led = async {
        while answers(world.push("one", exposition("r1"))).await.0 != 204 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), led).await.expect("it leads");
    world.leading.take().unwrap().abort();
    let stopped = async {
        while answers(world.push("one", exposition("r1"))).await.0 != 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), stopped).await.expect("it leads no longer");
}

#[tokio::test]
async fn nothing_is_said_of_clusters_before_all_have_pushed() {
    let world = World::leader(&(entry("a", "one") + &entry("b", "two"))).await;
    assert_eq!(answers(world.push("one", exposition("r1"))).await.0, 204);
    tokio::time::sleep(4 * PACE).await;
    assert_eq!(world.good_polls.load(Ordering::SeqCst), 0);
    assert_eq!(answers(world.push("two", exposition("r1"))).await.0, 204);
    world.until("it reports", || world.good_polls.load(Ordering::SeqCst) > 0).await;
}

#[tokio::test]
async fn exporters_of_one_cluster_are_told_apart_so_far() {
    let world = World::leader(&entry("a", "one")).await;
    for instance in 0..32 {
        let request = world.push("one", exposition("r1")).header(INSTANCE, instance.to_string());
        assert_eq!(answers(request).await.0, 204);
    }
    let (status, said) = answers(world.push("one", exposition("r1")).header(INSTANCE, "more")).await;
    assert!(status == 429 && said.contains("too many exporters"), "{status} {said}");
    assert_eq!(answers(world.push("one", exposition("r1")).header(INSTANCE, "7")).await.0, 204);
}
