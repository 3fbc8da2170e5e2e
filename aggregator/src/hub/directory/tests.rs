use std::fs;

use super::*;

const GATE: &str = "\
apiVersion: statusbridge.dev/v1alpha1
kind: RolloutGate
metadata: {name: wave-1}
spec: {fleetPackageRef: {name: app}, revision: r1, clusters: {names: [a]}}
";

struct Hub {
    directory: tempfile::TempDir,
    store: Mutex<Store>,
    follower: Follower,
    now: Instant,
}

impl Hub {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let status = directory.path().join(STATUS);
        let lock = Lock::take(&status).unwrap();
        let files = Files::new(directory.path().to_owned(), schema::Schemas::new().unwrap());
        let store = Mutex::new(Store::open(status, watch::channel(0).0).unwrap());
        let now = Instant::now();
        Self { directory, store, follower: Follower { files, lock, good: now, said: String::new() }, now }
    }

    fn write(&self, text: &str) {
        fs::write(self.directory.path().join("app.yaml"), text).unwrap();
    }

    /// Why the gate counts for nothing, after another look; none while it counts.
    fn look(&mut self) -> Option<String> {
        self.now += LOOK;
        let looked = self.follower.look().unwrap();
        self.follower.take(looked, &self.store, self.now);
        let store = self.store.lock().unwrap();
        let (_, gate) = store.iter().next()?;
        gate.get(stored::REFUSED).map(|why| why.as_str().unwrap().to_owned())
    }
}

#[test]
fn files_that_never_keep_still_close_everything_until_they_do() {
    let mut hub = Hub::new();
    hub.write(GATE);
    assert_eq!([hub.look(), hub.look()], [None, None]);
    let patience = PATIENCE.as_secs();
    for number in 1..patience {
        hub.write(&format!("{GATE}# {number}\n"));
        assert_eq!(hub.look(), None, "after {number} s");
    }
    hub.write(&format!("{GATE}# the last\n"));
    let why = "app.yaml: the files of the directory change without end";
    assert_eq!(hub.look().as_deref(), Some(why));
    hub.write(GATE);
    assert_eq!([hub.look().as_deref(), hub.look().as_deref()], [Some(why), None]);
}

#[test]
fn a_directory_that_cannot_be_read_closes_everything_and_deletes_nothing() {
    let mut hub = Hub::new();
    hub.write(GATE);
    assert_eq!([hub.look(), hub.look()], [None, None]);
    for number in 0..1000 {
        fs::write(hub.directory.path().join(format!("{number}.yaml")), "").unwrap();
    }
    for _ in 1..PATIENCE.as_secs() {
        assert_eq!(hub.look(), None);
    }
    let why = hub.look().unwrap();
    assert!(why.starts_with("app.yaml: the directory cannot be read: found 1001 files"), "{why}");
}

#[test]
fn a_lock_that_is_gone_ends_the_work() {
    let hub = Hub::new();
    let mut follower = hub.follower;
    assert!(Lock::take(&hub.directory.path().join(STATUS)).is_err(), "it is taken");
    follower.look().unwrap().unwrap();
    fs::remove_dir_all(hub.directory.path().join(STATUS)).unwrap();
    let error = follower.look().unwrap_err().to_string();
    assert!(error.ends_with("start this one again"), "{error}");
    let _another = Lock::take(&hub.directory.path().join(STATUS)).unwrap();
    assert!(follower.look().is_err());
}

#[tokio::test]
async fn a_look_that_hangs_or_panics_ends_the_work() {
    assert_eq!(in_time(PATIENCE, || 5).await.unwrap(), 5);
    let (disk, hangs) = std::sync::mpsc::channel::<()>();
    let error = in_time(Duration::from_millis(10), move || hangs.recv()).await.unwrap_err().to_string();
    assert_eq!(error, "the directory could not be read within 10ms: see whether its disk answers");
    drop(disk);
    let error = in_time(PATIENCE, || panic!("no more")).await.map(|()| "").unwrap_err();
    assert!(format!("{error:#}").contains("panicked"), "{error:#}");
}
