"""Every kustomization builds, and what it builds is what a server takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.manifests.cluster import MANIFESTS, NAMESPACE
from tests.rig import Rig

pytestmark = [pytest.mark.rig]

RIG = {"scheduler": False}
WHOLE = ("crd", "config", "base", "default", "scheduler/second")


async def build(rig: Rig, directory: Path) -> list[dict]:
    return list(yaml.safe_load_all(await rig.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", directory)))


@pytest.mark.parametrize("name", WHOLE)
async def test_it_builds_and_its_namespaced_objects_are_ours(rig: Rig, name: str) -> None:
    objects = await build(rig, MANIFESTS / name)

    assert objects
    assert {each["metadata"].get("namespace", NAMESPACE) for each in objects} == {NAMESPACE}


async def test_the_whole_installation_with_all_options_applies_twice_without_a_change(rig: Rig, tmp_path: Path) -> None:
    (rig.directory / "overlay").mkdir()
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(_from(rig, "default")), str(_from(rig, "scheduler/second"))],
        "components": [str(_from(rig, "components/mtls")), str(_from(rig, "components/network-policy"))],
    }
    (rig.directory / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    objects = await build(rig, rig.directory / "overlay")
    crds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    await rig.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(crds))
    await rig.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    await rig.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))

    again = await rig.kubectl("diff", "-f", "-", input=yaml.safe_dump_all(objects))

    (deployment,) = [
        each for each in objects if each["metadata"]["name"] == "cohort-extender" and each["kind"] == "Deployment"
    ]
    volumes = {volume["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert again == ""
    assert volumes == {"config", "private", "client-ca"}
    assert any(each["kind"] == "NetworkPolicy" for each in objects)


def _from(rig: Rig, name: str) -> Path:
    return Path(
        "..", *[".."] * len((rig.directory / "overlay").resolve().parent.parts[1:]), *(MANIFESTS / name).parts[1:]
    )
