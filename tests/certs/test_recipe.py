"""The recipe in ``certs/``, run as a person runs it."""

import importlib.util
import ssl
import stat
from pathlib import Path

import pytest

from extender.certs.authority import covers, is_signed_by

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("make_certs", ROOT / "certs" / "make_certs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_writes_three_pairs_that_belong_together(recipe, tmp_path, capsys):
    folder = tmp_path / "made"

    assert recipe.main(["--to", str(folder), "--name", "10.96.0.40"]) == 0

    authority = (folder / "ca.crt").read_bytes()
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{part}" for name in ("ca", "tls", "client") for part in ("crt", "key")
    }
    assert covers((folder / "tls.crt").read_bytes(), ["cohort-extender-webhook.cohort-system.svc", "10.96.0.40"])
    for name in ("tls", "client"):
        assert is_signed_by((folder / f"{name}.crt").read_bytes(), authority)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
    assert str(folder) in capsys.readouterr().out


def test_it_keeps_the_authority_when_it_runs_again(recipe, tmp_path):
    recipe.main(["--to", str(tmp_path)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    recipe.main(["--to", str(tmp_path)])
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert after["ca.crt"] == before["ca.crt"]
    assert after["tls.crt"] != before["tls.crt"]


def test_it_writes_no_key_into_the_repository(recipe, capsys):
    assert recipe.main(["--to", str(ROOT / "certs")]) == 2
    assert "do not belong into the repository" in capsys.readouterr().err


def test_the_repository_holds_no_key():
    assert not [path for path in (ROOT / "certs").iterdir() if path.suffix in {".key", ".crt", ".pem"}]
