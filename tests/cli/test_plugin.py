"""The commands of ``kubectl cohort`` against an API server: answers, and errors that name the way out."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from extender.cli.plugin import app
from tests.support.fake_api import FakeApi, Fault

HOST = "KUBERNETES_SERVICE_HOST"
COHORTS = "/apis/kueue.x-k8s.io/v1beta2/cohorts"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
LONG = "-".join(["a-cohort-with-a-very-long-name"] * 8)


class Lab:
    """An API server, and a kubeconfig that leads to it."""

    def __init__(self, api: FakeApi, folder: Path) -> None:
        self.api = api
        self.kubeconfig = folder / "config"
        self.point(api.url)

    def point(self, server: str) -> None:
        """Let the kubeconfig lead to *server*."""
        document = {
            "current-context": "main",
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "research"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(document))

    async def run(self, *words: str) -> Result:
        """The command, as it runs with its output in a pipe."""
        arguments = [*words, "--kubeconfig", str(self.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, app, arguments)


@pytest.fixture
async def lab(tmp_path):
    async with FakeApi.running() as api:
        yield Lab(api, tmp_path)


async def test_the_tree_is_not_wrapped_in_a_pipe(lab, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lab.api.put(COHORTS, {"metadata": {"name": LONG}})
    lab.api.put(QUEUES, {"metadata": {"name": "q"}, "spec": {"cohortName": LONG}})

    told = await lab.run("tree")

    assert told.exit_code == 0
    assert [line.rstrip() for line in told.output.splitlines()] == ["quota", f"└── {LONG}", "    └── q"]
    assert max(map(len, told.output.splitlines())) < len(LONG) + 20


async def test_a_pod_is_looked_for_in_the_namespace_of_the_context(lab):
    lab.api.put("/api/v1/pods", {"metadata": {"name": "p", "namespace": "research"}, "spec": {}})

    assert (await lab.run("explain", "pod", "p")).output == "research/p  queue none\ndoes not wait for quota\n"


async def test_a_job_is_told_with_its_pods(lab):
    job = {"name": "train", "namespace": "research", "labels": {"kueue.x-k8s.io/queue-name": "training"}}
    lab.api.put("/apis/batch/v1/jobs", {"metadata": {**job, "uid": "u"}, "spec": {}})

    want = "research/train  queue training\ndoes not wait for quota\npods: none\n"
    assert (await lab.run("explain", "job", "train")).output == want


async def test_a_job_with_its_queue_on_the_template_leads_to_its_pods(lab):
    template = {"metadata": {"annotations": {"kueue.x-k8s.io/queue-name": "training"}}}
    job = {"metadata": {"name": "night", "namespace": "research", "uid": "u"}, "spec": {"template": template}}
    lab.api.put("/apis/batch/v1/jobs", job)

    assert (await lab.run("explain", "job", "night")).output == (
        "research/night  queue none\n"
        "its pods are queued one by one, by queue training of their template: "
        "kubectl cohort explain pod says why one waits\npods: none\n"
    )


FORBIDDEN = 'clusterqueues is forbidden: User "ann" cannot list resource "clusterqueues" in API group "kueue.x-k8s.io"'


@pytest.mark.parametrize(
    ("words", "part", "fault", "want"),
    [
        pytest.param(
            ["tree"],
            QUEUES,
            Fault(status=403, message=FORBIDDEN),
            f"error: not allowed: {FORBIDDEN}; an administrator grants it with: kubectl create clusterrolebinding NAME "
            "--clusterrole=cohort-extender-viewer --user=USER\n",
            id="may not read quota",
        ),
        pytest.param(
            ["explain", "pod", "p"],
            "/pods/p",
            Fault(status=403, message="no"),
            "error: not allowed: no; an administrator grants it with: kubectl create rolebinding NAME "
            "--clusterrole=view --user=USER -n NAMESPACE\n",
            id="may not read pods",
        ),
        pytest.param(
            ["tree"],
            COHORTS,
            Fault(status=401, message="Unauthorized"),
            "error: the API server does not accept these credentials (401): log in again, or choose another "
            "--context\n",
            id="not logged in",
        ),
        pytest.param(
            ["tree"],
            COHORTS,
            Fault(status=404, message="the server could not find the requested resource"),
            "error: the cluster has no quota objects (kueue.x-k8s.io): apply manifests/default, or manifests/crd "
            "alone, or choose another --context\n",
            id="no CRDs",
        ),
        pytest.param(
            ["explain", "pod", "p", "-n", "lab"],
            "none",
            Fault(),
            "error: no pod p in namespace lab; is it another one? Name it with -n\n",
            id="no such pod",
        ),
        pytest.param(
            ["explain", "job", "j"],
            "none",
            Fault(),
            "error: no Job j in namespace research; is it another one? Name it with -n\n",
            id="no such Job",
        ),
        pytest.param(
            ["explain", "job", "j", "--context", "mian"],
            "none",
            Fault(),
            "error: kubeconfig {kubeconfig} has no context 'mian'; it has main (choose with --context)\n",
            id="a context that does not exist",
        ),
    ],
)
async def test_an_error_is_one_line_with_the_way_out(lab, words, part, fault, want):
    for verb in ("GET", "LIST"):
        lab.api.fail(verb, part, fault, times=2)  # a 401 is tried twice

    told = await lab.run(*words)

    assert told.exit_code == 1
    assert told.output == want.replace("{kubeconfig}", str(lab.kubeconfig))


async def test_a_server_that_does_not_run_is_named(lab):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{held.getsockname()[1]}"
        lab.point(server)
        told = await lab.run("tree")

    assert told.exit_code == 1
    assert f"no connection to {server} (Connection refused): does it run, is the address right?" in told.output


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(["-c", "from extender.cli.plugin import main; main()", "tree"], 1, id="the plugin"),
        pytest.param(["-m", "extender", "serve"], 2, id="the service"),
    ],
)
def test_without_a_cluster_we_say_where_we_looked(command, code, tmp_path):
    variables = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", HOST)}

    told = subprocess.run(
        [sys.executable, *command],
        env={**variables, "HOME": str(tmp_path)},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert told.returncode == code
    assert told.stderr == (
        "error: no cluster to talk to: not inside a cluster: KUBERNETES_SERVICE_HOST is not set; KUBECONFIG is not set "
        f"and there is no {tmp_path}/.kube/config. Give --kubeconfig FILE, or export KUBECONFIG=FILE\n"
    )


async def test_the_service_says_in_one_line_that_its_port_is_taken(lab):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        config = lab.kubeconfig.with_name("settings.yaml")
        config.write_text(
            "apiVersion: config.cohort-extender.io/v1alpha1\nkind: Configuration\nbindAddress: 127.0.0.1\n"
            f"ports: {{extender: 0, webhook: 0, http: {port}}}\n"
        )
        words = ["serve", "--config", str(config), "--kubeconfig", str(lab.kubeconfig)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extender", *words),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await process.communicate()

    assert process.returncode == 2
    last = told.decode().splitlines()[-1]
    assert last.startswith(f"error: ports.http: cannot listen on 127.0.0.1 port {port} (Address already in use)")
