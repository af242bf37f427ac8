"""Where the configuration comes from, and how TLS is set up."""

import base64
import datetime
import os
import ssl

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from extender.kube.client import ApiClient
from extender.kube.config import ClusterConfig, find_config, from_kubeconfig, in_cluster, tls_context
from extender.model.errors import Unreachable, UserError

WHOLE = """
current-context: x
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{{cluster}}}}}]
users: [{{name: u, user: {{}}}}]
"""


@pytest.fixture(scope="module")
def pair():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


@pytest.fixture
def account(tmp_path):
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "namespace").write_text("cohort-system\n")
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://10.0.0.1:6443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, "https://[fd00::1]:443"),
    ],
)
def test_inside_a_cluster(account, environ, want):
    config = in_cluster(environ, account)

    assert (config.server, config.namespace) == (want, "cohort-system")
    assert (config.token_file, config.ca_file) == (str(account / "token"), str(account / "ca.crt"))


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param({}, "KUBERNETES_SERVICE_HOST is not set", id="no pod"),
        pytest.param({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "/token does not exist", id="a pod without a token"),
    ],
)
def test_outside_a_cluster(tmp_path, environ, want):
    with pytest.raises(UserError) as error:
        in_cluster(environ, tmp_path)

    assert want in str(error.value)


def kubeconfig(path, *, user=None, cluster=None, context=None):
    document = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_kubeconfig_with_a_token(tmp_path):
    file = kubeconfig(tmp_path / "config", user={"token": "t"}, context={"namespace": "research"})

    assert from_kubeconfig(file) == ClusterConfig(server="https://api:6443", namespace="research", token="t")


def test_a_kubeconfig_with_files_beside_it(tmp_path, pair):
    certificate, key = pair
    for name, content in (("ca.crt", certificate), ("me.crt", certificate), ("me.key", key)):
        (tmp_path / name).write_bytes(content)
    file = kubeconfig(
        tmp_path / "config",
        user={"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "token"},
        cluster={"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"},
    )

    config = from_kubeconfig(file)

    assert (config.ca, config.certificate, config.key) == (certificate, certificate, key)
    assert (config.token_file, config.server_name) == (str(tmp_path / "token"), "kubernetes")
    context = tls_context(config)
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_a_kubeconfig_with_data_within(tmp_path, pair):
    certificate, key = (base64.b64encode(part).decode() for part in pair)
    file = kubeconfig(
        tmp_path / "config",
        user={"client-certificate-data": certificate, "client-key-data": key},
        cluster={"certificate-authority-data": certificate},
    )

    config = from_kubeconfig(file)

    assert (config.ca, config.certificate, config.key) == (pair[0], *pair)


def test_a_user_with_a_plugin_is_left_to_the_library(tmp_path):
    file = kubeconfig(tmp_path / "config", user={"exec": {"command": "echo", "apiVersion": "v1"}})

    assert from_kubeconfig(file).token_loader is not None


async def test_a_plugin_gives_the_token(tmp_path):
    credential = tmp_path / "credential"
    credential.write_text(
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"fresh"}}'
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(credential)],
        "interactiveMode": "Never",
    }
    file = kubeconfig(tmp_path / "config", user={"exec": plugin})
    load = from_kubeconfig(file).token_loader

    assert load is not None
    assert await load() == "fresh"


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("no-such-plugin", "No such file or directory", id="not installed"),
        pytest.param("false", "exec: process returned 1", id="not logged in"),
    ],
)
async def test_a_plugin_that_gives_no_token_is_told_in_one_line(tmp_path, command, want):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    file = kubeconfig(tmp_path / "config", user={"exec": plugin})
    load = from_kubeconfig(file).token_loader
    assert load is not None

    with pytest.raises(UserError) as error:
        await load()

    said = str(error.value)
    assert said.startswith(f"kubeconfig {file}: the plug-in of context 'main' gave no token (")
    assert want in said
    assert said.endswith("; is it installed, are you logged in?")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a: [", "cannot be read"),
        ("[]", "names no current-context; it has no contexts"),
        ("{contexts: [{name: a}, {name: b}]}", "names no current-context; it has a, b (choose with --context)"),
        ("{current-context: x, contexts: [{name: y}]}", "has no context 'x'; it has y (choose with --context)"),
        ("{current-context: x, contexts: [{name: x, context: {cluster: c}}]}", "has no cluster 'c'"),
        (WHOLE.format(cluster=""), "cluster 'c' has no server that begins with https://"),
        (WHOLE.format(cluster="server: 'api:6443'"), "cluster 'c' has no server that begins with https://"),
        (
            WHOLE.format(cluster="server: 'https://s', certificate-authority: none.crt"),
            "/none.crt: No such file or directory",
        ),
        (
            WHOLE.format(cluster="server: 'https://s', certificate-authority-data: '!'"),
            "certificate-authority cannot be read: it is not base64",
        ),
        (WHOLE.format(cluster="server: 'https://s:99999'"), "the server of cluster 'c' is no address: https://s:99999"),
        (WHOLE.format(cluster="server: 'https://[::1'"), "the server of cluster 'c' is no address: https://[::1"),
        (WHOLE.format(cluster="server: 'https://'"), "no address"),
    ],
)
def test_a_wrong_kubeconfig_says_what_is_missing(tmp_path, text, want):
    file = tmp_path / "config"
    file.write_text(text)

    with pytest.raises(UserError) as error:
        from_kubeconfig(file)

    assert want in str(error.value)


def test_another_context_can_be_chosen(tmp_path):
    with pytest.raises(UserError) as error:
        from_kubeconfig(kubeconfig(tmp_path / "config"), "other")

    assert "has no context 'other'; it has main (choose with --context)" in str(error.value)


@pytest.mark.parametrize(
    ("variable", "want"),
    [
        pytest.param("", "KUBECONFIG is not set and there is no {}/.kube/config.", id="nothing at all"),
        pytest.param(
            "{}/none:{}/other", "KUBECONFIG names {}/none, {}/other, which does not exist.", id="no such file"
        ),
    ],
)
def test_who_has_no_cluster_is_told_where_we_looked_and_what_to_do(tmp_path, monkeypatch, variable, want):
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(UserError) as error:
        find_config({"KUBECONFIG": variable.replace("{}", str(tmp_path))} if variable else {})

    assert str(error.value) == (
        "no cluster to talk to: not inside a cluster: KUBERNETES_SERVICE_HOST is not set; "
        f"{want.replace('{}', str(tmp_path))} Give --kubeconfig FILE, or export KUBECONFIG=FILE"
    )


def test_of_several_kubeconfigs_the_first_that_exists_is_read(tmp_path):
    file = kubeconfig(tmp_path / "config")

    assert find_config({"KUBECONFIG": f"{tmp_path}/none:{file}"}).server == "https://api:6443"


def test_a_context_is_never_the_pods_own_account(tmp_path):
    file = kubeconfig(tmp_path / "config")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(file)}

    assert find_config(environ, context="main").server == "https://api:6443"


@pytest.mark.parametrize("given", [pytest.param(True, id="as an option"), pytest.param(False, id="by KUBECONFIG")])
def test_what_is_used_outside_a_cluster(tmp_path, given):
    file = str(kubeconfig(tmp_path / "config"))

    config = find_config({} if given else {"KUBECONFIG": f"{file}:other"}, file if given else "")

    assert config.server == "https://api:6443"


def test_a_plain_server_needs_no_tls():
    assert tls_context(ClusterConfig(server="http://127.0.0.1:8001")) is None


def test_an_insecure_cluster_is_not_checked():
    context = tls_context(ClusterConfig(server="https://x", insecure=True))

    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


def test_certificates_that_cannot_be_used_are_told():
    with pytest.raises(UserError) as error:
        tls_context(ClusterConfig(server="https://x", ca=b"no certificate"))

    assert "certificates for https://x cannot be used" in str(error.value)


def authority(name):
    """A CA of its own, and a server certificate for localhost that it signed."""
    now = datetime.datetime.now(datetime.UTC)

    def signed(subject, key, issuer, signer, *extensions):
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    root, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    localhost = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    ca = signed(who, root, who, root, x509.BasicConstraints(ca=True, path_length=None))
    certificate = signed(x509.Name([]), leaf, who, root, localhost)
    key = leaf.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ca, certificate + key


async def test_a_ca_that_is_replaced_is_trusted_without_a_restart(tmp_path):
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "pair").write_bytes((old := authority("old"))[1])
    served.load_cert_chain(tmp_path / "pair")
    (tmp_path / "ca.crt").write_bytes(old[0])
    os.utime(tmp_path / "ca.crt", ns=(1, 1))

    async def answer(request):
        response = web.json_response({})
        response.force_close()
        return response

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served)
    await site.start()
    server = f"https://127.0.0.1:{runner.addresses[0][1]}"
    client = ApiClient(ClusterConfig(server=server, server_name="localhost", ca_file=str(tmp_path / "ca.crt")))
    before = await client.get("/api")
    (tmp_path / "pair").write_bytes((new := authority("new"))[1])
    served.load_cert_chain(tmp_path / "pair")
    with pytest.raises(Unreachable) as error:
        await client.get("/api")
    (tmp_path / "ca.crt").write_bytes(new[0])
    after = await client.get("/api")
    (tmp_path / "ca.crt").unlink()
    still = await client.get("/api")
    await client.close()
    await runner.cleanup()

    assert f"the certificate of {server} is not trusted" in str(error.value)
    assert "CERTIFICATE_VERIFY_FAILED" in str(error.value)
    assert (before, after, still) == (b"{}", b"{}", b"{}")
