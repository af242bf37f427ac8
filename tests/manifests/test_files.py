"""The manifests as files: parts that must agree with each other and with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.model import jobs
from extender.model import pods as words
from extender.settings import Settings, read_settings
from tests.serve.guard_cases import WRITER

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CRDS = sorted(path for path in (MANIFESTS / "crd").glob("*.yaml") if path.name != "kustomization.yaml")
ALL = sorted(path for path in MANIFESTS.rglob("*.yaml"))
SERVICES = ("cohort-extender", "cohort-extender-webhook")


def load(*parts: str) -> list[dict[str, Any]]:
    """The objects in a file."""
    return list(yaml.safe_load_all((MANIFESTS / Path(*parts)).read_text()))


def of_kind(kind: str, *parts: str) -> dict[str, Any]:
    """The one object of that kind in a file."""
    (found,) = [each for each in load(*parts) if each["kind"] == kind]
    return found


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(MANIFESTS))) for path in ALL])
def test_every_file_is_yaml_with_kinds_and_versions(path: Path):
    for found in yaml.safe_load_all(path.read_text()):
        assert {"apiVersion", "kind"} <= set(found)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CRDS])
def test_both_versions_of_a_crd_are_one(path: Path):
    (crd,) = yaml.safe_load_all(path.read_text())
    old, new = crd["spec"]["versions"]
    rest = {"name", "storage"}

    assert (old["name"], old["served"], old["storage"]) == ("v1beta1", True, False)
    assert (new["name"], new["served"], new["storage"]) == ("v1beta2", True, True)
    assert {key: value for key, value in old.items() if key not in rest} == {
        key: value for key, value in new.items() if key not in rest
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}


def test_the_crds_are_those_of_kueue_that_we_read():
    kinds = {yaml.safe_load(path.read_text())["spec"]["names"]["kind"] for path in CRDS}

    assert kinds == {"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology", "WorkloadPriorityClass"}


def strings(node: Any) -> list[str]:
    """All texts in a tree."""
    if isinstance(node, dict):
        return [text for value in node.values() for text in strings(value)] + [str(key) for key in node]
    if isinstance(node, list):
        return [text for value in node for text in strings(value)]
    return [node] if isinstance(node, str) else []


def test_marks_are_spelled_as_in_the_code():
    known = {
        words.GATE,
        words.MANAGED_LABEL,
        words.ADMISSION_ANNOTATION,
        words.MARKER_RESOURCE,
        words.QUEUE_NAME,
        words.PRIORITY_CLASS,
        words.POD_GROUP_NAME,
        words.POD_GROUP_TOTAL_COUNT,
        jobs.UNIT_ANNOTATION,
        jobs.UNIT_ADMISSION_ANNOTATION,
        jobs.EVICTED_ANNOTATION,
        jobs.REQUEUE_ANNOTATION,
        jobs.ACTIVE_ANNOTATION,
        jobs.MIN_PARALLELISM,
        jobs.EQUAL_COMPLETIONS,
        "cohort-extender.io/default-queue",  # the label of a namespace, see ADR 0032
    }
    used = set()
    for path in (*MANIFESTS.joinpath("base").glob("*.yaml"), *MANIFESTS.joinpath("components").rglob("*.yaml")):
        for found in yaml.safe_load_all(path.read_text()):
            for text in strings(found):
                used |= set(re.findall(r"(?<![\w.])(?:cohort-extender|kueue\.x-k8s)\.io/[\w-]+", text))
    versions = {"kueue.x-k8s.io/v1beta2"}

    assert used - versions <= known
    assert {words.GATE, words.MANAGED_LABEL, words.MARKER_RESOURCE, words.QUEUE_NAME} <= used


def test_our_account_has_the_same_name_wherever_it_is_compared():
    _, namespace, name = WRITER.rsplit(":", 2)
    account = of_kind("ServiceAccount", "base", "rbac.yaml")
    compared = {
        text
        for path in MANIFESTS.rglob("*.yaml")
        for found in yaml.safe_load_all(path.read_text())
        for text in re.findall(r"system:serviceaccount:[\w-]+:[\w-]+", " ".join(strings(found)))
    }

    assert compared == {WRITER}
    assert account["metadata"]["name"] == name == Settings().service_account
    assert of_kind("Namespace", "base", "namespace.yaml")["metadata"]["name"] == namespace


def test_the_shipped_configuration_is_the_default_but_for_fair_sharing():
    shipped = read_settings(str(MANIFESTS / "config" / "config.yaml"))

    assert msgspec.structs.replace(shipped, fair_sharing=None) == Settings()
    assert shipped.policy().fair_sharing


def test_mutual_tls_changes_nothing_but_the_client_ca():
    with_ca = read_settings(str(MANIFESTS / "components" / "mtls" / "config.yaml"))
    shipped = read_settings(str(MANIFESTS / "config" / "config.yaml"))

    assert with_ca.tls.client_ca_file == "/etc/cohort-extender-client-ca/ca.crt"
    assert msgspec.structs.replace(with_ca, tls=shipped.tls) == shipped


def test_names_of_secret_and_lease_are_those_that_the_role_allows():
    role = of_kind("Role", "base", "rbac.yaml")
    named = {rule["resources"][0]: rule.get("resourceNames") for rule in role["rules"] if rule.get("resourceNames")}

    assert named == {"leases": [Settings().leader_election.lease_name], "secrets": [Settings().tls.secret_name]}


def test_ports_of_services_pods_and_settings_agree():
    ports = Settings().ports
    (container,) = of_kind("Deployment", "base", "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    listed = {port["name"]: port["containerPort"] for port in container["ports"]}
    services = {each["metadata"]["name"]: each["spec"]["ports"] for each in load("base", "service.yaml")}

    assert listed == {"extender": ports.extender, "webhook": ports.webhook, "http": ports.http}
    assert services["cohort-extender"] == [{"name": "extender", "port": 9444, "targetPort": "extender"}]
    assert services["cohort-extender-webhook"] == [{"name": "webhook", "port": 443, "targetPort": "webhook"}]


def test_webhooks_call_the_service_with_paths_that_are_served():
    app = (ROOT / "extender" / "app.py").read_text()
    for configuration in load("base", "webhooks.yaml"):
        for hook in configuration["webhooks"]:
            service = hook["clientConfig"]["service"]
            assert service["name"] in SERVICES
            assert f'"{service["path"]}"' in app
            assert hook["failurePolicy"] == "Ignore"
            assert hook["timeoutSeconds"] == 3
            assert hook["sideEffects"] == "None"


@pytest.mark.parametrize(
    "parts", [("scheduler", "scheduler-config.yaml"), ("scheduler", "second", "scheduler-config.yaml")]
)
def test_the_scheduler_asks_about_queued_pods_only_and_is_not_to_go_without_an_answer(parts: tuple[str, ...]):
    (config,) = load(*parts)
    judging, scoring = config["extenders"]

    for extender in judging, scoring:
        assert extender["urlPrefix"].startswith("https://")
        assert extender["urlPrefix"].endswith(":9444/scheduler")
        assert extender["nodeCacheCapable"] is True
    assert verbs(judging) == {"filter", "preempt"}
    assert judging["managedResources"] == [{"name": words.MARKER_RESOURCE, "ignoredByScheduler": True}]
    assert judging["ignorable"] is False
    assert verbs(scoring) == {"prioritize"}
    assert {"name": "nvidia.com/gpu"} in scoring["managedResources"]
    assert (scoring["ignorable"], scoring["weight"]) == (True, 2)
    assert config["percentageOfNodesToScore"] == 100


def verbs(extender: dict[str, Any]) -> set[str]:
    """What kube-scheduler asks there."""
    return {key.removesuffix("Verb") for key in extender if key.endswith("Verb")}


def test_the_container_has_no_privileges():
    for parts in (("base", "deployment.yaml"), ("scheduler", "second", "scheduler.yaml")):
        pod = of_kind("Deployment", *parts)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]


def test_the_pod_outlives_its_own_drain():
    pod = of_kind("Deployment", "base", "deployment.yaml")["spec"]["template"]["spec"]

    assert pod["terminationGracePeriodSeconds"] >= 2 * int(Settings().drain.removesuffix("s"))


def test_no_manifest_has_a_key_or_a_registry():
    for path in ALL:
        text = path.read_text()
        assert "PRIVATE KEY" not in text
        for image in re.findall(r"image: (\S+)", text):
            assert "/" not in image, f"{path}: {image}"
