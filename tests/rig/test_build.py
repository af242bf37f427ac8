"""Where the rig's binaries come from, tried without building any."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.rig import build, toolchain

ENVTEST = ("etcd", "kube-apiserver", "kubectl")


@pytest.fixture
def assets(tmp_path, monkeypatch):
    """A directory as envtest fills it, named in KUBEBUILDER_ASSETS, and an empty cache."""
    directory = tmp_path / "assets"
    directory.mkdir()
    for name in ENVTEST:
        (directory / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return directory


def no_go(_):
    raise toolchain.ToolchainError("no Go toolchain")


def fake_build(title, mod, package, output, *, ldflags):
    output.touch()


def test_assets_need_no_go_for_what_they_hold_and_the_error_names_the_rest(assets, monkeypatch):
    monkeypatch.setattr(build, "find_go", no_go)

    with pytest.raises(build.BuildError) as failed:
        build.binaries()

    message = str(failed.value)
    assert "kube-controller-manager, kube-scheduler, kwok" in message
    assert str(assets) in message
    assert "etcd" not in message.split("(")[0]


def test_complete_assets_are_used_as_they_are(assets, monkeypatch):
    monkeypatch.setattr(build, "find_go", no_go)
    for name in build.COMPONENTS:
        (assets / name).touch()

    built = build.binaries()

    assert {built[name].parent for name in build.COMPONENTS} == {assets}


def test_what_assets_lack_is_built_once_and_found_again(assets, monkeypatch):
    monkeypatch.setattr(build, "_go_build", fake_build)
    first = build.binaries()
    monkeypatch.setattr(build, "_go_build", None)  # a second build would fail

    again = build.binaries()

    assert again == first
    assert first["etcd"] == assets / "etcd"
    assert first["kube-scheduler"].resolve().name == "control-plane"
    assert build.cache_root() in first["kwok"].parents


def test_an_interrupted_build_leaves_nothing_in_the_cache(assets, monkeypatch):
    def interrupted(title, mod, package, output, *, ldflags):
        output.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_go_build", interrupted)

    with pytest.raises(KeyboardInterrupt):
        build.binaries()

    assert [path for path in build.cache_root().iterdir() if path.is_dir()] == []


def test_an_unknown_minor_is_refused_with_the_known_ones(monkeypatch):
    monkeypatch.setenv("RIG_KUBERNETES", "1.2")

    with pytest.raises(build.BuildError, match=r"Kubernetes 1\.2 is not .*1\.36"):
        build.versions()


def test_every_pinned_minor_has_its_mod_file_and_sum():
    for minor in build.known_minors():
        pins = build.versions(minor)

        assert pins.mod.is_file()
        assert pins.mod.with_suffix(".sum").is_file()
        assert f"k8s.io/kubernetes v{pins.kubernetes}" in pins.mod.read_text()
        assert f"sigs.k8s.io/kwok v{pins.kwok}" in pins.kwok_mod.read_text()


def test_a_failing_go_command_is_reported_with_what_it_said():
    script = "import sys; print('a reason', file=sys.stderr); sys.exit(3)"

    with pytest.raises(build.BuildError, match=r"(?s)exited with 3.*a reason"):
        build._go("test", [sys.executable, "-c", script])


def test_the_guard_refuses_to_start_for_a_parent_that_is_gone():
    argv = [sys.executable, "-I", "-S", str(build.HERE / "guard.py"), "1", "true"]

    ended = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)

    assert "the parent is gone" in ended.stderr
