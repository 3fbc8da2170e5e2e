//! Who may open a gate by hand: the policy and the roles that the aggregator's chart brings, tried by people with
//! different rights.

mod fleet_rollouts;

use super::*;
use anyhow::bail;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use statusbridge_tests::{Etcd, Rig, SOON, eventually, hub, run};

const POLICY: &str = "rolloutgate-override.statusbridge.dev";
/// Where the gates are.
const FLEET: &str = "fleet";

/// The people, with the ClusterRoles that they have in the gates' namespace and whether the policy lets them open every
/// gate, or some.
const PEOPLE: [(&str, &[&str], Opens); 7] = [
    ("viewer", &["view"], Opens::Nothing),
    ("writer", &["edit"], Opens::Nothing),
    ("owner", &["admin"], Opens::Nothing),
    ("opener", &["statusbridge-override"], Opens::Everything),
    ("writer-and-opener", &["statusbridge-editor", "statusbridge-override"], Opens::Everything),
    // The verb for gates by name, in a Role of its own.
    ("opener-of-some", &["edit", "opens-some"], Opens::Some(&["closed", "fresh"])),
    // The verb in another namespace.
    ("opener-elsewhere", &["edit"], Opens::Nothing),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opens {
    Nothing,
    Some(&'static [&'static str]),
    Everything,
}

struct Person {
    name: &'static str,
    opens: Opens,
    client: kube::Client,
    gates: Api<DynamicObject>,
}

impl Person {
    fn opens(&self, gate: &str) -> bool {
        match self.opens {
            Opens::Nothing => false,
            Opens::Some(gates) => gates.contains(&gate),
            Opens::Everything => true,
        }
    }

    /// Whether RBAC allows this in the gates' namespace.
    async fn may(&self, verb: &str, subresource: Option<&str>) -> Result<bool> {
        let attributes = ResourceAttributes {
            group: Some("statusbridge.dev".to_owned()),
            resource: Some("rolloutgates".to_owned()),
            subresource: subresource.map(str::to_owned),
            namespace: Some(FLEET.to_owned()),
            name: Some("fresh".to_owned()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let reviews = Api::<SelfSubjectAccessReview>::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Changes a gate without effect.
    async fn try_to_change(&self, gate: &str, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        done(self.gates.patch(gate, &dry_patch(), &patch).await)
    }

    async fn try_to_create(&self, gate: Value) -> Result<()> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        done(self.gates.create(&params, &serde_json::from_value(gate)?).await)
    }

    async fn try_to_delete(&self, gate: &str) -> Result<()> {
        done(self.gates.delete(gate, &dry_delete()).await)
    }
}

fn dry_patch() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

fn dry_delete() -> DeleteParams {
    DeleteParams { dry_run: true, ..DeleteParams::default() }
}

fn gate(name: &str, more: Value) -> Value {
    let mut gate = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
        "metadata": {"name": name, "namespace": FLEET},
        "spec": {"fleetPackageRef": {"name": "app"}, "revision": "v1", "clusters": {"names": ["c1", "c2", "c3"]}},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        gate["spec"][field] = value.clone();
    }
    gate
}

fn word(state: &str) -> Value {
    json!({"override": {"state": state, "reason": "incident 7"}})
}

fn until(state: &str, until: &str) -> Value {
    json!({"override": {"state": state, "reason": "incident 7", "until": until}})
}

const JUNE: &str = "2030-06-01T00:00:00Z";

/// The gates that are there, and their specs.
fn gates() -> [(&'static str, Value); 5] {
    [
        ("computed", json!({})),
        ("open", word("Open")),
        ("closed", word("Closed")),
        ("closed-until-june", until("Closed", JUNE)),
        ("amounts", json!({"minHealthy": 2, "maxFailures": "10%"})),
    ]
}

/// Changes of these gates, and how the refusal begins where they need the verb.
fn changes() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let free = None;
    let null = json!({"override": null});
    let everything = json!({
        "override": {"state": "Open", "reason": "we know"}, "minHealthy": 1, "maxFailures": "10%",
    });
    let ordinary = json!({
        "revision": "v2", "clusters": {"names": ["c4"]}, "require": "Applied", "minSuccessTime": "5m",
        "progressDeadline": "1h", "dependsOn": [{"name": "other"}], "requireStage": "build",
        "checks": [{"name": "errors", "query": "vector(0)", "max": 1}],
    });
    vec![
        ("computed", word("Open"), Some("spec.override (unset -> Open) needs the verb override")),
        (
            "computed",
            until("Open", JUNE),
            Some("spec.override (unset -> Open until 2030-06-01T00:00:00Z) needs"),
        ),
        ("computed", word("Closed"), free),
        ("computed", until("Closed", JUNE), free),
        ("computed", null.clone(), free),
        ("computed", json!({"minHealthy": 1}), Some("spec.minHealthy (unset -> 1) needs")),
        ("computed", json!({"minHealthy": "100%"}), Some("spec.minHealthy (unset -> 100%) needs")),
        ("computed", json!({"maxFailures": 0}), Some("spec.maxFailures (unset -> 0) needs")),
        (
            "computed",
            everything,
            Some(
                "spec.override (unset -> Open) and spec.minHealthy (unset -> 1) and \
                 spec.maxFailures (unset -> 10%) need the verb override",
            ),
        ),
        ("computed", ordinary.clone(), free),
        ("open", null.clone(), free),
        ("open", word("Closed"), free),
        ("open", until("Closed", "2020-01-01T00:00:00Z"), free),
        ("open", until("Open", JUNE), Some("spec.override (Open -> Open until 2030-06-01T00:00:00Z) needs")),
        ("open", json!({"override": {"reason": "the boss said so"}}), Some("spec.override.reason needs")),
        ("open", ordinary.clone(), Some("spec of a gate that an override opens needs the verb override")),
        ("open", json!({"revision": "v2"}), Some("spec of a gate that an override opens needs")),
        ("open", json!({"revision": "v2", "override": null}), free),
        ("open", json!({"revision": "v1"}), free),
        ("closed", null.clone(), Some("spec.override (Closed -> unset) needs")),
        ("closed", word("Open"), Some("spec.override (Closed -> Open) needs")),
        (
            "closed",
            until("Closed", JUNE),
            Some("spec.override (Closed -> Closed until 2030-06-01T00:00:00Z) needs"),
        ),
        ("closed", json!({"override": {"reason": "incident 8"}}), free),
        ("closed", ordinary.clone(), free),
        ("closed-until-june", word("Open"), Some("spec.override (Closed until 2030-06-01T00:00:00Z -> Open")),
        ("closed-until-june", null, Some("spec.override (Closed until 2030-06-01T00:00:00Z -> unset) needs")),
        ("closed-until-june", json!({"override": {"until": null}}), free),
        ("closed-until-june", until("Closed", "2030-06-01T00:00:01Z"), free),
        // The same moment, and one that only looks later.
        ("closed-until-june", until("Closed", "2030-06-01T02:00:00+02:00"), free),
        (
            "closed-until-june",
            until("Closed", "2030-06-01T00:30:00+02:00"),
            Some(
                "spec.override (Closed until 2030-06-01T00:00:00Z -> Closed until 2030-06-01T00:30:00+02:00)",
            ),
        ),
        ("amounts", json!({"minHealthy": 1}), Some("spec.minHealthy (2 -> 1) needs")),
        ("amounts", json!({"minHealthy": 3}), Some("spec.minHealthy (2 -> 3) needs")),
        ("amounts", json!({"minHealthy": null}), Some("spec.minHealthy (2 -> unset) needs")),
        ("amounts", json!({"maxFailures": 10}), Some("spec.maxFailures (10% -> 10) needs")),
        ("amounts", json!({"maxFailures": null}), Some("spec.maxFailures (10% -> unset) needs")),
        ("amounts", json!({"minHealthy": 2, "maxFailures": "10%"}), free),
        ("amounts", word("Closed"), free),
        ("amounts", ordinary, free),
    ]
}

/// New gates, in the same way.
fn creations() -> [(Value, Option<&'static str>); 6] {
    [
        (json!({}), None),
        (word("Closed"), None),
        (word("Open"), Some("spec.override (unset -> Open) needs")),
        (json!({"minHealthy": "50%"}), Some("spec.minHealthy (unset -> 50%) needs")),
        (json!({"maxFailures": 1}), Some("spec.maxFailures (unset -> 1) needs")),
        (json!({"override": null, "minHealthy": null, "maxFailures": null}), None),
    ]
}

/// What the API server says of a request, without the rest of its answer.
fn done<T>(tried: kube::Result<T>) -> Result<()> {
    match tried {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => bail!("{}", status.message),
        Err(error) => Err(error.into()),
    }
}

/// Whether what somebody tried ended as it had to.
fn verdict(tried: Result<()>, refusal: Option<&str>) -> Result<()> {
    let Some(begin) = refusal else {
        return tried.context("it was refused");
    };
    let said =
        tried.err().with_context(|| format!("it was accepted, not refused with: {begin}"))?.to_string();
    ensure!(said.contains(begin), "refused with: {said}, not with: {begin}");
    Ok(())
}

/// The refusal of the policy, whole.
fn is_refused_by_the_policy(tried: Result<()>, begin: &str) -> Result<()> {
    let said = tried.err().context("it was accepted")?.to_string();
    for part in [
        &format!("ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: {begin}"),
        "the verb override on rolloutgates.statusbridge.dev in namespace fleet",
        "A RoleBinding to the ClusterRole statusbridge-override grants it",
        "Closing a gate does not need it: set spec.override with state Closed",
    ] {
        ensure!(said.contains(part), "{part} is not said: {said}");
    }
    Ok(())
}

/// What goes on when RBAC refuses.
const NO_RIGHT: &str = "cannot ";

fn binding(namespace: &str, person: &str, kind: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": format!("{person}-{role}"), "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": group, "name": person}],
    })
}

async fn person(api: &ApiServer, name: &'static str, opens: Opens, roles: &[(&str, &str)]) -> Result<Person> {
    for (kind, role) in roles {
        api.apply_object(&binding(FLEET, name, kind, role)).await?;
    }
    let kubeconfig = kube::config::Kubeconfig::read_from(api.kubeconfig_as(name, &[])?)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let client = kube::Client::try_from(config)?;
    let (resource, _) = kube::discovery::pinned_kind(&api.client(), &hub::kind("RolloutGate")).await?;
    let gates = Api::namespaced_with(client.clone(), FLEET, &resource);
    Ok(Person { name, opens, client, gates })
}

fn own_role(name: &str, verbs: &[&str], names: &[&str]) -> Value {
    let rule = json!({
        "apiGroups": ["statusbridge.dev"], "resources": ["rolloutgates"], "verbs": verbs, "resourceNames": names,
    });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name, "namespace": FLEET}, "rules": [rule],
    })
}

struct World {
    _etcd: Etcd,
    api: ApiServer,
    people: Vec<Person>,
}

impl World {
    /// A hub with the chart's roles, the gates and the people, and in the end with the policy.
    async fn new(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        api.install_crds(&crds::own()?).await?;
        for namespace in [FLEET, "elsewhere"] {
            api.ensure_namespace(namespace).await?;
        }
        let chart = Chart::Aggregator.render(NAMESPACE, &[]).await?;
        for role in of_kind(&chart, "ClusterRole") {
            api.apply_object(role).await?;
        }
        api.aggregate_cluster_roles().await?;
        for (name, spec) in gates() {
            api.apply_object(&gate(name, spec)).await?;
        }
        api.apply_object(&own_role("opens-some", &["override"], &["closed", "fresh"])).await?;
        let mut people = Vec::new();
        for (name, roles, opens) in PEOPLE {
            let roles: Vec<_> = roles
                .iter()
                .map(|role| (if *role == "opens-some" { "Role" } else { "ClusterRole" }, *role))
                .collect();
            people.push(person(&api, name, opens, &roles).await?);
        }
        api.apply_object(&binding("elsewhere", "opener-elsewhere", "ClusterRole", "statusbridge-override"))
            .await?;
        let world = Self { _etcd: etcd, api, people };

        // Without the policy everybody who writes gates opens them.
        let writer = world.person("writer");
        eventually(SOON, "the roles are in force", async || {
            for person in &world.people {
                ensure!(person.may("get", None).await?, "{} may not read", person.name);
            }
            ensure!(world.person("opener-of-some").may("override", None).await?, "no right by name yet");
            writer.try_to_change("computed", word("Open")).await
        })
        .await?;
        for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
            world.api.apply_object(the(&chart, kind, POLICY)?).await?;
        }
        // A policy counts from a moment after it was made.
        eventually(SOON, "the policy is in force", async || {
            is_refused_by_the_policy(
                writer.try_to_change("computed", word("Open")).await,
                "spec.override (unset -> Open) needs",
            )
        })
        .await?;
        Ok(world)
    }

    fn person(&self, name: &str) -> &Person {
        self.people.iter().find(|person| person.name == name).unwrap()
    }
}

#[tokio::test]
async fn who_may_open_a_gate_by_hand() {
    run("deploy-by-hand", async |rig| {
        let world = World::new(rig).await?;
        let mut wrong = Vec::new();
        let mut tried = 0;
        let mut note = |what: String, result: Result<()>| {
            tried += 1;
            if let Err(error) = result {
                wrong.push(format!("{what}: {error:#}"));
            }
        };
        for person in &world.people {
            let who = person.name;
            let writes = person.may("patch", None).await?;
            for (gate, change, refusal) in changes() {
                let refusal = match refusal {
                    _ if !writes => Some(NO_RIGHT),
                    _ if person.opens(gate) => None,
                    refusal => refusal,
                };
                let what = format!("{who} changes {gate} by {change}");
                note(what, verdict(person.try_to_change(gate, change).await, refusal));
            }
            let creates = person.may("create", None).await?;
            for (spec, refusal) in creations() {
                let refusal = match refusal {
                    _ if !creates => Some(NO_RIGHT),
                    _ if person.opens("fresh") => None,
                    refusal => refusal,
                };
                let what = format!("{who} creates a gate with {spec}");
                note(what, verdict(person.try_to_create(gate("fresh", spec)).await, refusal));
            }
            let deletes = person.may("delete", None).await?;
            for (gate, _) in gates() {
                let refusal = match gate {
                    _ if !deletes => Some(NO_RIGHT),
                    _ if person.opens(gate) => None,
                    "closed" => Some("spec.override (Closed -> deleted with its gate) needs"),
                    "closed-until-june" => Some("-> deleted with its gate) needs"),
                    _ => None,
                };
                note(format!("{who} deletes {gate}"), verdict(person.try_to_delete(gate).await, refusal));
            }
        }
        ensure!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
        ensure!(tried > 300, "only {tried} cases");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn no_other_way_leads_to_the_same() {
    run("deploy-by-hand-ways", async |rig| {
        let world = World::new(rig).await?;
        let (writer, admin) = (world.person("writer"), world.api.client());
        let (resource, _) = kube::discovery::pinned_kind(&admin, &hub::kind("RolloutGate")).await?;
        let admins = Api::<DynamicObject>::namespaced_with(admin, FLEET, &resource);
        let opened = gate("computed", word("Open"));
        let refusal = "spec.override (unset -> Open) needs";

        // Every kind of write, for real.
        let apply = PatchParams::apply("writer").force();
        let tried = writer.gates.patch("computed", &apply, &Patch::Apply(&opened)).await;
        is_refused_by_the_policy(done(tried), refusal).context("apply")?;
        let fresh = gate("fresh", word("Open"));
        let tried = writer.gates.patch("fresh", &apply, &Patch::Apply(&fresh)).await;
        is_refused_by_the_policy(done(tried), refusal).context("apply of a new one")?;
        let steps = json!([{"op": "add", "path": "/spec/override", "value": word("Open")["override"]}]);
        let steps: Patch<Value> = Patch::Json(serde_json::from_value(steps)?);
        let tried = writer.gates.patch("computed", &PatchParams::default(), &steps).await;
        is_refused_by_the_policy(done(tried), refusal).context("JSON patch")?;
        let mut whole = admins.get("computed").await?;
        whole.data["spec"]["override"] = word("Open")["override"].clone();
        let tried = writer.gates.replace("computed", &PostParams::default(), &whole).await;
        is_refused_by_the_policy(done(tried), refusal).context("replace")?;
        let mut unnamed = gate("", word("Open"));
        unnamed["metadata"] = json!({"generateName": "wave-"});
        is_refused_by_the_policy(writer.try_to_create(unnamed).await, refusal).context("a generated name")?;

        // In the words of docs/gating.md.
        let open = r#"{"spec":{"override":{"state":"Open","reason":"we know"}}}"#;
        let patch =
            ["--as", "writer", "-n", FLEET, "patch", "rolloutgate", "computed", "--type=merge", "-p", open];
        let out = world.api.kubectl_output(&patch).await?;
        let begin =
            "Error from server (Forbidden): rolloutgates.statusbridge.dev \"computed\" is forbidden: ";
        let said = String::from_utf8(out.stderr)?;
        ensure!(said.starts_with(begin), "{said}");
        is_refused_by_the_policy(Err(anyhow::Error::msg(said)), refusal)?;

        // An apply that leaves out what the same manager had set takes it away.
        let closed = gate("theirs", word("Closed"));
        writer.gates.patch("theirs", &apply, &Patch::Apply(&closed)).await.context("closing by hand")?;
        let tried = writer.gates.patch("theirs", &apply, &Patch::Apply(&gate("theirs", json!({})))).await;
        is_refused_by_the_policy(done(tried), "spec.override (Closed -> unset) needs")?;
        // The same manifest again, and what is no change of these fields.
        writer.gates.patch("theirs", &apply, &Patch::Apply(&closed)).await?;
        let amounts = gate("amounts", json!({"minHealthy": 2, "maxFailures": "10%", "revision": "v2"}));
        writer.gates.patch("amounts", &apply, &Patch::Apply(&amounts)).await?;
        let label =
            Patch::Merge(json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.org/a"]}}));
        writer.gates.patch("closed", &PatchParams::default(), &label).await?;
        let no_finalizer = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        writer.gates.patch("closed", &PatchParams::default(), &no_finalizer).await?;

        // All at once, by somebody who may delete them all.
        world.api.apply_object(&own_role("deletes", &["list", "deletecollection"], &[])).await?;
        let cleaner = person(&world.api, "cleaner", Opens::Nothing, &[("Role", "deletes")]).await?;
        eventually(SOON, "the right is in force", async || {
            ensure!(cleaner.may("deletecollection", None).await?, "not yet");
            Ok(())
        })
        .await?;
        let tried = cleaner.gates.delete_collection(&dry_delete(), &ListParams::default()).await;
        is_refused_by_the_policy(done(tried), "spec.override (Closed -> deleted with its gate) needs")?;

        // The status is for the aggregator, and changes no spec. There is no other subresource.
        let status = json!({"status": {"observedGeneration": 1}});
        let tried =
            writer.gates.patch_status("computed", &PatchParams::default(), &Patch::Merge(&status)).await;
        verdict(done(tried), Some("cannot patch resource \"rolloutgates/status\""))?;
        for person in &world.people {
            for verb in ["update", "patch"] {
                ensure!(!person.may(verb, Some("status")).await?, "{} may {verb} /status", person.name);
            }
        }
        let both = json!({"spec": word("Open"), "status": {"observedGeneration": 1}});
        let after = admins.patch_status("computed", &PatchParams::default(), &Patch::Merge(&both)).await?;
        ensure!(after.data["spec"]["override"].is_null(), "a write to /status changed the spec");
        ensure!(admins.get_scale("computed").await.is_err(), "gates have a scale");

        // Nobody gives himself the right.
        let own = binding(FLEET, "owner", "ClusterRole", "statusbridge-override");
        let file = rig.dir().join("binding.json");
        std::fs::write(&file, own.to_string())?;
        let (file, owner) = (file.to_str().unwrap(), ["--as", "owner"]);
        let bound = world.api.kubectl_output(&[&owner[..], &["create", "-f", file]].concat()).await?;
        let said = String::from_utf8_lossy(&bound.stderr);
        ensure!(!bound.status.success() && said.contains("attempting to grant RBAC permissions"), "{said}");

        // A namespace with such gates can be removed.
        world.api.kubectl(&["delete", "namespace", FLEET, "--wait=false"]).await?;
        eventually(SOON, "gates go with their namespace", async || writer.try_to_delete("closed").await).await
    })
    .await;
}

/// The policies that ship, each with the value of the chart that they come with and the role that they speak of.
const POLICIES: [(&str, &str, &str); 6] = [
    ("rolloutgate-override", "overridePolicy", "override"),
    ("rolloutfreeze-override", "overridePolicy", "override"),
    ("fleetrollout-override", "overridePolicy", "override"),
    ("rolloutgate-approval", "approvalPolicy", "approve"),
    ("fleetrollout-approval", "approvalPolicy", "approve"),
    ("rolloutapproval-by", "approvalPolicy", "approve"),
];

#[tokio::test]
async fn the_chart_has_the_policies_that_ship() -> Result<()> {
    let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    let default = Chart::Aggregator.render(NAMESPACE, &[]).await?;
    // A second release has names of its own, and speaks of its own roles.
    let second = Chart::Aggregator.render("second", &[]).await?;
    for (policy, _, role) in POLICIES {
        let file = std::fs::read_to_string(repository(&format!("deploy/policies/{policy}.yaml")))?;
        let shipped = crds::documents(&file)?;
        let name = format!("{policy}.statusbridge.dev");
        let theirs = format!("second-statusbridge-aggregator.{name}");
        for kind in kinds {
            assert_eq!(the(&default, kind, &name)?["spec"], the(&shipped, kind, &name)?["spec"]);
            the(&second, kind, &theirs)?;
        }
        assert_eq!(the(&second, kinds[1], &theirs)?["spec"]["policyName"], theirs);
        let role = format!("second-statusbridge-aggregator-{role}");
        the(&second, "ClusterRole", &role)?;
        let validations = the(&second, kinds[0], &theirs)?["spec"]["validations"].to_string();
        assert!(validations.contains(&format!("the ClusterRole {role} grants it")), "{validations}");
    }
    // One switch for each right.
    for switch in ["overridePolicy", "approvalPolicy"] {
        let without =
            Chart::Aggregator.render(NAMESPACE, &["--set", &format!("{switch}.enabled=false")]).await?;
        for (policy, value, _) in POLICIES {
            for kind in kinds {
                let is_there = the(&without, kind, &format!("{policy}.statusbridge.dev")).is_ok();
                assert_eq!(is_there, value != switch, "{kind} {policy} without {switch}");
            }
        }
        assert_eq!(of_kind(&default, kinds[0]).count(), POLICIES.len());
    }
    Ok(())
}

#[tokio::test]
async fn roles_for_people_are_part_of_those_that_they_should_be_part_of() -> Result<()> {
    let chart = Chart::Aggregator.render(NAMESPACE, &[]).await?;
    for (role, parts) in [
        ("viewer", &["view"][..]),
        ("editor", &["admin", "edit"]),
        ("override", &[]),
        ("approve", &[]),
        ("wait", &[]),
    ] {
        let name = format!("statusbridge-{role}");
        let file = std::fs::read_to_string(repository("deploy/rbac").join(format!("{role}.yaml")))?;
        for objects in [&chart, &crds::documents(&file)?] {
            let labels = the(objects, "ClusterRole", &name)?["metadata"]["labels"].clone();
            let of: Vec<String> = labels
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(label, _)| label.strip_prefix("rbac.authorization.k8s.io/aggregate-to-"))
                .map(str::to_owned)
                .collect();
            assert_eq!(of, parts, "{name}");
        }
    }
    Ok(())
}
