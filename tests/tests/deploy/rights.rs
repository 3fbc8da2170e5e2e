//! The charts give the rights that the programs need, and no other.

use super::*;
use statusbridge_tests::own_command;
use std::collections::BTreeSet;

/// One thing that is allowed: verb, group, resource, name.
type Right = (String, String, String, String);

/// Rules, taken apart.
fn rights<'a>(rules: impl IntoIterator<Item = &'a Value>) -> BTreeSet<Right> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules {
        let mut names = texts(&rule["resourceNames"]);
        if names.is_empty() {
            names.push(String::new());
        }
        for verb in texts(&rule["verbs"]) {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in &names {
                        all.insert((verb.clone(), group.clone(), resource.clone(), name.clone()));
                    }
                }
            }
        }
    }
    all
}

fn rules(role: &Value) -> &[Value] {
    role["rules"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn the_exporter_may_do_what_its_own_list_says() -> Result<()> {
    for values in Chart::Exporter.values()? {
        let given: Value = serde_saphyr::from_str(&std::fs::read_to_string(&values)?)?;
        let name = stem(&values);
        let objects = Chart::Exporter.render(NAMESPACE, &["--values", values.to_str().unwrap()]).await?;
        // Rights in another cluster are not this chart's to give.
        if given["rbac"]["create"] == json!(false) || !given["kubeconfigSecret"].is_null() {
            ensure!(
                of_kind(&objects, "ClusterRole").next().is_none(),
                "{name}: a role that nobody asked for"
            );
            continue;
        }
        // What the container is started with is what `source rbac` is asked about.
        let args = &the(&objects, "Deployment", "")?["spec"]["template"]["spec"]["containers"][0]["args"];
        let mut of = vec!["source".to_owned(), "rbac".to_owned()];
        for arg in args.as_array().unwrap().iter().filter_map(Value::as_str) {
            if ["--presets=", "--resource-health=", "--authorize-scrapes"]
                .iter()
                .any(|flag| arg.starts_with(flag))
            {
                of.push(arg.to_owned());
            }
        }
        for (value, flag) in
            [("watchedResources", "--watched-resource"), ("resourcesByCategory", "--resource")]
        {
            for resource in given[value].as_array().into_iter().flatten() {
                of.push(format!("{flag}={}", resource.as_str().unwrap()));
            }
        }
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let out = own_command("statusbridge", &of).await?.output().await?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let printed: Value = serde_saphyr::from_str(&String::from_utf8(out.stdout)?)?;
        let extra = given["rbac"]["extraRules"].as_array().into_iter().flatten();
        let wanted = rights(rules(&printed).iter().chain(extra));
        let roles: Vec<&Value> = of_kind(&objects, "ClusterRole")
            .filter(|role| !role["metadata"]["name"].as_str().unwrap().ends_with("-scraper"))
            .collect();
        ensure!(roles.len() == 1, "{name}: {} roles", roles.len());
        let granted = rights(rules(roles[0]));
        ensure!(
            granted == wanted,
            "{name}: too much is {:?}, missing is {:?}",
            granted.difference(&wanted).collect::<Vec<_>>(),
            wanted.difference(&granted).collect::<Vec<_>>()
        );
        ensure!(
            !granted.iter().any(|(_, _, resource, _)| resource == "secrets" || resource == "*"),
            "{name}"
        );
    }
    Ok(())
}

/// The rules of all roles of a file in deploy/rbac.
fn shipped(file: &str) -> Result<BTreeSet<Right>> {
    let text = std::fs::read_to_string(repository("deploy/rbac").join(file))?;
    Ok(rights(crds::documents(&text)?.iter().flat_map(rules)))
}

/// What the accounts whose bindings end like this may do, in every namespace together.
fn granted(objects: &[Value], component: &str) -> BTreeSet<Right> {
    let of_component = |o: &&Value| o["metadata"]["labels"]["app.kubernetes.io/component"] == component;
    let bound = ["RoleBinding", "ClusterRoleBinding"].into_iter().flat_map(|kind| of_kind(objects, kind));
    let roles: Vec<&Value> = bound.filter(of_component).map(|binding| &binding["roleRef"]).collect();
    let all = ["Role", "ClusterRole"].into_iter().flat_map(|kind| of_kind(objects, kind));
    let referred = |role: &&Value| {
        roles.iter().any(|r| r["kind"] == role["kind"] && r["name"] == role["metadata"]["name"])
    };
    rights(all.filter(referred).flat_map(rules))
}

#[tokio::test]
async fn aggregator_and_sweeper_may_do_what_deploy_rbac_says() -> Result<()> {
    let all = Chart::Aggregator.render(NAMESPACE, &["--set", "discover.into=found"]).await?;
    let aggregator: BTreeSet<Right> =
        shipped("aggregator.yaml")?.union(&shipped("discovery.yaml")?).cloned().collect();
    assert_eq!(granted(&all, "aggregator"), aggregator);
    assert_eq!(granted(&all, "sweeper"), shipped("sweeper.yaml")?);
    for user in ["viewer", "wait", "editor", "override"] {
        let role = the(&all, "ClusterRole", &format!("statusbridge-{user}"))?;
        assert_eq!(rights(rules(role)), shipped(&format!("{user}.yaml"))?);
    }

    // Asking who may see what is a right that only those have who are to ask.
    let authorizes = |objects: &[Value]| -> Vec<Value> {
        let bindings = of_kind(objects, "ClusterRoleBinding");
        let delegates = bindings.filter(|it| it["roleRef"]["name"] == "system:auth-delegator");
        delegates.map(|it| json!([it["subjects"][0]["name"], it["subjects"][1]["name"]])).collect()
    };
    assert!(authorizes(&all).is_empty());
    let set = ["--set", "authorizeScrapes=true,tls.secretName=serving"];
    let secured = Chart::Aggregator.render(NAMESPACE, &set).await?;
    let names = json!(["statusbridge-aggregator", "statusbridge-aggregator-sweeper"]);
    assert_eq!(authorizes(&secured), [names]);
    assert!(Chart::Aggregator.render(NAMESPACE, &["--set", "authorizeScrapes=true"]).await.is_err());

    // What depends on the configuration: the default makes no FleetPackages.
    let default = Chart::Aggregator.render(NAMESPACE, &[]).await?;
    assert_eq!(granted(&default, "aggregator"), shipped("aggregator.yaml")?);
    let profiles = |right: &&Right| right.1 == "multicluster.x-k8s.io";
    let none = Chart::Aggregator.render(NAMESPACE, &["--set", "rbac.clusterProfiles.enabled=false"]).await?;
    assert_eq!(granted(&none, "aggregator").iter().filter(profiles).count(), 0);
    let one = ["--set", "config.clusterProfiles.namespace=fleet"];
    let one = Chart::Aggregator.render(NAMESPACE, &one).await?;
    assert_eq!(granted(&one, "aggregator"), shipped("aggregator.yaml")?);
    let role = of_kind(&one, "Role").find(|role| role["metadata"]["namespace"] == "fleet").unwrap();
    assert_eq!(rights(rules(role)).iter().filter(profiles).count(), 2);
    assert!(of_kind(&one, "ClusterRole").all(|role| !rights(rules(role)).iter().any(|r| profiles(&r))));
    Ok(())
}
