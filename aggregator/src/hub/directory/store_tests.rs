use std::fs;

use rstest::rstest;

use super::super::files::{Files, Looked};
use super::super::schema::Schemas;
use super::*;

const PROFILES: &str = statusbridge_core::reconcile::profiles::GROUP;
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

    fn remove(&self, name: &str) {
        fs::remove_file(self.directory.path().join(name)).unwrap();
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
    hub.remove("app.yaml");
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
fn objects_that_are_only_read_are_not_known_while_any_file_is_broken_and_none_is_forgotten_for_it() {
    let profile =
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nmetadata: {name: eu-1}\n";
    let mut hub = Hub::new();
    hub.write("clusters.yaml", profile);
    hub.look();
    let known = |hub: &Hub| hub.store.iter().filter(|(place, _)| place.plural == "clusterprofiles").count();
    assert_eq!((hub.store.unknown(PROFILES), known(&hub)), (None, 1));
    for broken in ["metadata: [\n", "kind: Cluster\n", &format!("{profile}---\n{profile}")] {
        hub.write("clusters.yaml", broken);
        hub.look();
        let why = hub.store.unknown(PROFILES).unwrap_or_default();
        assert!(why.starts_with("clusters.yaml"), "{why:?}");
        assert_eq!(hub.store.unknown(""), Some(why), "a revision may be in it");
        assert_eq!([GROUP, LEASES].map(|group| hub.store.unknown(group)), [None; 2]);
        assert_eq!(known(&hub), 1);
    }
    hub.remove("clusters.yaml");
    hub.look();
    assert_eq!((hub.store.unknown(PROFILES), known(&hub)), (None, 0));
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
fn files_change_together_once_nobody_writes_any_of_them() {
    let mut hub = Hub::new();
    hub.write("a.yaml", &gate("wave-1", "r1"));
    hub.write("b.yaml", &gate("wave-2", "r1"));
    assert_eq!(hub.files.look().unwrap(), Looked::Unsettled);
    hub.write("b.yaml", &gate("wave-2", "r2"));
    assert_eq!(hub.files.look().unwrap(), Looked::Unsettled);
    assert_eq!(hub.files.read().objects.len(), 0, "a.yaml is not ahead of b.yaml");
    assert_eq!([(); 2].map(|()| hub.files.look().unwrap()), [Looked::Changed, Looked::Same]);
    assert_eq!(hub.files.read().objects.len(), 2);
}

#[rstest]
#[case::half(
    "kind: RolloutGate",
    "a.yaml: found no newline at the end, so that it may be half written: add one"
)]
#[case::emptied("", "a.yaml: found no object: remove the file")]
#[case::comments(
    "# nothing\n",
    "a.yaml: found no object: remove the file if what it declared is to be removed"
)]
#[case::nothing("null\n", "a.yaml: found no Kubernetes object")]
fn a_file_that_was_not_written_to_its_end_closes_what_it_declared(
    #[case] text: &str,
    #[case] expected: &str,
) {
    let mut hub = Hub::new();
    hub.write("a.yaml", &gate("wave-1", "r1"));
    hub.look();
    hub.write("a.yaml", text);
    hub.look();
    let why = why(&hub.gate("wave-1").unwrap()).to_owned();
    assert!(why.starts_with(expected), "{why}");
}

#[rstest]
#[case(
    "labels: {wave: 1}",
    "metadata.labels: found {\"wave\":1}, expected a map of texts (put numbers in quotes)"
)]
#[case("annotations: [a]", "metadata.annotations: found [\"a\"], expected a map of texts")]
fn labels_and_annotations_are_texts(#[case] metadata: &str, #[case] expected: &str) {
    let mut hub = Hub::new();
    hub.write(
        "a.yaml",
        &gate("wave-1", "r1").replace("namespace: fleet", &format!("namespace: fleet, {metadata}")),
    );
    hub.look();
    assert_eq!(hub.gate("wave-1"), None);
    let broken = hub.files.read().broken.remove("a.yaml").unwrap();
    assert!(broken.contains(expected), "{broken}");
}

#[test]
fn what_cannot_be_written_counts_for_nothing_until_it_can() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    hub.open("wave-1");
    // Whatever is to be renamed to its file finds a folder.
    let path = hub.directory.path().join("status/rolloutgates/fleet/wave-1.yaml");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    hub.write("app.yaml", &gate("wave-1", "r2"));
    hub.look();
    let refused = hub.gate("wave-1").unwrap();
    let why = why(&refused);
    assert!(
        why.starts_with("what its file says could not be taken in: cannot be written to its file"),
        "{why}"
    );
    assert_eq!((generation(&refused), &refused["spec"]["revision"]), (2, &json!("r1")));
    assert!(hub.store.is_behind());
    let begin = hub.store.version();
    hub.store.take(hub.files.read());
    assert_eq!(hub.store.version(), begin, "it is said once");
    fs::remove_dir(&path).unwrap();
    hub.store.take(hub.files.read());
    let taken = hub.gate("wave-1").unwrap();
    assert_eq!((self::why(&taken), &taken["spec"]["revision"]), ("", &json!("r2")));
    assert_eq!((hub.store.is_behind(), hub.file("wave-1").unwrap()), (false, taken.as_ref().clone()));
}

#[test]
fn too_many_files_are_one_error() {
    let mut hub = Hub::new();
    for number in 0..1001 {
        hub.write(&format!("{number}.yaml"), "\n");
    }
    let error = hub.files.look().unwrap_err().to_string();
    assert_eq!(error, "found 1001 files, and at most 1000 are read: move some of them elsewhere");
}

#[test]
fn watches_hear_every_change_and_those_that_fell_behind_hear_that() {
    let mut hub = Hub::new();
    hub.write("app.yaml", &gate("wave-1", "r1"));
    hub.look();
    let begin = hub.store.version();
    hub.open("wave-1");
    hub.remove("app.yaml");
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
