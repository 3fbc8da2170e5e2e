#!/usr/bin/env python3
"""Computes contract/vectors.json: worked examples of every rule of the metric contract.

This is an implementation of its own, written from docs/contract.md and not from the Rust code, so
that an error in one of them shows as a difference. Keep it so: after a change of docs/contract.md
change this file by the page, then look whether `cargo test -p statusbridge-contract` agrees.

How to run it (Python 3.9 or newer; the package `xxhash` has XXH3-64):

    python=$(tools/install vectors)/python
    $python contract/vectors.py            # writes contract/vectors.json
    $python contract/vectors.py --check    # only compares; fails when it differs
"""

import hashlib
import json
import pathlib
import re
import sys

import xxhash

CONTRACT = "2"
MODULUS = 2**48

APPLY_STATES = ["Applied", "Applying", "Pending", "Paused", "Deleting", "Unknown", "Failed"]
HEALTHS = ["Current", "InProgress", "Terminating", "NotFound", "Unknown", "Failed"]

IDENTITY = ["package", "package_cluster", "package_namespace", "package_source"]
DIGEST = "statusbridge_digest"
RENDERED = "statusbridge_rendered_timestamp_seconds"

# Name, own labels, whether the digest covers it: in the order of the tables.
METRICS = [
    ("statusbridge_package_healthy_revision", IDENTITY, True),
    ("statusbridge_package_transition_timestamp_seconds", IDENTITY, True),
    ("statusbridge_package_apply_state", IDENTITY, True),
    ("statusbridge_package_health", IDENTITY, True),
    ("statusbridge_package_applied_revision", IDENTITY, True),
    ("statusbridge_package_desired_revision", IDENTITY, True),
    ("statusbridge_package_reason", IDENTITY, True),
    ("statusbridge_package_resources", IDENTITY, True),
    ("statusbridge_package_resources_current", IDENTITY, True),
    ("statusbridge_package_resources_failed", IDENTITY, True),
    ("statusbridge_reason_info", ["code", "package_source", "reason"], True),
    ("statusbridge_source_up", ["package_source"], True),
    ("statusbridge_source_packages", ["package_source"], True),
    ("statusbridge_process_number", [], True),
    (RENDERED, [], True),
    (DIGEST, ["contract", "package_cluster", "statusbridge_cluster_uid"], False),
    ("statusbridge_source_last_contact_timestamp_seconds", ["package_source"], False),
    ("statusbridge_packages", ["apply_state", "health", "package_source"], False),
]

COMMIT = "4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234"
NEXT = "77aa10c0ffee00112233445566778899aabbccdd"
CONTENT = "9b2f0c11aa77de0134556f7b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f70812"


# --- The rules ---------------------------------------------------------------------------------


def sha256_number(text, length):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:length], "big")


def fingerprint(revisions):
    left = [revision for revision in revisions if revision != ""]
    if not left:
        return 0
    if len(left) > 1:
        return sha256_number("\n".join(left), 6) or 1
    revision = left[0]
    plain = re.fullmatch(r"[0-9a-fA-F]{12}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", revision)
    if plain:
        return int(revision[:12], 16) or 1
    named = re.search(r"(?:\A|@)(?:sha1|sha256|sha512):([0-9a-fA-F]{12,})\Z", revision)
    if named:
        return int(named.group(1)[:12], 16) or 1
    return sha256_number(revision, 6) or 1


def shown(number):
    return f"{number:012x}" if number else "-"


def reason_code(reason):
    return (sha256_number(reason, 3) or 1) if reason else 0


def canonical(metric, labels, value):
    def escaped(text):
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{name}="{escaped(labels[name])}"' for name in sorted(labels))
    return f"{metric}{{{inside}}} {value}"


def sample_hash(text):
    return xxhash.xxh3_64_intdigest(text.encode(), seed=0)


def total(lines):
    return sum(sample_hash(line) for line in lines) % MODULUS


def rendered_sample(at):
    return canonical(RENDERED, {}, at)


def identity(package):
    labels = {"package_source": package["source"], "package": package["name"]}
    if package["namespace"] is not None:
        labels["package_namespace"] = package["namespace"]
    if package["cluster"] is not None:
        labels["package_cluster"] = package["cluster"]
    return labels


def samples_of(package):
    """The samples of a package, in canonical form and in the order of the table."""
    applied = fingerprint(package["applied"])
    desired = fingerprint(package["desired"])
    good = package["apply_state"] == "Applied" and package["health"] == "Current"
    healthy = applied if good else 0
    values = {"healthy_revision": healthy, "transition_timestamp_seconds": package["transition"]}
    if package["apply_state"] != "Applied":
        values["apply_state"] = APPLY_STATES.index(package["apply_state"])
    if package["health"] != "Current":
        values["health"] = HEALTHS.index(package["health"])
    if healthy == 0 and applied != 0:
        values["applied_revision"] = applied
    if desired not in (0, applied):
        values["desired_revision"] = desired
    if not good:
        values["reason"] = reason_code(package["reason"])
    inventory = package["inventory"]
    if inventory is not None:
        values["resources"] = inventory["total"]
        if inventory["current"] != inventory["total"]:
            values["resources_current"] = inventory["current"]
        if inventory["failed"] > 0:
            values["resources_failed"] = inventory["failed"]
    labels = identity(package)
    return [canonical(f"statusbridge_package_{name}", labels, value) for name, value in values.items()]


# --- The examples ------------------------------------------------------------------------------


def fingerprints():
    lists = [
        [""],
        [COMMIT],
        [COMMIT.upper()],
        [f"main@sha1:{COMMIT}"],
        [COMMIT[:12]],
        [COMMIT[:7]],
        [CONTENT],
        [f"sha256:{CONTENT}"],
        [f"latest@sha256:{CONTENT}"],
        [f"registry:5000/app@sha256:{CONTENT}"],
        [f"latest@sha512:{CONTENT}{CONTENT}"],
        [f"main@md5:{COMMIT}"],
        [f"registry:sha256:{CONTENT}"],
        ["v1.2.3"],
        ["main"],
        ["0" * 40],
        [f"main@sha1:{COMMIT[:6]}"],
        ["1.2.3+9b2f0c11aa77"],
        ["v1", "v2"],
        ["v2", "v1"],
        [COMMIT, ""],
        ["Größe"],
    ]
    return [
        {"revisions": revisions, "value": fingerprint(revisions), "shown": shown(fingerprint(revisions))}
        for revisions in lists
    ]


def reasons():
    words = ["", "NoHealthChecks", "BuildFailed", "HealthCheckFailed", "EvaluationFailed", "NotObserved", "Other"]
    return [{"reason": word, "code": reason_code(word)} for word in words]


def samples():
    payments = {"package_source": "flux-kustomization", "package_namespace": "flux-system", "package": "payments"}
    all_samples = [
        ("statusbridge_package_healthy_revision", payments, fingerprint([COMMIT])),
        ("statusbridge_package_healthy_revision", payments, MODULUS - 1),
        ("statusbridge_package_transition_timestamp_seconds", payments, 1767225600),
        ("statusbridge_package_health", {"package_source": "crossplane-package", "package": "cluster-scoped"}, 5),
        ("statusbridge_package_health", {**payments, "package_cluster": "eu-1"}, 4),
        ("statusbridge_package_health", {"package_source": "x", "package": 'back\\slash "quote"\nline é'}, 4),
        (
            "statusbridge_reason_info",
            {"package_source": "flux-kustomization", "reason": "BuildFailed", "code": str(reason_code("BuildFailed"))},
            1,
        ),
        ("statusbridge_source_up", {"package_source": "flux-kustomization"}, 1),
        ("statusbridge_source_packages", {"package_source": "flux-kustomization"}, 0),
        ("statusbridge_process_number", {}, 3848412428),
        (RENDERED, {}, 1767229200),
    ]
    return [
        {
            "metric": metric,
            "labels": labels,
            "value": value,
            "canonical": canonical(metric, labels, value),
            "xxh3_64": f"{sample_hash(canonical(metric, labels, value)):016x}",
        }
        for metric, labels, value in all_samples
    ]


def digests(listed):
    lines = [sample["canonical"] for sample in listed if sample["metric"] != RENDERED]
    return [{"canonical": lines[:length], "digest": total(lines[:length])} for length in (0, 1, 4, len(lines))]


def package(about, **fields):
    base = {
        "about": about,
        "source": "flux-kustomization",
        "namespace": "flux-system",
        "name": "payments",
        "cluster": None,
        "apply_state": "Applied",
        "health": "Current",
        "desired": [COMMIT],
        "applied": [COMMIT],
        "reason": "",
        "transition": 1767225600,
        "inventory": None,
    }
    return {**base, **fields}


def packages():
    def counts(total_, current, failed):
        return {"total": total_, "current": current, "failed": failed}

    states = [
        package("Applied and Current, without an inventory"),
        package("Applied and Current, with an inventory", inventory=counts(14, 14, 0)),
        package("Applied and Current, with an empty inventory", inventory=counts(0, 0, 0)),
        package("Applied and Current, cluster-scoped", namespace=None, source="crossplane-package"),
        package("Applied and Current, runs in another cluster", cluster="eu-1"),
        package("Applied and Current, several revisions", desired=["v1", "v2"], applied=["v1", "v2"]),
        package("Applied and Current, another revision is wanted already", desired=[NEXT]),
        package("Applied and Current, the desired revision is not known", desired=[""]),
        package("Applied and Current, no revision is known", desired=[""], applied=[""]),
        package("Applied and Current, the applied revision is not known", applied=[""]),
        package("nobody checks its health", health="Unknown", reason="NoHealthChecks"),
        package(
            "on its way to another revision",
            apply_state="Applying",
            health="InProgress",
            desired=[NEXT],
            reason="Progressing",
            inventory=counts(14, 9, 0),
        ),
        package("waits for a dependency, never applied", apply_state="Pending", health="NotFound", applied=[""],
                reason="DependencyNotReady"),
        package("paused, and Current as before", apply_state="Paused", reason="Suspended"),
        package("being deleted", apply_state="Deleting", health="Terminating", reason="Deleting"),
        package(
            "failed with everything: the most samples that a package has",
            apply_state="Failed",
            health="Failed",
            desired=[NEXT],
            reason="HealthCheckFailed",
            inventory=counts(14, 11, 2),
        ),
        package(
            "failed, the desired revision is not known",
            health="Failed",
            desired=[""],
            reason="HealthCheckFailed",
        ),
        package("nothing is known", apply_state="Unknown", health="Unknown", desired=[""], applied=[""],
                reason="EvaluationFailed"),
        package("all its resources have failed", health="Failed", reason="HealthCheckFailed",
                inventory=counts(3, 0, 3)),
    ]
    return [
        {
            **state,
            "healthy": fingerprint(state["applied"])
            if state["apply_state"] == "Applied" and state["health"] == "Current"
            else 0,
            "samples": samples_of(state),
            "digest": total(samples_of(state)),
        }
        for state in states
    ]


def others(source, number, reasons_, up=1):
    lines = [
        canonical("statusbridge_reason_info", {"package_source": source, "reason": r, "code": str(reason_code(r))}, 1)
        for r in reasons_
    ]
    lines.append(canonical("statusbridge_source_up", {"package_source": source}, up))
    lines.append(canonical("statusbridge_source_packages", {"package_source": source}, number))
    return lines


def process(number):
    return canonical("statusbridge_process_number", {}, number)


def whole(about, lines, at):
    state = total(lines)
    return {
        "about": about,
        "canonical": lines,
        "state": state,
        "rendered": at,
        "digest": total(lines + [rendered_sample(at)]),
    }


def expositions():
    good = package("good")
    bad = package("bad", name="web", apply_state="Failed", desired=[NEXT], reason="BuildFailed")
    source = "flux-kustomization"
    resting = samples_of(good) + samples_of(bad) + others(source, 2, ["BuildFailed"])
    return [
        whole("no packages and no sources", [process(7)], 1767229200),
        whole("two packages", resting + [process(252209556937565)], 1767229200),
        whole("the same, 15 s later: the state is the same, the digest is not", resting + [process(252209556937565)],
              1767229215),
        whole("the same, after a restart: another process", resting + [process(11)], 1767229215),
        whole("the largest numbers", [process(MODULUS - 1)], 2**40),
    ]


def parts():
    """An exporter that speaks for two other clusters and for its own."""
    source = "argocd-application"
    here = package("here", source=source, namespace="argocd")
    east = [
        package("eu-1", source=source, namespace="argocd", cluster="eu-1"),
        package("eu-1", source=source, namespace="argocd", name="web", cluster="eu-1", health="Failed",
                reason="Degraded"),
    ]
    west = [package("eu-2", source=source, namespace="argocd", cluster="eu-2")]
    of = {"eu-1": [line for p in east for line in samples_of(p)], "eu-2": [line for p in west for line in samples_of(p)]}
    without = samples_of(here) + others(source, 4, ["Degraded"]) + [process(42)]
    at = 1767229200
    every = without + of["eu-1"] + of["eu-2"]
    return {
        "rendered": at,
        "without_package_cluster": without,
        "parts": [{"package_cluster": name, "canonical": lines, "digest": total(lines)} for name, lines in of.items()],
        "digest": (sum(total(lines) for lines in of.values()) + total(without) + sample_hash(rendered_sample(at)))
        % MODULUS,
        "digest_of_all": total(every + [rendered_sample(at)]),
    }


def text():
    """A whole exposition as an exporter writes it, with the digest that stands in it."""
    source = "flux-kustomization"
    uid = shown(fingerprint(["7d3b6a54-2f0e-4a8e-9d0c-0b6a5c1f2e3d"]))
    at = 1767229200
    covered = (
        samples_of(package("good", inventory={"total": 14, "current": 14, "failed": 0}))
        + samples_of(package("bad", name="web", apply_state="Failed", desired=[NEXT], reason="BuildFailed",
                             inventory={"total": 3, "current": 3, "failed": 0}))
        + others(source, 2, ["BuildFailed"])
        + [process(252209556937565), rendered_sample(at)]
    )
    labels = {"contract": CONTRACT, "statusbridge_cluster_uid": uid}
    not_covered = [
        canonical(DIGEST, labels, total(covered)),
        canonical("statusbridge_source_last_contact_timestamp_seconds", {"package_source": source}, at - 2),
        canonical("statusbridge_packages",
                  {"apply_state": "Applied", "health": "Current", "package_source": source}, 1),
        canonical("statusbridge_packages",
                  {"apply_state": "Failed", "health": "Current", "package_source": source}, 1),
        "statusbridge_exporter_build_info{version=\"0.1.0\"} 1",
    ]
    lines, order = [], [name for name, _, _ in METRICS]
    by_name = {}
    for line in covered + not_covered:
        by_name.setdefault(line.split("{")[0], []).append(line)
    for name in sorted(by_name, key=lambda n: order.index(n) if n in order else len(order)):
        lines.append(f"# TYPE {name} gauge")
        # In the text format a sample without labels has no braces.
        lines.extend(line.replace("{} ", " ") for line in by_name[name])
    return {
        "text": "\n".join(lines) + "\n",
        "rendered": at,
        "state": total(line for line in covered if line != rendered_sample(at)),
        "digest": total(covered),
        "digest_labels": labels,
        "digest_line": not_covered[0],
    }


def main():
    listed = samples()
    split = parts()
    assert split["digest"] == split["digest_of_all"]
    del split["digest_of_all"]
    vectors = {
        "contract": CONTRACT,
        "fingerprints": fingerprints(),
        "reasons": reasons(),
        "apply_states": APPLY_STATES,
        "healths": HEALTHS,
        "metrics": [{"name": name, "labels": labels, "in_digest": covered} for name, labels, covered in METRICS],
        "samples": listed,
        "digests": digests(listed),
        "packages": packages(),
        "expositions": expositions(),
        "parts": split,
        "text": text(),
    }
    assert max(len(p["samples"]) for p in vectors["packages"]) == 10
    path = pathlib.Path(__file__).with_name("vectors.json")
    written = json.dumps(vectors, indent=1, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        if path.read_text(encoding="utf-8") != written:
            sys.exit(f"{path} is not what this program computes")
        return
    path.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
