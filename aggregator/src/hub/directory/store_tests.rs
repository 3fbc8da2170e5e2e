use std::fs;

use super::super::files::Files;
use super::super::schema::Schemas;
use super::*;

const PACKAGE: &str = "\
apiVersion: statusbridge.dev/v1alpha1
kind: FleetPackage
metadata: {name: app, namespace: fleet}
spec:
  package: {source: flux-kustomization, namespace: flux-system, name: app}
  clusters: {names: [a, b]}
";

fn gate(name: &str, revision: &str) -> String {
    format!(
        "apiVersion: statusbridge.dev/v1alpha1\nkind: RolloutGate\nmetadata: {{name: {name}, namespace: fleet}}\nspec:\n  \
         fleetPackageRef: {{name: app}}\n  revision: {revision}\n  clusters: {{names: [a]}}\n"
    )
}

/// A directory with a store of it.
struct Hub {
    directory: tempfile::TempDir,
    files: Files,
    store: Store,
}

impl Hub {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::at(directory)
    }

    fn at(directory: tempfile::TempDir) -> Self {
        let files = Files::new(directory.path().to_owned(), Schemas::new().unwrap());
        let (changed, _) = watch::channel(0);
        let store = Store::open(directory.path().join("status"), changed).unwrap();
        Self { directory, files, store }
    }

    /// The same directory in another process.
    fn again(self) -> Self {
        Self::at(self.directory)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn look(&mut self) {
        self.files.look().unwrap();
        self.files.look().unwrap();
        self.store.take(self.files.read());
    }

    fn place(name: &str) -> Place {
        let text = |text: &str| text.to_owned();
        Place {
            group: text("statusbridge.dev"),
            plural: text("rolloutgates"),
            namespace: text("fleet"),
            name: text(name),
        }
    }

    fn gate(&self, name: &str) -> Option<Arc<Value>> {
        self.store.get(&Self::place(name))
    }

    /// What stands in the file of a gate.
    fn file(&self, name: &str) -> Option<Value> {
        let path = self.directory.path().join("status/rolloutgates/fleet").join(format!("{name}.yaml"));
        Some(yaml::from_str(&fs::read_to_string(path).ok()?).unwrap())
    }

    fn open(&mut self, name: &str) {
        let status = json!({"observedGeneration": 1, "revision": "1e5"});
        self.store
            .change(&Self::place(name), &Expected::default(), |object| set(object, "status", Some(status)))
            .unwrap();
    }
}

fn why(object: &Value) -> &str {
    object[REFUSED].as_str().unwrap_or_default()
}

#[test]
fn objects_are_read_and_stand_in_files_with_their_status() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &format!("# the app\n---\n{PACKAGE}---\n{}", gate("wave-1", "r1")));
    hub.look();
    let object = hub.gate("wave-1").unwrap();
    assert_eq!((generation(&object), file(&object)), (1, Some("app.yaml")));
    assert_eq!(object["status"]["observedGeneration"], -1, "nobody has judged it");
    hub.open("wave-1");
    assert_eq!(hub.file("wave-1").unwrap(), *hub.gate("wave-1").unwrap());
    assert_eq!(hub.file("wave-1").unwrap()["status"]["revision"], "1e5");
}

#[test]
fn a_generation_counts_changes_of_the_spec_and_a_status_stays() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    hub.open("wave-1");
    let before = hub.gate("wave-1").unwrap();
    hub.look();
    assert_eq!(hub.gate("wave-1").unwrap(), before);
    hub.write("app.yaml", &gate("wave-1", "r2"));
    hub.look();
    let after = hub.gate("wave-1").unwrap();
    assert_eq!(
        (generation(&after), &after["status"], metadata(&after, "uid")),
        (2, &before["status"], metadata(&before, "uid"))
    );
    // Another file may have it.
    hub.write("app.yaml", "");
    hub.write("other.yaml", &gate("wave-1", "r2"));
    hub.look();
    assert_eq!(generation(&hub.gate("wave-1").unwrap()), 2);
}

#[test]
fn a_status_outlives_the_process_and_a_change_in_between_is_another_generation() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    hub.open("wave-1");
    let before = hub.gate("wave-1").unwrap();
    let mut hub = hub.again();
    hub.look();
    assert_eq!(hub.gate("wave-1").unwrap(), before);
    let mut hub = hub.again();
    hub.write("app.yaml", &gate("wave-1", "r2"));
    hub.look();
    let after = hub.gate("wave-1").unwrap();
    assert_eq!((generation(&after), &after["status"]), (2, &before["status"]));
}

#[test]
fn what_is_broken_is_refused_with_file_field_and_expectation_and_keeps_its_status() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &format!("{}---\n{}", gate("wave-1", "r1"), gate("wave-2", "r1")));
    hub.look();
    hub.open("wave-1");
    hub.write("app.yaml", &format!("{}---\n{}", gate("wave-1", "5"), gate("wave-2", "r1")));
    hub.look();
    let object = hub.gate("wave-1").unwrap();
    assert_eq!(
        why(&object),
        "app.yaml, document 1: spec.revision: found 5, expected a text (put it in quotes)"
    );
    assert_eq!((generation(&object), &object["spec"]["revision"]), (2, &json!("r1")));
    assert_eq!(object["status"]["revision"], "1e5");
    assert_eq!(why(&hub.gate("wave-2").unwrap()), "");
    // Any object of the file may be the one that cannot be read.
    hub.write("app.yaml", &format!("broken: [\n---\n{}", gate("wave-2", "r1")));
    hub.look();
    assert!(why(&hub.gate("wave-1").unwrap()).starts_with("app.yaml, document 1: "));
    let mut hub = hub.again();
    hub.look();
    assert!(
        why(&hub.gate("wave-1").unwrap()).starts_with("app.yaml, document 1: "),
        "also in another process"
    );
    hub.write("app.yaml", &format!("{}---\n{}", gate("wave-1", "r1"), gate("wave-2", "r1")));
    hub.look();
    let object = hub.gate("wave-1").unwrap();
    assert_eq!((why(&object), &object["status"]["revision"]), ("", &json!("1e5")));
    hub.write("app.yaml", &gate("wave-2", "r1"));
    hub.look();
    assert_eq!((hub.gate("wave-1"), hub.file("wave-1")), (None, None));
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    let path = hub.directory.path().join("app.yaml");
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    hub.look();
    assert_eq!(why(&hub.gate("wave-1").unwrap()), "app.yaml: cannot be read: it is no regular file");
}

#[test]
fn an_object_that_two_files_declare_is_refused() {
    let mut hub = Hub::new();
    hub.write("a.yaml", &gate("wave-1", "r1"));
    hub.write("b.yaml", &gate("wave-1", "r2"));
    hub.look();
    let object = hub.gate("wave-1").unwrap();
    assert_eq!(
        why(&object),
        "b.yaml: rolloutgates fleet/wave-1 is declared twice, in a.yaml too: expected one of them"
    );
}

#[test]
fn clusters_are_not_all_known_while_any_file_is_broken_and_none_is_forgotten_for_it() {
    let profile =
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nmetadata: {name: eu-1}\n";
    let mut hub = Hub::new();
    hub.write("clusters.yaml", profile);
    hub.look();
    let known = |hub: &Hub| hub.store.iter().filter(|(place, _)| place.plural == "clusterprofiles").count();
    assert_eq!((hub.store.unknown(profiles::GROUP), known(&hub)), (None, 1));
    for broken in ["metadata: [\n", "kind: Cluster\n", &format!("{profile}---\n{profile}")] {
        hub.write("clusters.yaml", broken);
        hub.look();
        let why = hub.store.unknown(profiles::GROUP).unwrap_or_default();
        assert!(why.starts_with("clusters.yaml"), "{why:?}");
        assert_eq!((hub.store.unknown("statusbridge.dev"), known(&hub)), (None, 1));
    }
    hub.write("clusters.yaml", "");
    hub.look();
    assert_eq!((hub.store.unknown(profiles::GROUP), known(&hub)), (None, 0));
}

#[test]
fn what_never_changes_of_an_object_makes_another_one_of_it() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    hub.open("wave-1");
    let before = hub.gate("wave-1").unwrap();
    hub.write("app.yaml", &gate("wave-1", "r1").replace("{name: app}", "{name: other}"));
    hub.look();
    let after = hub.gate("wave-1").unwrap();
    assert_ne!(metadata(&before, "uid"), metadata(&after, "uid"));
    assert_eq!(after["status"]["observedGeneration"], -1);
}

#[test]
fn what_is_still_being_written_is_not_read() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    assert!(!hub.files.look().unwrap());
    hub.write("app.yaml", &gate("wave-1", "r2"));
    assert!(!hub.files.look().unwrap());
    assert!(hub.files.look().unwrap() && !hub.files.look().unwrap());
}

#[test]
fn watches_hear_every_change_and_those_that_fell_behind_hear_that() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    let begin = hub.store.version();
    hub.open("wave-1");
    hub.write("app.yaml", "");
    hub.look();
    let heard: Vec<What> = hub.store.since(begin).unwrap().map(|change| change.what).collect();
    assert_eq!(heard, [What::Modified, What::Deleted]);
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    for _ in 0..MOST_CHANGES {
        hub.open("wave-1");
    }
    assert!(hub.store.since(begin).is_none());
}

#[test]
fn a_lease_that_an_earlier_process_held_is_free() {
    let mut hub = Hub::new();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kube-system"},
        "spec": {"holderIdentity": "me", "leaseTransitions": 3},
    });
    let place = Place::of(&lease).unwrap();
    hub.store.apply(lease, true).unwrap();
    let hub = hub.again();
    assert_eq!(hub.store.get(&place).unwrap()["spec"], json!({"leaseTransitions": 3}));
}
