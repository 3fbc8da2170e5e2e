//! Pods under OpenShift's SecurityContextConstraints `restricted-v2`: what these refuse, without an OpenShift.

use super::*;

/// Volumes that the constraints allow.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// What `restricted-v2` refuses of a pod's spec. User and groups come from a range of each namespace, so no fixed one
/// is allowed; the constraints fill them in.
fn refused(spec: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |allowed: bool, what: String| {
        if !allowed {
            wrong.push(what);
        }
    };
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        check(spec[field] != json!(true), field.to_owned());
    }
    let pod = &spec["securityContext"];
    for field in ["fsGroup", "supplementalGroups", "seLinuxOptions", "sysctls"] {
        check(pod[field].is_null(), format!("{field} of the pod"));
    }
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let kinds = volume.as_object().unwrap().keys().filter(|key| *key != "name");
        for kind in kinds {
            check(VOLUMES.contains(&kind.as_str()), format!("a volume of kind {kind}"));
        }
    }
    let containers = ["initContainers", "containers"].map(|field| spec[field].as_array());
    for container in containers.into_iter().flatten().flatten() {
        let own = &container["securityContext"];
        let name = &container["name"];
        for context in [pod, own] {
            check(context["runAsUser"].is_null(), format!("{name}: runAsUser"));
            check(context["runAsNonRoot"] != json!(false), format!("{name}: runAsNonRoot"));
            let profile = &context["seccompProfile"]["type"];
            check(profile.is_null() || profile == "RuntimeDefault", format!("{name}: seccomp {profile}"));
        }
        check(own["privileged"] != json!(true), format!("{name}: privileged"));
        check(own["allowPrivilegeEscalation"] == json!(false), format!("{name}: allowPrivilegeEscalation"));
        check(own["seLinuxOptions"].is_null(), format!("{name}: seLinuxOptions"));
        check(own["capabilities"]["drop"] == json!(["ALL"]), format!("{name}: capabilities are not dropped"));
        let added = own["capabilities"]["add"].as_array().into_iter().flatten();
        check(added.into_iter().all(|it| it == "NET_BIND_SERVICE"), format!("{name}: added capabilities"));
        let ports = container["ports"].as_array().into_iter().flatten();
        check(ports.into_iter().all(|port| port["hostPort"].is_null()), format!("{name}: hostPort"));
    }
    wrong
}

/// The specs of all pods: of Deployments, and of `helm test`.
fn pods(objects: &[Value]) -> Vec<&Value> {
    let deployed = of_kind(objects, "Deployment").map(|it| &it["spec"]["template"]["spec"]);
    deployed.chain(of_kind(objects, "Pod").map(|it| &it["spec"])).collect()
}

#[tokio::test]
async fn pods_are_admitted_with_the_values_for_openshift() -> Result<()> {
    for chart in Chart::ALL {
        let values = chart.dir().join("ci/openshift-values.yaml");
        let objects = chart.render(NAMESPACE, &["--values", values.to_str().unwrap()]).await?;
        let pods = pods(&objects);
        ensure!(pods.len() >= 2, "{}: only {} pods", chart.name(), pods.len());
        for spec in pods {
            ensure!(refused(spec).is_empty(), "{}: {:?}", chart.name(), refused(spec));
            ensure!(spec["securityContext"]["runAsNonRoot"] == json!(true), "{spec}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn fixed_users_and_groups_are_refused() -> Result<()> {
    for chart in Chart::ALL {
        let objects = chart.render(NAMESPACE, &[]).await?;
        for spec in pods(&objects) {
            let wrong = refused(spec).join(", ");
            ensure!(wrong.contains("fsGroup") && wrong.contains("runAsUser"), "{}: {wrong}", chart.name());
        }
    }
    Ok(())
}
